"""The queries that are followed: what is kept of each between one progress event and the next, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from watermark_source.monitor.source_status import SourceStatus, SplitView, Status
from watermark_source.planning.split import Split

# PURE. Time in status: how long each split has been active, idle and so on, added up over successive reports.


Totals = Mapping[tuple[Split, Status], int]
"""Milliseconds a split has had a status."""


def add_elapsed(totals: Totals, before: SourceStatus | None, after: SourceStatus) -> Totals:
    """Add the time between two reports of one source.

    A status change is dated by the later report's ``since``, if that lies between the two. Splits that are not in both
    reports add nothing, so the totals are exact only for a source whose splits all fit a report.
    """
    if before is None:
        return totals
    known = {view.split: view for view in before.splits}
    added = dict(totals)
    for view in after.splits:
        if view.split not in known:
            continue
        for status, millis in _spent(known[view.split], view, before.at, after.at):
            key = (view.split, status)
            added[key] = added.get(key, 0) + millis
    return added


def _spent(before: SplitView, after: SplitView, start: int, end: int) -> tuple[tuple[Status, int], ...]:
    if end <= start:
        return ()
    if before.status is after.status:
        return ((after.status, end - start),)
    turned = after.since if after.since is not None and start <= after.since <= end else end
    return (before.status, turned - start), (after.status, end - turned)


@dataclass(frozen=True, slots=True)
class Followed:
    """What is kept of one source."""

    status: SourceStatus
    elapsed: Totals = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowedQuery:
    """What is kept of one running query."""

    run: str
    """Id of the run: a query that is started again keeps its own id, and events of two runs may overlap."""
    label: str
    late_rows: int = 0
    """What its stateful operators dropped as late since the listener follows it; see ``late_rows``."""
    sources: Mapping[str, Followed] = field(default_factory=dict)


class FollowedQueries:
    """The running queries. Spark calls from one thread, and metrics are served in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, FollowedQuery] = {}

    def all(self) -> tuple[FollowedQuery, ...]:
        """Return what is known of each."""
        with self._lock:
            return tuple(self._queries.values())

    def begin(self, query: str, run: str, label: str) -> None:
        """Follow a run of a query from its start."""
        with self._lock:
            self._queries[query] = FollowedQuery(run, label)

    def progress(self, query: str, run: str, label: str, statuses: Iterable[SourceStatus], late: int) -> None:
        """Take in what one progress says; a query that already runs is followed from here on."""
        with self._lock:
            known = self._queries.get(query, FollowedQuery(run, label))
            if known.run == run:
                self._queries[query] = _after(known, statuses, late)

    def end(self, query: str, run: str) -> None:
        """Forget the query, unless another run of it has begun."""
        with self._lock:
            known = self._queries.get(query)
            if known is not None and known.run == run:
                del self._queries[query]


def _after(query: FollowedQuery, statuses: Iterable[SourceStatus], late: int) -> FollowedQuery:
    sources = dict(query.sources)
    for status in statuses:
        known = sources.get(status.source_name)
        sources[status.source_name] = (
            Followed(status) if known is None else Followed(status, add_elapsed(known.elapsed, known.status, status))
        )
    return replace(query, late_rows=query.late_rows + late, sources=sources)
