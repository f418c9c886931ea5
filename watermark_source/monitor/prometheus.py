"""Prometheus view: the status of the followed queries as metrics, made anew at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from watermark_source.clock import Clock
from watermark_source.monitor.followed import Followed, FollowedQuery
from watermark_source.monitor.status import Status
from watermark_source.planning.late_rows import BOUNDS_MS

_PREFIX = "watermark_source_"
_SOURCE = ("query", "source", "group")
_SPLIT = (*_SOURCE, "topic", "partition")
_SNAPSHOT = (*_SOURCE, "table")
_TIMED = (Status.ACTIVE, Status.IDLE, Status.PAUSED)


class StatusCollector(Collector):
    """Yields the metrics of all queries ``queries`` returns; what is not known has no sample.

    Per split (of those in the report): ``partition_watermark_timestamp_seconds``, ``partition_lag_records``,
    ``partition_lookahead_records``, ``partition_status``, ``alignment_drift_seconds``,
    ``partition_{active,idle,paused}_seconds_total``, ``partition_late_records_total``. Per source:
    ``watermark_timestamp_seconds``, ``watermark_lag_seconds``, ``alignment_max_allowed_timestamp_seconds``,
    ``partitions``, ``lag_records``, ``records_total``, ``future_records_total``, ``undated_records_total``,
    ``late_lag_seconds`` (a histogram), ``late_ratio``, ``status_age_seconds``, and where the bound is learned
    ``out_of_orderness_bound_seconds``, ``out_of_orderness_bound_since_timestamp_seconds``.
    Per snapshot that is read: ``snapshot_rows``, ``snapshot_expected_rows``. Per query:
    ``late_records_total``.
    """

    def __init__(
        self, queries: Callable[[], Iterable[FollowedQuery]], *, clock: Callable[[], int] | None = None
    ) -> None:
        self._queries = queries
        self._now = Clock().now if clock is None else clock

    def collect(self) -> Iterator[Metric]:
        """Return all metric families, also those without samples."""
        families = _Families()
        now = self._now()
        for query in self._queries():
            families.add_query(query, now)
        yield from families.all


class _Families:
    def __init__(self) -> None:
        self.all: list[Metric] = []
        self._split_watermark = self._gauge(
            "partition_watermark_timestamp_seconds", "Watermark of the partition.", _SPLIT
        )
        self._split_lag = self._gauge("partition_lag_records", "Records still to be read in the partition.", _SPLIT)
        self._looked_ahead = self._gauge(
            "partition_lookahead_records", "Records behind the batch whose event times were looked at.", _SPLIT
        )
        self._split_status = self._gauge(
            "partition_status", "1 for the status the partition has, 0 for the others.", (*_SPLIT, "status")
        )
        self._drift = self._gauge(
            "alignment_drift_seconds", "Watermark of the partition less the minimum of its group or source.", _SPLIT
        )
        self._elapsed = {
            status: self._counter(
                f"partition_{status.name.lower()}_seconds",
                f"Time the partition has been {status.name.lower()}.",
                _SPLIT,
            )
            for status in _TIMED
        }
        self._watermark = self._gauge("watermark_timestamp_seconds", "Combined watermark of the source.", _SOURCE)
        self._watermark_lag = self._gauge(
            "watermark_lag_seconds", "How far the combined watermark is behind the clock.", _SOURCE
        )
        self._limit = self._gauge(
            "alignment_max_allowed_timestamp_seconds", "Highest watermark a member of the group may reach.", _SOURCE
        )
        self._partitions = self._gauge("partitions", "Partitions of the source by status.", (*_SOURCE, "status"))
        self._lag = self._gauge("lag_records", "Records still to be read in all partitions of the source.", _SOURCE)
        self._rows = self._counter("records", "Records read since the query was started.", _SOURCE)
        self._future = self._counter("future_records", "Records too far in the future to move the watermark.", _SOURCE)
        self._undated = self._counter("undated_records", "Records in which no event time was found.", _SOURCE)
        self._lateness = HistogramMetricFamily(
            f"{_PREFIX}late_lag_seconds", "How far late records were behind the watermark.", labels=_SOURCE
        )
        self.all.append(self._lateness)
        self._late_share = self._gauge(
            "late_ratio", "Share of the records that were late since the query was started.", _SOURCE
        )
        self._bound = self._gauge(
            "out_of_orderness_bound_seconds", "What is allowed for disorder, where that is learned.", _SOURCE
        )
        self._bound_since = self._gauge("out_of_orderness_bound_since_timestamp_seconds", "Since when.", _SOURCE)
        self._late_rows = self._counter("partition_late_records", "Late records of the partition.", _SPLIT)
        self._age = self._gauge("status_age_seconds", "Age of the report the other metrics come from.", _SOURCE)
        self._snapshot_rows = self._gauge("snapshot_rows", "Rows read of the table's snapshot.", _SNAPSHOT)
        self._snapshot_expected = self._gauge(
            "snapshot_expected_rows", "About so many rows the table's snapshot has.", _SNAPSHOT
        )
        self._late = self._counter(
            "late_records", "What Spark's operators dropped as late: rows; groups, for window aggregations.", ("query",)
        )

    def add_query(self, query: FollowedQuery, now: int) -> None:
        self._late.add_metric([query.label], query.late_rows)
        for followed in query.sources.values():
            self._add_source(query.label, followed, now)

    def _add_source(self, query: str, followed: Followed, now: int) -> None:
        status = followed.status
        group = status.group
        source = [query, status.source_name, "" if group is None else group.name]
        if status.watermark is not None:
            self._watermark.add_metric(source, _seconds(status.watermark))
            self._watermark_lag.add_metric(source, _seconds(now - status.watermark))
        if group is not None and group.limit is not None:
            self._limit.add_metric(source, _seconds(group.limit))
        for kind in Status:
            self._partitions.add_metric([*source, kind.name.lower()], status.counts.get(kind, 0))
        if status.lag is not None:
            self._lag.add_metric(source, status.lag)
        self._rows.add_metric(source, status.rows)
        self._future.add_metric(source, status.future_rows)
        self._undated.add_metric(source, status.undated_rows)
        late = status.late
        bounds = [*(f"{_seconds(bound)}" for bound in BOUNDS_MS), "+Inf"]
        self._lateness.add_metric(source, list(zip(bounds, late.up_to, strict=True)), _seconds(late.total))
        if status.late_share is not None:
            self._late_share.add_metric(source, status.late_share)
        if status.bound is not None:
            self._bound.add_metric(source, _seconds(status.bound.bound))
            if status.bound.since is not None:
                self._bound_since.add_metric(source, _seconds(status.bound.since))
        self._age.add_metric(source, _seconds(max(0, now - status.at)))
        for each in status.snapshots:
            self._snapshot_rows.add_metric([*source, each.log], each.rows)
            if each.expected is not None:
                self._snapshot_expected.add_metric([*source, each.log], each.expected)
        self._add_splits(source, followed)

    def _add_splits(self, source: list[str], followed: Followed) -> None:
        for view in followed.status.splits:
            split = [*source, view.split.log, str(view.split.number)]
            if view.watermark is not None:
                self._split_watermark.add_metric(split, _seconds(view.watermark))
            if view.lag is not None:
                self._split_lag.add_metric(split, view.lag)
            if view.looked_ahead is not None:
                self._looked_ahead.add_metric(split, view.looked_ahead)
            self._late_rows.add_metric(split, view.late_rows)
            if view.drift is not None:
                self._drift.add_metric(split, _seconds(view.drift))
            for kind in Status:
                self._split_status.add_metric([*split, kind.name.lower()], float(view.status is kind))
            for kind, counter in self._elapsed.items():
                counter.add_metric(split, _seconds(followed.elapsed.get((view.split, kind), 0)))

    def _gauge(self, name: str, doc: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(_PREFIX + name, doc, labels=labels)
        self.all.append(family)
        return family

    def _counter(self, name: str, doc: str, labels: tuple[str, ...]) -> CounterMetricFamily:
        family = CounterMetricFamily(_PREFIX + name, doc, labels=labels)
        self.all.append(family)
        return family


def _seconds(millis: int) -> float:
    return millis / 1_000
