"""What metrics are about: the queries, their sources, the splits and the snapshots of those, at one scrape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from watermark_source.monitor.followed_queries import Followed, FollowedQuery
from watermark_source.monitor.snapshot_progress import SnapshotProgress
from watermark_source.monitor.source_status import SourceStatus, SplitView, Status
from watermark_source.monitor.time_in_status import Totals
from watermark_source.watermark_text import is_moment


@dataclass(frozen=True, slots=True)
class QueryAt:
    """A query."""

    labels: tuple[str, ...]
    late_rows: int


@dataclass(frozen=True, slots=True)
class SourceAt:
    """A source of a query. ``now`` is that of the scrape."""

    labels: tuple[str, ...]
    status: SourceStatus
    now: int

    @property
    def behind_clock(self) -> int | None:
        """Return how many milliseconds its watermark is behind the clock; ``None`` if it is no moment."""
        watermark = self.status.watermark
        return self.now - watermark if watermark is not None and is_moment(watermark) else None

    @property
    def age(self) -> int:
        """Return how many milliseconds ago it reported."""
        return max(0, self.now - self.status.at)


@dataclass(frozen=True, slots=True)
class SplitAt:
    """A split of a source's report."""

    labels: tuple[str, ...]
    view: SplitView
    elapsed: Totals

    def spent(self, status: Status) -> int:
        """Return for how long it had a status, in milliseconds."""
        return self.elapsed.get((self.view.split, status), 0)


@dataclass(frozen=True, slots=True)
class SnapshotAt:
    """A snapshot that a source reads."""

    labels: tuple[str, ...]
    progress: SnapshotProgress


class Subjects:
    """All of them, by what they are."""

    def __init__(self, queries: Iterable[FollowedQuery], now: int) -> None:
        self.queries: list[QueryAt] = []
        self.sources: list[SourceAt] = []
        self.splits: list[SplitAt] = []
        self.snapshots: list[SnapshotAt] = []
        for query in queries:
            self.queries.append(QueryAt((query.label,), query.late_rows))
            for followed in query.sources.values():
                self._add(query.label, followed, now)

    def _add(self, query: str, followed: Followed, now: int) -> None:
        status = followed.status
        labels = (query, status.source_name, "" if status.group is None else status.group.name)
        self.sources.append(SourceAt(labels, status, now))
        self.snapshots += [SnapshotAt((*labels, each.log), each) for each in status.snapshots]
        self.splits += [
            SplitAt((*labels, view.split.log, str(view.split.number)), view, followed.elapsed) for view in status.splits
        ]
