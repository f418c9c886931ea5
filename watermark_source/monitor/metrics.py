"""METRICS: the table of all metrics, by what they are of: a query, an operator, a source, a split and others.

A metric's name ends in its unit: of times, which the status has in milliseconds, the metric has seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from watermark_source.monitor.followed_queries import FollowedQuery
from watermark_source.monitor.freshness import Spread
from watermark_source.monitor.three_clocks import QueryClocks, behind_clock
from watermark_source.planning.group import Peer
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_texts import subject
from watermark_source.status_model.source_status import SourceStatus, SplitView, Status, WriterView

_Whole = TypeVar("_Whole")
_Part = TypeVar("_Part")
_Labels = tuple[str, ...]


class MetricKind(Enum):
    """Type of a metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """A value of a metric with its labels; ``None`` if it is unknown. A histogram's value is ``LateRows``."""

    labels: _Labels
    value: float | LateRows | None


class Scraped(NamedTuple):
    """A query at a scrape."""

    query: FollowedQuery
    clocks: QueryClocks


class MetricRow(NamedTuple):
    """One metric."""

    kind: MetricKind
    name: str
    """The name without the prefix ``watermark_source_``, and without a counter's suffix ``_total``."""
    meaning: str
    labels: _Labels
    samples: Callable[[Scraped], Iterable[Sample]]


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1_000


def _moment(millis: int | None) -> float | None:
    return _seconds(millis) if is_moment(millis) else None


_UNITS: dict[str, Callable[[Any], float | None]] = {"_timestamp_seconds": _moment, "_seconds": _seconds}
"""By the end of a metric's name: how its value follows from milliseconds."""
_UNIT = re.compile(f"(?:{'|'.join(_UNITS)})$")


class _Subjects(NamedTuple, Generic[_Whole]):
    """What metrics are of: the names of their labels, and all that a query has of it, each with its labels."""

    labels: _Labels
    of: Callable[[Scraped], Iterator[tuple[_Labels, _Whole]]]

    def parts(self, *labels: str, of: Callable[[_Whole], Iterable[tuple[_Labels, _Part]]]) -> _Subjects[_Part]:
        """Return what each has parts of, with further labels."""

        def found(scraped: Scraped) -> Iterator[tuple[_Labels, _Part]]:
            for known, whole in self.of(scraped):
                for further, part in of(whole):
                    yield (*known, *further), part

        return _Subjects((*self.labels, *labels), found)

    def part(self, of: Callable[[_Whole], _Part | None]) -> _Subjects[_Part]:
        """Return the one part that each may have."""
        return self.parts(of=lambda whole: [] if (part := of(whole)) is None else [((), part)])

    def gauge(self, name: str, meaning: str, value: Callable[[_Whole], float | None] | None = None) -> MetricRow:
        """Return a gauge; ``value``: by default the field that its name begins with."""
        return self._row(MetricKind.GAUGE, name, meaning, value or attrgetter(_UNIT.sub("", name)))

    def counter(self, name: str, meaning: str, value: Callable[[_Whole], float | None]) -> MetricRow:
        return self._row(MetricKind.COUNTER, name, meaning, value)

    def histogram(self, name: str, meaning: str, value: Callable[[_Whole], LateRows]) -> MetricRow:
        return MetricRow(
            MetricKind.HISTOGRAM, name, meaning, self.labels, lambda of: (Sample(n, value(x)) for n, x in self.of(of))
        )

    def _row(self, kind: MetricKind, name: str, meaning: str, value: Callable[[_Whole], float | None]) -> MetricRow:
        in_unit = next((convert for end, convert in _UNITS.items() if name.endswith(end)), lambda known: known)
        return MetricRow(
            kind, name, meaning, self.labels, lambda of: (Sample(n, in_unit(value(x))) for n, x in self.of(of))
        )


class _At(NamedTuple, Generic[_Whole]):
    """Something at the time of the scrape, milliseconds since 1970-01-01 UTC."""

    now: int
    of: _Whole

    def age(self, since: int | None) -> int | None:
        """Return for how many milliseconds something has been; a clock may have been set back."""
        return None if since is None else max(0, self.now - since)


def _sources(query: Scraped) -> Iterator[tuple[_Labels, _At[SourceStatus]]]:
    for source in query.query.sources.values():
        group = "" if source.group is None else source.group.name
        yield (source.source_name, group), _At(query.clocks.at, source)


def _by_status(value: Callable[[Status], float]) -> Iterator[tuple[_Labels, float]]:
    return (((status.name.lower(),), value(status)) for status in Status)


def _writers(source: _At[SourceStatus]) -> Iterator[tuple[_Labels, _At[WriterView]]]:
    return (((writer.name,), _At(source.now, writer)) for writer in source.of.writers)


def _splits(source: SourceStatus) -> Iterator[tuple[_Labels, SplitView]]:
    return (((view.split.log, str(view.split.number)), view) for view in source.splits)


def _quantiles(spread: Spread) -> Iterator[tuple[_Labels, int]]:
    return iter([(("0.5",), spread.p50), (("0.99",), spread.p99)])


def _most_silent(peers: Iterable[Peer]) -> Iterator[tuple[_Labels, Peer]]:
    """Yield the sources of a group, the most silent first; of several with one name that one."""
    return (((name,), peer) for name, peer in {peer.name: peer for peer in reversed([*peers])}.items())


_QUERY = _Subjects(("query",), lambda scraped: iter([((scraped.query.label,), scraped)]))
_CLOCKS = _QUERY.part(lambda query: query.clocks)
_RECENT = _QUERY.part(lambda query: query.query.recent.freshness(query.clocks.at))
_RECENT_LAG = _RECENT.part(lambda recent: recent.event_time_lag).parts("quantile", of=_quantiles)
_RECENT_LATENCY = _RECENT.part(lambda recent: recent.commit_latency).parts("quantile", of=_quantiles)
_OPERATOR = _CLOCKS.parts(
    "operator",
    "name",
    of=lambda clocks: ((("" if o.operator is None else str(o.operator), o.name), o) for o in clocks.operators),
)
_SOURCE_AT = _QUERY.parts("source", "group", of=_sources)
_SOURCE = _SOURCE_AT.part(lambda source: source.of)
_SOURCE_BY_STATUS = _SOURCE.parts("status", of=lambda source: _by_status(lambda status: source.counts.get(status, 0)))
_BOUND = _SOURCE.part(lambda source: source.bound)
_SNAPSHOT = _SOURCE.parts("table", of=lambda source: (((snapshot.log,), snapshot) for snapshot in source.snapshots))
_WRITER = _SOURCE_AT.parts("writer", of=_writers)
_GROUP = _SOURCE.part(lambda source: source.group)
_HOLDER = _SOURCE.parts("holder", of=lambda source: (((subject(hold),), 1.0) for hold in source.holds))
_GROUP_HOLDER = _GROUP.parts("holder", of=lambda group: [] if group.holder is None else [((group.holder,), 1.0)])
_PEER = _GROUP.parts("peer", of=lambda group: _most_silent(group.peers))
_SPLIT = _SOURCE.parts("topic", "partition", of=_splits)
_SPLIT_BY_STATUS = _SPLIT.parts("status", of=lambda split: _by_status(lambda status: float(split.status is status)))
_TIMES = _SPLIT.part(lambda split: split.times)

METRICS = (
    _CLOCKS.gauge("input_watermark_timestamp_seconds", "Lowest watermark of the query's sources."),
    _CLOCKS.gauge("output_watermark_timestamp_seconds", "Watermark of the rows that the query writes."),
    _CLOCKS.gauge("input_event_time_lag_seconds", "How far the input watermark is behind the clock."),
    _CLOCKS.gauge("event_time_lag_seconds", "How far the output watermark is behind the clock."),
    _CLOCKS.gauge(
        "event_time_latency_seconds", "How far the output watermark is behind the input watermark: what the query adds."
    ),
    _CLOCKS.gauge(
        "processing_time_watermark_timestamp_seconds",
        "When the oldest row that is not in a committed batch arrived at the earliest; without rows up to 10 s old.",
    ),
    _CLOCKS.gauge("processing_time_latency_seconds", "How far the processing-time watermark is behind the clock."),
    _RECENT_LAG.gauge(
        "recent_event_time_lag_seconds",
        "Event-time lag of the batches of the last five minutes, when each was committed.",
        lambda of: of,
    ),
    _RECENT_LATENCY.gauge(
        "recent_commit_latency_seconds",
        "Time from the arrival of the oldest row to the commit, of the batches of the last five minutes.",
        lambda of: of,
    ),
    _CLOCKS.gauge("state_rows", "Rows in the state of the query's operators, without deduplication."),
    _QUERY.counter(
        "late_records",
        "Late rows that Spark's operators dropped (numRowsDroppedByWatermark); a window aggregation counts groups.",
        lambda of: of.query.late_rows,
    ),
    _OPERATOR.gauge(
        "operator_watermark_timestamp_seconds",
        "Watermark by which the operator emitted rows and removed state.",
        lambda of: of.eviction,
    ),
    _OPERATOR.gauge(
        "operator_late_watermark_timestamp_seconds",
        "Watermark at or before which the operator dropped rows as late.",
        lambda of: of.late,
    ),
    _OPERATOR.gauge(
        "operator_output_watermark_timestamp_seconds",
        "Watermark of the rows that the operator emits later.",
        lambda of: of.output,
    ),
    _SOURCE.gauge("watermark_timestamp_seconds", "Combined watermark of the source."),
    _HOLDER.gauge("watermark_holder", "1 for what holds the watermark of the source, or its group's limit.", float),
    _SOURCE_AT.gauge(
        "watermark_lag_seconds",
        "How far the combined watermark is behind the clock.",
        lambda at: behind_clock(at.now, at.of.watermark),
    ),
    _SOURCE_AT.gauge(
        "status_age_seconds", "Age of the report that the other metrics are from.", lambda at: at.age(at.of.at)
    ),
    _SOURCE.counter(
        "watermark_changes",
        "How often the combined watermark advanced since the query was started.",
        lambda of: of.changes.watermark,
    ),
    _SOURCE.counter(
        "status_changes",
        "How often the status of a partition changed since the query was started.",
        lambda of: of.changes.status,
    ),
    _SOURCE_BY_STATUS.gauge("partitions", "Partitions of the source by status.", float),
    _SOURCE.gauge(
        "lag_records",
        "Unread records of all partitions. Where positions do not count records: 0 when all is read, else unknown.",
        lambda of: of.lag,
    ),
    _SOURCE.counter("records", "Records read since the query was started.", lambda of: of.rows.read),
    _SOURCE.counter(
        "future_records",
        "Records too far in the future to move the watermark (maxFutureSkew).",
        lambda of: of.rows.future,
    ),
    _SOURCE.counter("undated_records", "Records without an event time.", lambda of: of.rows.undated),
    _SOURCE.counter(
        "malformed_records",
        "Values and keys that do not have the form that the options declare.",
        lambda of: of.rows.malformed,
    ),
    _SOURCE.histogram(
        "late_lag_seconds",
        "How far late records were behind the watermark with which their batch began.",
        lambda of: of.rows.late,
    ),
    _SOURCE.gauge(
        "late_ratio", "Share of the records that were late since the query was started.", lambda of: of.late_share
    ),
    _BOUND.gauge("out_of_orderness_bound_seconds", "Bound on out-of-orderness, if it is learned.", lambda of: of.bound),
    _BOUND.gauge(
        "out_of_orderness_bound_since_timestamp_seconds", "When the bound came into force.", lambda of: of.since
    ),
    _SNAPSHOT.gauge("snapshot_rows", "Rows read of the table's snapshot.", lambda of: of.rows),
    _SNAPSHOT.gauge("snapshot_expected_rows", "Estimated rows of the table's snapshot.", lambda of: of.expected),
    _WRITER.gauge(
        "announced_watermark_timestamp_seconds", "Watermark that the writer announced last.", lambda at: at.of.announced
    ),
    _WRITER.gauge("announcement_age_seconds", "Time since the writer announced.", lambda at: at.age(at.of.since)),
    _GROUP.gauge(
        "alignment_max_allowed_timestamp_seconds",
        "Highest watermark a member of the group may reach.",
        lambda of: of.limit,
    ),
    _GROUP.gauge("alignment_minimum_timestamp_seconds", "Lowest watermark of the group.", lambda of: of.minimum),
    _GROUP.gauge(
        "alignment_max_drift_seconds",
        "Max drift that is in force in the group, the lowest of its members.",
        lambda of: of.max_drift,
    ),
    _GROUP_HOLDER.gauge(
        "alignment_holder", "1 for the partition, or other source, with the lowest watermark of the group.", float
    ),
    _GROUP.part(lambda group: group.own_silence).gauge(
        "alignment_own_silence_seconds",
        "Length of the last time in which this source itself reported nothing to its alignment group, for ten minutes.",
        lambda of: of.lasted,
    ),
    _PEER.gauge(
        "alignment_peer_silence_seconds",
        "Time since another source of the alignment group reported; it does so once a second.",
        lambda of: of.silent,
    ),
    _SPLIT.gauge("partition_watermark_timestamp_seconds", "Watermark of the partition.", lambda of: of.watermark),
    _SPLIT.gauge("partition_lag_records", "Unread records of the partition.", lambda of: of.lag),
    _SPLIT.gauge(
        "partition_lookahead_records",
        "Records after the batch whose event times were read ahead.",
        lambda of: of.looked_ahead,
    ),
    _SPLIT.gauge(
        "alignment_drift_seconds",
        "Watermark of the partition minus the minimum of its group or source.",
        lambda of: of.drift,
    ),
    _SPLIT.counter("partition_late_records", "Late records of the partition.", lambda of: of.late_rows),
    _SPLIT_BY_STATUS.gauge("partition_status", "1 for the status the partition has, 0 for the others.", float),
    _TIMES.counter("partition_active_seconds", "Time the partition has been active.", lambda of: of.active),
    _TIMES.counter("partition_idle_seconds", "Time the partition has been idle.", lambda of: of.idle),
    _TIMES.counter("partition_paused_seconds", "Time the partition has been paused.", lambda of: of.paused),
    _TIMES.counter(
        "partition_status_changes",
        "How often the status of the partition changed since the query was started.",
        lambda of: of.changes,
    ),
)
"""The metrics, in the order of the scrape."""
