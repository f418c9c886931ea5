"""FollowedQueries: the latest status of the running queries, and the time that splits have spent in each status."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from watermark_source.monitor.source_status import SourceStatus, SplitView, Status
from watermark_source.planning.split import Split

Totals = Mapping[tuple[Split, Status], int]
"""Milliseconds that each split has spent in each status."""


@dataclass(frozen=True, slots=True)
class FollowedSource:
    """One source of a running query."""

    status: SourceStatus
    elapsed: Totals = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowedQuery:
    """One running query."""

    run: str
    """Id of the run. A restarted query keeps its query id, and events of two runs may overlap."""
    label: str
    late_rows: int = 0
    """Rows that its stateful operators dropped as late while the listener followed it; see ``late_rows``."""
    sources: Mapping[str, FollowedSource] = field(default_factory=dict)


class FollowedQueries:
    """The running queries. Thread-safe: Spark's listener thread writes, and threads that serve metrics read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, FollowedQuery] = {}

    def all(self) -> tuple[FollowedQuery, ...]:
        """Return the running queries."""
        with self._lock:
            return tuple(self._queries.values())

    def begin(self, query: str, run: str, label: str) -> None:
        """Follow a run of a query from its start."""
        with self._lock:
            self._queries[query] = FollowedQuery(run, label)

    def progress(self, query: str, run: str, label: str, statuses: Iterable[SourceStatus], late: int) -> None:
        """Record a progress event. A query that started before the listener is followed from here on."""
        with self._lock:
            followed = self._queries.get(query, FollowedQuery(run, label))
            if followed.run == run:
                self._queries[query] = _after(followed, statuses, late)

    def end(self, query: str, run: str) -> None:
        """Remove the query, unless another run of it has begun."""
        with self._lock:
            followed = self._queries.get(query)
            if followed is not None and followed.run == run:
                del self._queries[query]


def _after(query: FollowedQuery, statuses: Iterable[SourceStatus], late: int) -> FollowedQuery:
    sources = dict(query.sources)
    for status in statuses:
        last = sources.get(status.source_name)
        elapsed = {} if last is None else add_elapsed(last.elapsed, last.status, status)
        sources[status.source_name] = FollowedSource(status, elapsed)
    return replace(query, late_rows=query.late_rows + late, sources=sources)


def add_elapsed(totals: Totals, before: SourceStatus | None, after: SourceStatus) -> Totals:
    """Add the time between two reports of one source to the totals. Pure.

    A status change is dated by the later report's ``since``, if that lies between the two. A split that is missing in
    one of the reports adds nothing, so the totals are exact only for a source whose splits all fit a report.
    """
    if before is None:
        return totals
    views_before = {view.split: view for view in before.splits}
    added = dict(totals)
    for view in after.splits:
        if view.split not in views_before:
            continue
        for status, millis in _spent(views_before[view.split], view, before.at, after.at):
            key = (view.split, status)
            added[key] = added.get(key, 0) + millis
    return added


def _spent(before: SplitView, after: SplitView, start: int, end: int) -> tuple[tuple[Status, int], ...]:
    if end <= start:
        return ()
    if before.status is after.status:
        return ((after.status, end - start),)
    changed = after.since if after.since is not None and start <= after.since <= end else end
    return (before.status, changed - start), (after.status, end - changed)
