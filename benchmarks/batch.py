"""Batch reads of the even topic into noop: the built-in source and ours in turn, and ours with a filter on time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame, SparkSession

from benchmarks.empty import EMPTY, EmptySource
from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.topics import HOURS, PARTITIONS, RECORDS, START

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_LAST = 0.01
"""Part of the topic that a filter leaves."""


def batch(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Warm each source up once, then time them in turn, planning included."""
    seconds: dict[str, list[float]] = {BUILT_IN: [], OURS: []}
    for turn in range(rounds + 1):
        for source, taken in seconds.items():
            reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
            frame = reader.option("subscribe", topic).load()
            wall = _seconds(frame)
            if turn:
                taken.append(wall)
    size = f"{RECORDS / 1e6:g} M records, {PARTITIONS} partitions"
    for source, taken in seconds.items():
        yield Figure(
            f"{source}: rows/s, batch read", RECORDS / statistics.median(taken) / 1e6, "M/s",
            detail=f"{size}; s min/med/max {spread(taken)}",
        )  # fmt: skip
    yield Figure("batch read, built-in / ours", ratio(seconds[BUILT_IN], seconds[OURS]), "x", at_least=2.0)


def batch_filter(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Time the whole topic, and its last hundredth by ``where``, without push-down and with it, in turn.

    Beside them what Spark takes for such a read by itself.
    """
    spark.dataSource.register(EmptySource)
    since = START + round(HOURS * 3_600_000 * (1 - _LAST))

    def last(pushed: str) -> DataFrame:
        return _load(spark, bootstrap, topic, pushDownPredicate=pushed).where(_since(since))

    queries: dict[str, Callable[[], DataFrame]] = {
        "the whole topic": lambda: _load(spark, bootstrap, topic),
        "its last 1 %, not pushed down": lambda: last("false"),
        "its last 1 %, pushed down": lambda: last("true"),
        "a source without a row, pushed down": lambda: spark.read.format(EMPTY).load().where(_since(since)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    spark.conf.set(_PUSHDOWN, "true")
    for turn in range(rounds + 1):
        for name, query in queries.items():
            wall = _seconds(query())
            if turn:
                seconds[name].append(wall)
    spark.conf.unset(_PUSHDOWN)
    for name, taken in seconds.items():
        yield Figure(f"batch read of {name}", statistics.median(taken), "s", detail=f"s min/med/max {spread(taken)}")
    whole_seconds, _, pushed_seconds, spark_seconds = seconds.values()
    yield Figure(
        "batch read, the whole topic / its last 1 %", ratio(whole_seconds, pushed_seconds), "x", at_least=20.0,
        detail=f"{RECORDS / 1e6:g} M records, {PARTITIONS} partitions",
    )  # fmt: skip
    yield Figure(
        "batch read, the whole topic / a source without a row", ratio(whole_seconds, spark_seconds), "x",
        detail="the most that a Python source can reach",
    )  # fmt: skip


def _since(millis: int) -> str:
    return f"timestamp >= timestamp_millis({millis})"


def _load(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(OURS).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def _seconds(frame: DataFrame) -> float:
    """Plan and run a read, and return how long that takes."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
