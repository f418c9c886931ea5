"""What users put around ``follow_watermark``: filters, projections, parsing, other names; and the plan that results."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import START, Rows, Streams, at
from watermark_source import data_rows, follow_watermark, markers

pytestmark = pytest.mark.spark

HOUR = 3_600
FIRST: Rows = {0: [(HOUR, 1)], 1: [(0, 2), (30, 3)]}
SECOND: Rows = {1: [(60, 4), (61, 5)]}
THIRD: Rows = {0: [(2 * HOUR, 6)], 1: [(2 * HOUR, 7)]}
WINDOWS = [(at(0), 2), (at(60), 2), (at(HOUR), 1)]

PAYLOAD = "value BIGINT, ts TIMESTAMP"


def windows(rows: DataFrame, column: str = "event_time") -> DataFrame:
    return rows.groupBy(F.window(column, "1 minute").alias("w")).count().select("w.start", "count")


def with_body(rows: DataFrame) -> DataFrame:
    """Move value and event time into a JSON text, as a payload is."""
    return rows.withColumn("body", F.to_json(F.struct("value", F.col("event_time").alias("ts"))))


def filtered(df: DataFrame) -> DataFrame:
    return windows(follow_watermark(df).where("value > 0").where("split >= 0 AND event_time IS NOT NULL"))


def parsed_before(df: DataFrame) -> DataFrame:
    """With the name of the column in another case."""
    parsed = with_body(df).withColumn("p", F.from_json("body", PAYLOAD)).select("p.*", "marker")
    return windows(follow_watermark(parsed, "TS").where("value > 0"), "Ts")


def parsed_after(df: DataFrame) -> DataFrame:
    """Behind a filter that spares markers."""
    rows = follow_watermark(df.where("value > 0 OR marker IS NOT NULL"))
    rows = with_body(rows).select("event_time", F.from_json("body", PAYLOAD).alias("p"))
    return windows(rows.where("p.value > 0"))


def awkward_name(df: DataFrame) -> DataFrame:
    """Given before, and another after."""
    rows = follow_watermark(df.withColumnRenamed("event_time", "the.`time`"), "the.`time`")
    rows = rows.select("value", F.col("`the.``time```").alias("t")).where("value < 100")
    return windows(rows.withColumnRenamed("t", "w.h.e.n").where("value > 0"), "`w.h.e.n`")


def shuffled_and_joined(df: DataFrame) -> DataFrame:
    names = df.sparkSession.createDataFrame([(0, "a"), (1, "b")], "split BIGINT, name STRING")
    return windows(follow_watermark(df).repartition(2).join(F.broadcast(names), "split").where("name > ''"))


BY_DAY = (parsed_before, shuffled_and_joined)
AROUND = (*BY_DAY, filtered, parsed_after, awkward_name)


@pytest.mark.parametrize(
    "around", [BY_DAY, pytest.param(AROUND, marks=pytest.mark.long("BY_DAY"))], ids=["some", "all"]
)
def test_filters_projections_and_parsing_leave_the_watermark_alone(
    streams: Streams, around: tuple[Callable[[DataFrame], DataFrame], ...]
) -> None:
    streams.write(FIRST)
    df = streams.load()
    running = {}
    for build in around:
        running[build.__name__] = streams.start(build(df))
        # One after the other: Spark gives each new source's process 15 seconds to come up.
        running[build.__name__].settle()
    for rows in (SECOND, THIRD):
        streams.write(rows)
        for query in running.values():
            query.settle()
    assert {name: query.rows() for name, query in running.items()} == dict.fromkeys(running, WINDOWS)
    assert {name: query.dropped for name, query in running.items()} == dict.fromkeys(running, 0)


def test_the_barrier_stays_between_user_filters_and_the_watermark_node(streams: Streams) -> None:
    streams.write(FIRST)
    running = streams.start(filtered(streams.load()))
    running.settle()
    reported = io.StringIO()
    with contextlib.redirect_stdout(reported):
        running.query.explain()
    lines = reported.getvalue().splitlines()
    (clock,) = [n for n, line in enumerate(lines) if "EventTimeWatermark" in line]
    (barrier,) = [n for n, line in enumerate(lines) if "SPARK_PARTITION_ID()" in line]
    users = [n for n, line in enumerate(lines) if "Filter" in line and "value" in line]
    assert barrier < clock
    assert users
    assert max(users) <= barrier
    assert not any("Filter" in line for line in lines[clock:])


def test_status_rows_never_move_sparks_watermark(streams: Streams) -> None:
    streams.write({0: [(HOUR, 1)], 1: [(0, 2)]})
    df = streams.load()
    status = F.when(F.col("split") == 0, "idle").otherwise("paused")
    message = {"type": F.lit("status"), "watermark": F.col("event_time"), "status": status}
    fields = [message.get(f, F.lit(None).cast("string")).alias(f) for f in df.select("marker.*").columns]
    streams.run(windows(follow_watermark(df.withColumn("marker", F.struct(*fields)))), "only status rows")
    assert set(streams.committed("only status rows").values()) == {-START}
    streams.run(windows(follow_watermark(df)), "as they come")
    assert max(streams.committed("as they come").values()) == -1


def test_data_rows_are_the_systems_columns_and_event_time_alone(streams: Streams) -> None:
    streams.write(FIRST)
    df = streams.load()
    assert df.columns == ["split", "value", "event_time", "marker"]
    assert data_rows(df).columns == follow_watermark(df).columns == ["split", "value", "event_time"]
    streams.run(data_rows(df), "rows")
    assert sorted(row.value for row in streams.result("rows").collect()) == [1, 2, 3]
    without = streams.load(includeMarkers="false")
    assert without.schema == data_rows(without).schema == data_rows(df).schema


def test_markers_are_flat_and_name_the_whole_source(streams: Streams) -> None:
    streams.write(FIRST)
    df = streams.load()
    streams.run(markers(df), "markers")
    (row,) = streams.result("markers").collect()
    assert row.asDict() == {
        "type": "watermark", "log": None, "split": None, "watermark": at(29.999), "status": None,
        "use_processing_time": False, "reason": None,
    }  # fmt: skip
