"""StatusCollector: the status of the followed queries as Prometheus metrics, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from watermark_source.clock import Clock
from watermark_source.installation import lacking
from watermark_source.monitor.followed_queries import FollowedQuery
from watermark_source.monitor.metrics import METRICS, MetricKind, MetricRow, Scraped
from watermark_source.planning.range_report import BOUNDS_MS, LateRows

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise lacking("StatusListener with a registry", missing.name, "monitor") from None

_PREFIX = "watermark_source_"
_Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
_FAMILIES: dict[MetricKind, type[_Family]] = {
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
_BOUNDS = (*(f"{bound / 1_000}" for bound in BOUNDS_MS), "+Inf")


class StatusCollector(Collector):
    """Yields the metrics of ``metrics.METRICS`` for all queries that ``queries`` returns."""

    def __init__(
        self, queries: Callable[[], Iterable[FollowedQuery]], *, clock: Callable[[], int] | None = None
    ) -> None:
        self._queries = queries
        self._now = Clock().now if clock is None else clock

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families, including those without samples."""
        now = self._now()
        queries = [Scraped(query, query.clocks(now)) for query in self._queries()]
        for row in METRICS:
            yield _family(row, queries)


def _family(row: MetricRow, queries: Iterable[Scraped]) -> Metric:
    family: _Family = _FAMILIES[row.kind](_PREFIX + row.name, row.meaning, labels=row.labels)
    for labels, value in chain.from_iterable(map(row.samples, queries)):
        # An unknown value has no sample.
        if value is not None:
            family.add_metric(labels, *_values(value))
    return family


def _values(value: float | LateRows) -> tuple[Any, ...]:
    if isinstance(value, LateRows):
        return list(zip(_BOUNDS, value.up_to, strict=True)), value.total / 1_000
    return (value,)
