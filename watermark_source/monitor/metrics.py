"""METRICS: the table of all metrics, with kind, name, meaning, labels and values.

A metric has samples for each split in the report, each source, each snapshot that is being read, or each query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from watermark_source.monitor.followed_queries import FollowedQuery
from watermark_source.monitor.three_clocks import QueryClocks
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.watermark import is_moment
from watermark_source.spark.operator_watermarks import OperatorWatermark
from watermark_source.status_model.source_status import SnapshotProgress, SourceStatus, SplitView, Status, WriterView

# The subjects of metrics at one scrape: queries, their sources, and the sources' splits and snapshots.


@dataclass(frozen=True, slots=True)
class QuerySubject:
    """A query."""

    labels: tuple[str, ...]
    late_rows: int
    clocks: QueryClocks


@dataclass(frozen=True, slots=True)
class OperatorSubject:
    """A stateful operator of a query."""

    labels: tuple[str, ...]
    watermark: OperatorWatermark


@dataclass(frozen=True, slots=True)
class SourceSubject:
    """A source of a query. ``now`` is the time of the scrape, milliseconds since 1970-01-01 UTC."""

    labels: tuple[str, ...]
    status: SourceStatus
    now: int

    @property
    def behind_clock(self) -> int | None:
        """Milliseconds from the watermark to the clock; ``None`` if there is none, or it is the end of time."""
        watermark = self.status.watermark
        return self.now - watermark if watermark is not None and is_moment(watermark) else None

    @property
    def age(self) -> int:
        """Milliseconds since the report."""
        return max(0, self.now - self.status.at)


@dataclass(frozen=True, slots=True)
class SplitSubject:
    """A split of a source's report."""

    labels: tuple[str, ...]
    view: SplitView

    def spent(self, status: Status) -> int | None:
        """Return the milliseconds that the split has been active, idle or paused."""
        return None if self.view.times is None else getattr(self.view.times, status.name.lower())


@dataclass(frozen=True, slots=True)
class SnapshotSubject:
    """A snapshot that a source reads."""

    labels: tuple[str, ...]
    progress: SnapshotProgress


@dataclass(frozen=True, slots=True)
class WriterSubject:
    """A writer that announces watermarks, at a scrape."""

    labels: tuple[str, ...]
    view: WriterView
    now: int

    @property
    def age(self) -> int | None:
        """Milliseconds since it announced last, by the timestamp of its record."""
        return None if self.view.since is None else max(0, self.now - self.view.since)


class PeerSubject(NamedTuple):
    """Another source of the alignment group; of several with one name the most silent."""

    labels: tuple[str, ...]
    silent: int


class Subjects:
    """All subjects of a scrape."""

    def __init__(self, queries: Iterable[FollowedQuery], now: int) -> None:
        self.queries: list[QuerySubject] = []
        self.operators: list[OperatorSubject] = []
        self.sources: list[SourceSubject] = []
        self.splits: list[SplitSubject] = []
        self.snapshots: list[SnapshotSubject] = []
        self.writers: list[WriterSubject] = []
        self.peers: list[PeerSubject] = []
        for query in queries:
            clocks = query.clocks(now)
            self.queries.append(QuerySubject((query.label,), query.late_rows, clocks))
            self.operators += [
                OperatorSubject((query.label, "" if each.operator is None else str(each.operator), each.name), each)
                for each in clocks.operators
            ]
            for status in query.sources.values():
                self._add(query.label, status, now)

    def _add(self, query: str, status: SourceStatus, now: int) -> None:
        labels = (query, status.source_name, "" if status.group is None else status.group.name)
        self.sources.append(SourceSubject(labels, status, now))
        self.snapshots += [SnapshotSubject((*labels, snapshot.log), snapshot) for snapshot in status.snapshots]
        self.writers += [WriterSubject((*labels, view.name), view, now) for view in status.writers]
        peers = () if status.group is None else status.group.peers
        self.peers += [
            PeerSubject((*labels, name), ms) for name, ms in {p.name: p.silent for p in reversed(peers)}.items()
        ]
        self.splits += [SplitSubject((*labels, view.split.log, str(view.split.number)), view) for view in status.splits]


_QUERY = ("query",)
_OPERATOR = (*_QUERY, "operator", "name")
_SOURCE = (*_QUERY, "source", "group")
_SPLIT = (*_SOURCE, "topic", "partition")
_SNAPSHOT = (*_SOURCE, "table")
_WRITER = (*_SOURCE, "writer")
_PEER = (*_SOURCE, "peer")


class MetricKind(Enum):
    """Type of a metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """A value of a metric with its labels; ``None`` if it is unknown. A histogram's value is ``LateRows``."""

    labels: tuple[str, ...]
    value: float | LateRows | None


_Samples = Callable[[Subjects], Iterable[Sample]]


class MetricRow(NamedTuple):
    """One metric."""

    kind: MetricKind
    name: str
    """The name without the prefix ``watermark_source_``, and without a counter's suffix ``_total``."""
    meaning: str
    labels: tuple[str, ...]
    samples: _Samples


def _of_operator(value: Callable[[OperatorWatermark], float | None]) -> _Samples:
    return lambda subjects: (Sample(each.labels, value(each.watermark)) for each in subjects.operators)


def _of_query(value: Callable[[QuerySubject], float | None]) -> _Samples:
    return lambda subjects: (Sample(query.labels, value(query)) for query in subjects.queries)


def _of_source(value: Callable[[SourceSubject], float | LateRows | None]) -> _Samples:
    return lambda subjects: (Sample(source.labels, value(source)) for source in subjects.sources)


def _of_split(value: Callable[[SplitSubject], float | None]) -> _Samples:
    return lambda subjects: (Sample(split.labels, value(split)) for split in subjects.splits)


def _of_snapshot(value: Callable[[SnapshotSubject], float | None]) -> _Samples:
    return lambda subjects: (Sample(snapshot.labels, value(snapshot)) for snapshot in subjects.snapshots)


def _of_writer(value: Callable[[WriterSubject], float | None]) -> _Samples:
    return lambda subjects: (Sample(writer.labels, value(writer)) for writer in subjects.writers)


def _of_peer(value: Callable[[PeerSubject], float | None]) -> _Samples:
    return lambda subjects: (Sample(peer.labels, value(peer)) for peer in subjects.peers)


def _of_source_by_status(value: Callable[[SourceSubject, Status], float]) -> _Samples:
    return lambda subjects: (
        Sample((*source.labels, status.name.lower()), value(source, status))
        for source in subjects.sources
        for status in Status
    )


def _of_split_by_status(value: Callable[[SplitSubject, Status], float]) -> _Samples:
    return lambda subjects: (
        Sample((*split.labels, status.name.lower()), value(split, status))
        for split in subjects.splits
        for status in Status
    )


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1_000


def _moment(millis: int | None) -> float | None:
    return _seconds(millis) if is_moment(millis) else None


def _spent(status: Status) -> MetricRow:
    return MetricRow(
        MetricKind.COUNTER,
        f"partition_{status.name.lower()}_seconds",
        f"Time the partition has been {status.name.lower()}.",
        _SPLIT,
        _of_split(lambda split: _seconds(split.spent(status))),
    )


METRICS = (
    MetricRow(
        MetricKind.GAUGE,
        "partition_watermark_timestamp_seconds",
        "Watermark of the partition.",
        _SPLIT,
        _of_split(lambda split: _moment(split.view.watermark)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "partition_lag_records",
        "Unread records of the partition.",
        _SPLIT,
        _of_split(lambda split: split.view.lag),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "partition_lookahead_records",
        "Records after the batch whose event times were read ahead.",
        _SPLIT,
        _of_split(lambda split: split.view.looked_ahead),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "partition_status",
        "1 for the status the partition has, 0 for the others.",
        (*_SPLIT, "status"),
        _of_split_by_status(lambda split, status: float(split.view.status is status)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_drift_seconds",
        "Watermark of the partition minus the minimum of its group or source.",
        _SPLIT,
        _of_split(lambda split: _seconds(split.view.drift)),
    ),
    *map(_spent, (Status.ACTIVE, Status.IDLE, Status.PAUSED)),
    MetricRow(
        MetricKind.GAUGE,
        "watermark_timestamp_seconds",
        "Combined watermark of the source.",
        _SOURCE,
        _of_source(lambda source: _moment(source.status.watermark)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "watermark_lag_seconds",
        "How far the combined watermark is behind the clock.",
        _SOURCE,
        _of_source(lambda source: _seconds(source.behind_clock)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_max_allowed_timestamp_seconds",
        "Highest watermark a member of the group may reach.",
        _SOURCE,
        _of_source(lambda source: None if (group := source.status.group) is None else _moment(group.limit)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_minimum_timestamp_seconds",
        "Lowest watermark of the group.",
        _SOURCE,
        _of_source(lambda source: None if (group := source.status.group) is None else _moment(group.minimum)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_max_drift_seconds",
        "Max drift that is in force in the group, the lowest of its members.",
        _SOURCE,
        _of_source(lambda source: None if (group := source.status.group) is None else _seconds(group.max_drift)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_holder",
        "1 for the partition, or other source, with the lowest watermark of the group.",
        (*_SOURCE, "holder"),
        lambda subjects: (
            Sample((*source.labels, group.holder), 1.0)
            for source in subjects.sources
            if (group := source.status.group) is not None and group.holder is not None
        ),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "watermark_changes",
        "How often the combined watermark advanced since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.changes.watermark),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "status_changes",
        "How often the status of a partition changed since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.changes.status),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "partition_status_changes",
        "How often the status of the partition changed since the query was started.",
        _SPLIT,
        _of_split(lambda split: None if (times := split.view.times) is None else times.changes),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "partitions",
        "Partitions of the source by status.",
        (*_SOURCE, "status"),
        _of_source_by_status(lambda source, status: source.status.counts.get(status, 0)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "lag_records",
        "Unread records of all partitions of the source.",
        _SOURCE,
        _of_source(lambda source: source.status.lag),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "records",
        "Records read since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.read),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "future_records",
        "Records too far in the future to move the watermark.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.future),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "undated_records",
        "Records without an event time.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.undated),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "malformed_records",
        "Values and keys that do not have the form that the options declare.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.malformed),
    ),
    MetricRow(
        MetricKind.HISTOGRAM,
        "late_lag_seconds",
        "How far late records were behind the watermark.",
        _SOURCE,
        _of_source(lambda source: source.status.rows.late),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "late_ratio",
        "Share of the records that were late since the query was started.",
        _SOURCE,
        _of_source(lambda source: source.status.late_share),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "out_of_orderness_bound_seconds",
        "Bound on out-of-orderness, if it is learned.",
        _SOURCE,
        _of_source(lambda source: None if (bound := source.status.bound) is None else _seconds(bound.bound)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "out_of_orderness_bound_since_timestamp_seconds",
        "When the bound came into force.",
        _SOURCE,
        _of_source(lambda source: None if (bound := source.status.bound) is None else _seconds(bound.since)),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "partition_late_records",
        "Late records of the partition.",
        _SPLIT,
        _of_split(lambda split: split.view.late_rows),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "status_age_seconds",
        "Age of the report that the other metrics are from.",
        _SOURCE,
        _of_source(lambda source: _seconds(source.age)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "snapshot_rows",
        "Rows read of the table's snapshot.",
        _SNAPSHOT,
        _of_snapshot(lambda snapshot: snapshot.progress.rows),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "snapshot_expected_rows",
        "Estimated rows of the table's snapshot.",
        _SNAPSHOT,
        _of_snapshot(lambda snapshot: snapshot.progress.expected),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "announced_watermark_timestamp_seconds",
        "Watermark that the writer announced last.",
        _WRITER,
        _of_writer(lambda writer: _moment(writer.view.announced)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "announcement_age_seconds",
        "Time since the writer announced.",
        _WRITER,
        _of_writer(lambda writer: _seconds(writer.age)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_own_silence_seconds",
        "Length of the last time in which this source itself reported nothing to its alignment group, for ten minutes.",
        _SOURCE,
        _of_source(
            lambda source: (
                None
                if (group := source.status.group) is None or group.own_silence is None
                else _seconds(group.own_silence.lasted)
            )
        ),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "alignment_peer_silence_seconds",
        "Time since another source of the alignment group reported; it does so once a second.",
        _PEER,
        _of_peer(lambda peer: _seconds(peer.silent)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "input_watermark_timestamp_seconds",
        "Lowest watermark of the query's sources.",
        _QUERY,
        _of_query(lambda query: _moment(query.clocks.input_watermark)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "output_watermark_timestamp_seconds",
        "Watermark of the rows that the query writes.",
        _QUERY,
        _of_query(lambda query: _moment(query.clocks.output_watermark)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "input_event_time_latency_seconds",
        "How far the input watermark is behind the clock.",
        _QUERY,
        _of_query(lambda query: _seconds(query.clocks.input_latency)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "event_time_latency_seconds",
        "How far the output watermark is behind the clock.",
        _QUERY,
        _of_query(lambda query: _seconds(query.clocks.event_time_latency)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "processing_time_watermark_timestamp_seconds",
        "When the oldest row that is not in a committed batch arrived at the earliest.",
        _QUERY,
        _of_query(lambda query: _seconds(query.clocks.processing_time_watermark)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "processing_time_latency_seconds",
        "How far the processing-time watermark is behind the clock.",
        _QUERY,
        _of_query(lambda query: _seconds(query.clocks.processing_time_latency)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "state_rows",
        "Rows in the state of the query's operators, without deduplication.",
        _QUERY,
        _of_query(lambda query: query.clocks.state_rows),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "operator_watermark_timestamp_seconds",
        "Watermark by which the operator emitted rows and removed state.",
        _OPERATOR,
        _of_operator(lambda operator: _moment(operator.eviction)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "operator_late_watermark_timestamp_seconds",
        "Watermark at or before which the operator dropped rows as late.",
        _OPERATOR,
        _of_operator(lambda operator: _moment(operator.late)),
    ),
    MetricRow(
        MetricKind.GAUGE,
        "operator_output_watermark_timestamp_seconds",
        "Watermark of the rows that the operator emits later.",
        _OPERATOR,
        _of_operator(lambda operator: _moment(operator.output)),
    ),
    MetricRow(
        MetricKind.COUNTER,
        "late_records",
        "Late rows that Spark's operators dropped; a window aggregation counts groups.",
        _QUERY,
        _of_query(lambda query: query.late_rows),
    ),
)
"""The metrics, in the order of the scrape."""
