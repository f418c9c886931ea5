"""The queries that are followed: what is kept of each between one progress event and the next, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from watermark_source.monitor.source_status import SourceStatus
from watermark_source.monitor.time_in_status import Totals, add_elapsed


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
