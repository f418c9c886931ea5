"""What Spark's operators state of their output, against the rows that come out afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from tests.spark.queries import START, Streams
from watermark_source import follow_watermark, order_by_event_time
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OutputWatermark,
    Why,
    output_of,
    read_watermarks,
)
from watermark_source.spark.query_windows import Windows

pytestmark = pytest.mark.spark


def output_watermark(query: StreamingQuery) -> OutputWatermark:
    """The watermark of all rows that a query writes after its last committed batch."""
    return output_of(read_watermarks(query), query.lastProgress)


Build = Callable[[DataFrame, DataFrame], DataFrame]
STEPS = ((0, 3, 1), (14, 2, 12), (30, 8, 28, 31), (45, 29, 28, 46), (100, 44, 43), (160, 99))
"""Event times of each step's rows, in seconds after ``START``: in order, out of order, and late."""


def windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("event_time", "10 seconds")).count().select(F.window_time("window").alias("t"))


def sessions(rows: DataFrame, _: DataFrame) -> DataFrame:
    found = rows.groupBy(F.session_window("event_time", "5 seconds"), "value").count()
    return found.select(F.col("session_window.end").alias("t"))


def distinct_values(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["value"]).select(F.col("event_time").alias("t"))


def windows_of_windows(rows: DataFrame, _: DataFrame) -> DataFrame:
    small = rows.groupBy(F.window("event_time", "10 seconds")).count()
    large = small.groupBy(F.window(F.window_time("window"), "30 seconds")).count()
    return large.select(F.window_time("window").alias("t"))


def both(rows: DataFrame, others: DataFrame) -> DataFrame:
    minutes = windows(rows, others)
    return minutes.union(distinct_values(others, others))


def joined(kind: str, condition: str, column: str) -> Build:
    def build(rows: DataFrame, others: DataFrame) -> DataFrame:
        left = rows.select(F.col("event_time").alias("lt"), F.col("value").alias("lv"))
        right = others.where("value % 3 > 0").select(F.col("event_time").alias("rt"), F.col("value").alias("rv"))
        return left.join(right, F.expr(condition), kind).select(F.col(column).alias("t"))

    return build


def counted_by_hand(rows: DataFrame, _: DataFrame) -> DataFrame:
    def count(key: Any, parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        for part in parts:
            yield pd.DataFrame({"t": part["event_time"]})

    return rows.groupBy("value").applyInPandasWithState(count, "t timestamp", "n long", "append", "EventTimeTimeout")


class Repeated(StatefulProcessor):
    """Emits the rows as they are."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            yield Row(t=row.event_time)

    def close(self) -> None:
        pass


def repeated(time: str = "") -> Build:
    def build(rows: DataFrame, _: DataFrame) -> DataFrame:
        return rows.groupBy("value").transformWithState(Repeated(), "t timestamp", "append", "eventTime", None, time)

    return build


def totals(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.groupBy("value").agg(F.max("event_time").alias("t"))


IN_TIME = "lv = rv AND rt BETWEEN lt - interval 3 seconds AND lt + interval 2 seconds"
PROMISES: dict[str, tuple[Build, str, int]] = {
    "window aggregation, append": (windows, "append", 0),
    "window aggregation, update": (windows, "update", 0),
    "session windows": (sessions, "append", 0),
    "dropDuplicatesWithinWatermark": (distinct_values, "append", 0),
    "two window aggregations": (windows_of_windows, "append", 0),
    "two branches": (both, "append", 0),
    "inner join, left time": (joined("inner", IN_TIME, "lt"), "append", 3_001),
    "left outer join, left time": (joined("left_outer", IN_TIME, "lt"), "append", 3_001),
    "left outer join, right time": (joined("left_outer", IN_TIME, "rt"), "append", 3_001),
    "transformWithState, time named": (repeated("t"), "append", 0),
}
"""Query, output mode, and by how many milliseconds the statement is behind the watermark that came in."""
BY_DAY = ("two window aggregations", "left outer join, left time", "transformWithState, time named")
NONE: dict[str, tuple[Build, str, NoWatermark]] = {
    "complete": (windows, "complete", NoWatermark(Why.COMPLETE_MODE)),
    "applyInPandasWithState": (
        counted_by_hand, "append", NoWatermark(Why.NO_PROMISE, "FlatMapGroupsInPandasWithState"),
    ),
    "transformWithState": (repeated(), "append", NoWatermark(Why.NO_PROMISE, "TransformWithStateInPySpark")),
    "join without a bound": (
        joined("inner", "lv = rv", "lt"), "append", NoWatermark(Why.NO_PROMISE, "StreamingSymmetricHashJoin"),
    ),
    "aggregation without time": (totals, "update", NoWatermark(Why.NO_PROMISE, "StateStoreSave")),
    "stateless": (lambda rows, _: rows.select(F.col("event_time").alias("t")), "append", NoWatermark(
        Why.FOREIGN_SOURCE, "FileStreamSource")),
    "beside a window aggregation": (
        lambda rows, others: windows(rows, rows).union(others.select("event_time")),
        "append",
        NoWatermark(Why.FOREIGN_SOURCE, "FileStreamSource"),
    ),
}  # fmt: skip


@dataclass
class Watched:
    """A query, what it wrote in which batch, and what its operators stated after which batch."""

    query: StreamingQuery
    rows: list[tuple[int, int]] = field(default_factory=list)
    """Batch and event time in milliseconds, as a record in Kafka would have it."""
    stated: list[tuple[int, OutputWatermark]] = field(default_factory=list)
    before: BatchWatermarks | None = None

    def note(self) -> None:
        progress = self.query.lastProgress
        assert progress is not None
        stated = output_watermark(self.query)
        self.stated.append((progress["batchId"], stated))
        # What is read again after each batch is less, and states the same.
        found = read_watermarks(self.query, self.before, only_last=True)
        assert output_of(found, progress) == stated
        if isinstance(found, BatchWatermarks):
            self.before = found


def start(build: Build, mode: str, rows: DataFrame, others: DataFrame, checkpoint: Path) -> Watched:
    written: list[tuple[int, int]] = []

    def keep(frame: DataFrame, batch: int) -> None:
        found = frame.select(F.unix_millis("t").alias("t")).where("t IS NOT NULL").collect()
        written.extend((batch, row.t) for row in found)

    writer = build(rows, others).writeStream.outputMode(mode).foreachBatch(keep)
    return Watched(writer.option("checkpointLocation", str(checkpoint)).start(), written)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    rows = spark.readStream.schema("event_time timestamp, value int").json(str(folder / "rows"))
    return rows.withWatermark("event_time", "2 seconds")


def write(folder: Path, step: int) -> None:
    (folder / "rows").mkdir(exist_ok=True)
    lines = (
        json.dumps({"event_time": pd.Timestamp(START + s * 1_000, unit="ms", tz="UTC").isoformat(), "value": s % 7})
        for s in STEPS[step]
    )
    # Spark passes over a file whose name begins with a dot, and reads the others once, whatever they hold then.
    written = folder / "rows" / f".{step}"
    written.write_text("\n".join(lines))
    written.rename(folder / "rows" / f"{step}.json")


@pytest.mark.parametrize(
    "names", [BY_DAY, pytest.param(tuple(PROMISES), marks=pytest.mark.long("BY_DAY"))], ids=["some", "all"]
)
def test_rows_of_later_batches_are_after_what_the_operators_stated(
    spark: SparkSession, rocksdb: None, tmp_path: Path, names: tuple[str, ...]
) -> None:
    write(tmp_path, 0)
    running: dict[str, Watched] = {}
    try:
        for number, name in enumerate(names):
            build, mode, _ = PROMISES[name]
            rows, others = read(spark, tmp_path), read(spark, tmp_path)
            running[name] = start(build, mode, rows, others, tmp_path / str(number))
        for step in range(1, len(STEPS) + 1):
            for each in running.values():
                each.query.processAllAvailable()
                each.note()
            if step < len(STEPS):
                write(tmp_path, step)
        of_spark = {name: read_watermarks(each.query) for name, each in running.items()}
    finally:
        for each in running.values():
            each.query.stop()
    # Spark moves the filter of a join's right side below its watermark, and it removes the last row.
    last = {name: 100 if "join" in name else 160 for name in names}
    for name, each in running.items():
        behind = PROMISES[name][2]
        assert each.stated[-1][1] == START + last[name] * 1_000 - 2_000 - behind, name
        assert any(batch > each.stated[0][0] for batch, _ in each.rows), name
        for batch, stated in each.stated:
            if not isinstance(stated, NoWatermark):
                # A column in milliseconds has the window's end less one.
                assert [t for b, t in each.rows if b > batch and t <= stated - 1] == [], (name, batch)
    chain = of_spark["two window aggregations"]
    assert isinstance(chain, BatchWatermarks)
    assert [(o.name, o.is_last) for o in chain.operators] == [("StateStoreSave", True), ("StateStoreSave", False)]
    assert chain.windows == Windows(30_000, 30_000)
    # The watermark that came in is too high for a join: these rows were written later, and are not after it.
    left = running["left outer join, left time"]
    entered = [(batch, stated + 3_001) for batch, stated in left.stated if not isinstance(stated, NoWatermark)]
    assert [t for batch, watermark in entered for b, t in left.rows if b > batch and t <= watermark]


@pytest.mark.parametrize(
    "names",
    [
        ("complete", "transformWithState", "beside a window aggregation"),
        pytest.param(tuple(NONE), marks=pytest.mark.long("some of them")),
    ],
    ids=["some", "all"],
)
def test_without_a_promise_the_reason_names_the_operator_or_the_source(
    spark: SparkSession, rocksdb: None, tmp_path: Path, names: tuple[str, ...]
) -> None:
    write(tmp_path, 0)
    running: dict[str, Watched] = {}
    try:
        for number, name in enumerate(names):
            build, mode, _ = NONE[name]
            rows, others = read(spark, tmp_path), read(spark, tmp_path)
            running[name] = start(build, mode, rows, others, tmp_path / str(number))
        for step in range(2):
            write(tmp_path, step)
            for each in running.values():
                each.query.processAllAvailable()
                each.note()
    finally:
        for each in running.values():
            each.query.stop()
    for name, each in running.items():
        expected, stated = NONE[name][2], each.stated[-1][1]
        assert isinstance(stated, NoWatermark), name
        assert stated.why is expected.why, name
        assert (stated.where or "").startswith(expected.where or ""), name


def test_a_stateless_query_has_the_lowest_watermark_of_its_sources(streams: Streams, rocksdb: None) -> None:
    streams.write({0: [(0, 1), (60, 2)], 1: [(30, 3)]})
    streams.write({0: [(20, 1)]}, name="other")
    rows = follow_watermark(streams.load(maxOutOfOrderness="5 seconds"))
    others = follow_watermark(streams.load(name="other"))
    stateless = streams.start(rows.select("event_time").union(others.select("event_time")))
    ordered = streams.start(order_by_event_time(rows, "value", buckets=1).where("NOT late"))
    stateless.settle()
    ordered.settle()
    assert output_watermark(stateless.query) == START + 20_000 - 1
    assert output_watermark(ordered.query) == START + 25_000 - 1
    # The next batch may have begun: what held after the batch before it, holds for it.
    batch, progress = read_watermarks(stateless.query), stateless.query.lastProgress
    assert not isinstance(batch, NoWatermark)
    assert output_of(replace(batch, batch=batch.batch + 1), progress) == START + 20_000 - 1
