"""What ``publish_completeness`` costs a query of windows into files: with it and without, in turn, in one run of it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.between_jobs import cpu_of_announcing
from benchmarks.figures import Figure, ratio, spread
from benchmarks.latency import RATE, SteadyProducer
from benchmarks.queries import OURS
from services.wait_until import wait_until
from watermark_source import follow_watermark, publish_completeness

WARM_UP, SECONDS = 15.0, 10.0
_PAIRS_A_ROUND = 2
_FIRST_SECONDS = 180
_WRITER = "by-second"
_MOST = 1.0
"""Percent."""


def publishing(spark: SparkSession, bootstrap: str, topic: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure the CPU of the driver's two processes, and how long batches take."""
    reader = spark.readStream.format(OURS).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = follow_watermark(reader.option("maxOutOfOrderness", "100 milliseconds").load())
    counts = rows.groupBy(F.window("event_time", "1 second").alias("w")).count().select("w.end", "count")
    used: dict[bool, list[float]] = {True: [], False: []}
    batches: dict[bool, list[float]] = {True: [], False: []}
    own, shares = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="publishing-") as folder:
        table, checkpoint = Path(folder) / "table", Path(folder) / "checkpoint"
        query = counts.writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).start(str(table))
        producer = SteadyProducer(bootstrap, topic, partitions)
        producer.start()
        wait_until(lambda: len(query.recentProgress) > 1, _FIRST_SECONDS, "batches")
        time.sleep(WARM_UP)
        for number in range(2 * _PAIRS_A_ROUND * rounds):
            # In the order on, off, off, on: what grows with time counts on both sides.
            is_on = number % 4 in (0, 3)
            published = publish_completeness(query, table, _WRITER) if is_on else None
            first, before, own_before = query.lastProgress, _cpu(spark), cpu_of_announcing(_WRITER) if is_on else 0.0
            time.sleep(SECONDS)
            spent = _cpu(spark) - before
            if published is not None:
                own.append(cpu_of_announcing(_WRITER) - own_before)
                shares.append(own[-1] / spent)
                published.stop()
            assert first is not None
            durations = [each.durationMs for each in query.recentProgress if each.batchId > first.batchId]
            taken = [each["triggerExecution"] for each in durations if "addBatch" in each]
            # As many batches as the machine manages: the CPU of one counts.
            used[is_on].append(1_000 * spent / len(taken))
            batches[is_on].append(statistics.median(taken))
        producer.stop()
        query.stop()
    yield Figure(
        f"publishing at {RATE} records/s: CPU of its thread", 100 * statistics.median(own) / SECONDS, "% of a core",
        at_most=_MOST, detail=f"{100 * statistics.median(shares):.2g} % of all CPU of the driver",
    )  # fmt: skip
    for name, of in (("CPU of the driver for a batch", used), ("a batch", batches)):
        detail = f"without, ms {spread(of[False], 0)}; with {spread(of[True], 0)}"
        yield Figure(f"publishing: {name}, with / without", ratio(of[True], of[False]), "x", detail=detail)


def _cpu(spark: SparkSession) -> float:
    """Return the seconds of CPU that Python's and Java's process of the driver have used."""
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001 - nothing else has it
    found = (psutil.Process(pid).cpu_times() for pid in (os.getpid(), java))
    return float(sum(each.user + each.system for each in found))
