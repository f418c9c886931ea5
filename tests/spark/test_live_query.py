"""The monitor on a running query: what a source reports is what the views and the listener show."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from rich.console import Console

from tests.unit.monitor.example_status import checkout
from watermark_source.monitor.listener import QuerySource, StatusListener
from watermark_source.monitor.terminal import LiveStatus
from watermark_source.status_model.status_json import parse_progress, status_to_json


def reporting_source(report: dict[str, Any]) -> type[DataSource]:
    """A source with three one-row batches that reports the given status."""

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:  # noqa: N802
            return {"n": 0}

        def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802
            return {"n": min(3, start["n"] + 1)}

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
            return report

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [InputPartition(end["n"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Reporting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "reporting"

        def schema(self) -> str:
            return "n int"

        def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    return Reporting


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_what_a_source_reports_is_what_every_view_shows(spark: SparkSession) -> None:
    spark.dataSource.register(reporting_source(status_to_json(checkout())))
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    out = io.StringIO()
    spark.streams.addListener(listener)
    ours = spark.readStream.format("reporting").load()
    foreign = spark.readStream.format("rate").load().selectExpr("cast(value as int) n")
    query = ours.union(foreign).writeStream.format("noop").queryName("sales").start()
    try:
        with LiveStatus(query, console=Console(file=out, width=120)):
            assert eventually(lambda: bool(listener.statuses()))
            assert eventually(lambda: "orders-10" in out.getvalue())
            # The views know the plan before Spark reports progress.
            assert eventually(lambda: parse_progress(query.lastProgress) == (checkout(),))
        progress = query.lastProgress
        assert progress is not None
        assert parse_progress(progress.json) == (checkout(),)
        assert listener.statuses() == {QuerySource("sales", "orders"): checkout()}
        labels = {"query": "sales", "source": "orders", "group": "checkout"}
        assert registry.get_sample_value("watermark_source_lag_records", labels) == checkout().lag
    finally:
        query.stop()
        forgotten = eventually(lambda: not listener.queries())
        spark.streams.removeListener(listener)
    assert forgotten
