"""The metrics: a table with the kind, the name, the meaning, the labels and the values of each.

Per split (of those in the report), per source, per snapshot that is read, and per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from watermark_source.monitor.followed_queries import Followed, FollowedQuery, Totals
from watermark_source.monitor.source_status import SnapshotProgress, SourceStatus, SplitView, Status
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.watermark import is_moment

# What metrics are about: the queries, their sources, the splits and the snapshots of those, at one scrape.


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


_QUERY = ("query",)
_SOURCE = (*_QUERY, "source", "group")
_SPLIT = (*_SOURCE, "topic", "partition")
_SNAPSHOT = (*_SOURCE, "table")


class Kind(Enum):
    """What a metric is to Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """A value of a metric; ``None`` is not known. That of a histogram are late rows."""

    labels: tuple[str, ...]
    value: float | LateRows | None


_Samples = Callable[[Subjects], Iterable[Sample]]


class MetricRow(NamedTuple):
    """A row of the table."""

    kind: Kind
    name: str
    """Without ``watermark_source_``, and of a counter without ``_total``."""
    meaning: str
    labels: tuple[str, ...]
    samples: _Samples


def _of_query(value: Callable[[QueryAt], float]) -> _Samples:
    return lambda subjects: (Sample(each.labels, value(each)) for each in subjects.queries)


def _of_source(value: Callable[[SourceAt], float | LateRows | None]) -> _Samples:
    return lambda subjects: (Sample(each.labels, value(each)) for each in subjects.sources)


def _of_split(value: Callable[[SplitAt], float | None]) -> _Samples:
    return lambda subjects: (Sample(each.labels, value(each)) for each in subjects.splits)


def _of_snapshot(value: Callable[[SnapshotAt], float | None]) -> _Samples:
    return lambda subjects: (Sample(each.labels, value(each)) for each in subjects.snapshots)


def _of_source_by_status(value: Callable[[SourceAt, Status], float]) -> _Samples:
    return lambda subjects: (
        Sample((*each.labels, status.name.lower()), value(each, status))
        for each in subjects.sources
        for status in Status
    )


def _of_split_by_status(value: Callable[[SplitAt, Status], float]) -> _Samples:
    return lambda subjects: (
        Sample((*each.labels, status.name.lower()), value(each, status))
        for each in subjects.splits
        for status in Status
    )


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1_000


def _moment(millis: int | None) -> float | None:
    return _seconds(millis) if is_moment(millis) else None


def _spent(status: Status) -> MetricRow:
    return MetricRow(
        Kind.COUNTER,
        f"partition_{status.name.lower()}_seconds",
        f"Time the partition has been {status.name.lower()}.",
        _SPLIT,
        _of_split(lambda split: _seconds(split.spent(status))),
    )


METRICS = (
    MetricRow(
        Kind.GAUGE,
        "partition_watermark_timestamp_seconds",
        "Watermark of the partition.",
        _SPLIT,
        _of_split(lambda split: _moment(split.view.watermark)),
    ),
    MetricRow(
        Kind.GAUGE,
        "partition_lag_records",
        "Records still to be read in the partition.",
        _SPLIT,
        _of_split(lambda split: split.view.lag),
    ),
    MetricRow(
        Kind.GAUGE,
        "partition_lookahead_records",
        "Records behind the batch whose event times were looked at.",
        _SPLIT,
        _of_split(lambda split: split.view.looked_ahead),
    ),
    MetricRow(
        Kind.GAUGE,
        "partition_status",
        "1 for the status the partition has, 0 for the others.",
        (*_SPLIT, "status"),
        _of_split_by_status(lambda split, status: float(split.view.status is status)),
    ),
    MetricRow(
        Kind.GAUGE,
        "alignment_drift_seconds",
        "Watermark of the partition less the minimum of its group or source.",
        _SPLIT,
        _of_split(lambda split: _seconds(split.view.drift)),
    ),
    *map(_spent, (Status.ACTIVE, Status.IDLE, Status.PAUSED)),
    MetricRow(
        Kind.GAUGE,
        "watermark_timestamp_seconds",
        "Combined watermark of the source.",
        _SOURCE,
        _of_source(lambda source: _moment(source.status.watermark)),
    ),
    MetricRow(
        Kind.GAUGE,
        "watermark_lag_seconds",
        "How far the combined watermark is behind the clock.",
        _SOURCE,
        _of_source(lambda source: _seconds(source.behind_clock)),
    ),
    MetricRow(
        Kind.GAUGE,
        "alignment_max_allowed_timestamp_seconds",
        "Highest watermark a member of the group may reach.",
        _SOURCE,
        _of_source(lambda source: None if (group := source.status.group) is None else _moment(group.limit)),
    ),
    MetricRow(
        Kind.GAUGE,
        "partitions",
        "Partitions of the source by status.",
        (*_SOURCE, "status"),
        _of_source_by_status(lambda source, status: source.status.counts.get(status, 0)),
    ),
    MetricRow(
        Kind.GAUGE,
        "lag_records",
        "Records still to be read in all partitions of the source.",
        _SOURCE,
        _of_source(lambda source: source.status.lag),
    ),
    MetricRow(
        Kind.COUNTER,
        "records",
        "Records read since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.read),
    ),
    MetricRow(
        Kind.COUNTER,
        "future_records",
        "Records too far in the future to move the watermark.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.future),
    ),
    MetricRow(
        Kind.COUNTER,
        "undated_records",
        "Records in which no event time was found.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.undated),
    ),
    MetricRow(
        Kind.HISTOGRAM,
        "late_lag_seconds",
        "How far late records were behind the watermark.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.late),
    ),
    MetricRow(
        Kind.GAUGE,
        "late_ratio",
        "Share of the records that were late since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.late_share),
    ),
    MetricRow(
        Kind.GAUGE,
        "out_of_orderness_bound_seconds",
        "What is allowed for disorder, where that is learned.",
        _SOURCE,
        _of_source(lambda source: None if (bound := source.status.bound) is None else _seconds(bound.bound)),
    ),
    MetricRow(
        Kind.GAUGE,
        "out_of_orderness_bound_since_timestamp_seconds",
        "Since when.",
        _SOURCE,
        _of_source(lambda source: None if (bound := source.status.bound) is None else _seconds(bound.since)),
    ),
    MetricRow(
        Kind.COUNTER,
        "partition_late_records",
        "Late records of the partition.",
        _SPLIT,
        _of_split(lambda split: split.view.late_rows),
    ),
    MetricRow(
        Kind.GAUGE,
        "status_age_seconds",
        "Age of the report the other metrics come from.",
        _SOURCE,
        _of_source(lambda source: _seconds(source.age)),
    ),
    MetricRow(
        Kind.GAUGE,
        "snapshot_rows",
        "Rows read of the table's snapshot.",
        _SNAPSHOT,
        _of_snapshot(lambda snapshot: snapshot.progress.rows),
    ),
    MetricRow(
        Kind.GAUGE,
        "snapshot_expected_rows",
        "About so many rows the table's snapshot has.",
        _SNAPSHOT,
        _of_snapshot(lambda snapshot: snapshot.progress.expected),
    ),
    MetricRow(
        Kind.COUNTER,
        "late_records",
        "What Spark's operators dropped as late: rows; groups, for window aggregations.",
        _QUERY,
        _of_query(lambda query: query.late_rows),
    ),
)
"""In the order in which Prometheus gets them."""
