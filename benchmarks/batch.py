"""A batch read of the even topic into noop, the built-in source and ours in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.topics import PARTITIONS, RECORDS


def batch(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Warm each source up once, then time them in turn, planning included."""
    seconds: dict[str, list[float]] = {BUILT_IN: [], OURS: []}
    for turn in range(rounds + 1):
        for source, taken in seconds.items():
            reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
            began = time.perf_counter()
            reader.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()
            if turn:
                taken.append(time.perf_counter() - began)
    size = f"{RECORDS / 1e6:g} M records, {PARTITIONS} partitions"
    for source, taken in seconds.items():
        yield Figure(
            f"{source}: rows/s, batch read", RECORDS / statistics.median(taken) / 1e6, "M/s",
            detail=f"{size}; s min/med/max {spread(taken)}",
        )  # fmt: skip
    yield Figure("batch read, built-in / ours", ratio(seconds[BUILT_IN], seconds[OURS]), "x", at_least=2.0)
