"""From the end of a window to its count in the sink, at 1 000 records a second: Spark's ``withWatermark`` and ours."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.figures import Figure, ratio
from benchmarks.latency import RATE, SteadyProducer, in_turn
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.until_the_sink import until_the_sink
from watermark_source import follow_watermark

WARM_UP, SECONDS = 12.0, 40.0
WINDOW, BOUND, TRIGGER = "1 second", "100 milliseconds", "400 milliseconds"


def _counts(spark: SparkSession, source: str, bootstrap: str, topic: str) -> DataFrame:
    reader = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "latest")
    )
    if source == OURS:
        rows, time_of = follow_watermark(reader.option("maxOutOfOrderness", BOUND).load()), "event_time"
    else:
        rows, time_of = reader.load().withWatermark("timestamp", BOUND), "timestamp"
    return rows.groupBy(F.window(time_of, WINDOW).alias("w")).count().selectExpr("unix_millis(w.end) AS at", "count")


def window_latency(spark: SparkSession, bootstrap: str, topic: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure both in turn on the same topic."""

    def measured(source: str) -> list[float]:
        windows = _counts(spark, source, bootstrap, topic)
        producer = SteadyProducer(bootstrap, topic, partitions)
        return until_the_sink(windows, producer, warm_up=WARM_UP, seconds=SECONDS, processingTime=TRIGGER)

    taken = in_turn(measured, rounds)
    medians = {source: [statistics.median(run) for run in runs] for source, runs in taken.items()}
    for source, runs in taken.items():
        everything = sorted(x for run in runs for x in run)
        yield Figure(
            f"window latency at {RATE} records/s, {source}: median", statistics.median(medians[source]), "ms",
            detail=f"{everything[0]:.0f} to {everything[-1]:.0f} ms, {len(everything)} windows of {WINDOW}",
        )  # fmt: skip
    yield Figure("median window latency, ours / built-in", ratio(medians[OURS], medians[BUILT_IN]), "x", at_most=1.05)
