"""Latency from produce to sink at 1 000 records a second, and what an idle query costs."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import psutil
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure, ratio
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.until_the_sink import until_the_sink

RATE = 1_000
WARM_UP, SECONDS = 10.0, 20.0
IDLE_SECONDS = 20.0
_RUNNER = "python_streaming_source_runner"


class SteadyProducer(threading.Thread):
    """Sends the moment of sending, in ns, at a steady rate until stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        self._topic, self._partitions = topic, partitions
        self._stop_now = threading.Event()

    def run(self) -> None:
        begin, sent = time.perf_counter(), 0
        while not self._stop_now.is_set():
            due = int((time.perf_counter() - begin) * RATE)
            for n in range(sent, due):
                self._producer.send(self._topic, str(time.time_ns()).encode(), partition=n % self._partitions)
            sent = due
            time.sleep(0.002)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()
        self._producer.close()


def _stream(spark: SparkSession, source: str, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "latest")
        .load()
        .where("value is not null")
        .selectExpr("cast(cast(value as string) as double) / 1e6 as at")
    )


def in_turn(measured: Callable[[str], list[float]], rounds: int) -> dict[str, list[list[float]]]:
    """Measure both sources so many times, one after the other."""
    taken: dict[str, list[list[float]]] = {BUILT_IN: [], OURS: []}
    for _ in range(rounds):
        for source, runs in taken.items():
            runs.append(measured(source))
    return taken


def latency(spark: SparkSession, bootstrap: str, topic: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure both sources in turn on the same topic."""

    def measured(source: str) -> list[float]:
        rows = _stream(spark, source, bootstrap, topic)
        producer = SteadyProducer(bootstrap, topic, partitions)
        return until_the_sink(rows, producer, warm_up=WARM_UP, seconds=SECONDS)

    taken = in_turn(measured, rounds)
    medians = {source: [statistics.median(run) for run in runs] for source, runs in taken.items()}
    for source, runs in taken.items():
        everything = sorted(x for run in runs for x in run)
        yield Figure(
            f"latency at {RATE} records/s, {source}: median", statistics.median(medians[source]), "ms",
            detail=f"p99 {everything[int(len(everything) * 0.99)]:.0f} ms, {len(everything)} records",
        )  # fmt: skip
    yield Figure("median latency, ours / built-in", ratio(medians[OURS], medians[BUILT_IN]), "x", at_most=1.3)


def idle(spark: SparkSession, bootstrap: str, topic: str) -> Iterator[Figure]:
    """Measure the runner process of a query that has nothing to do."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint:
        stream = _stream(spark, OURS, bootstrap, topic).writeStream.format("noop")
        query = stream.option("checkpointLocation", checkpoint).start()
        time.sleep(10)
        ours = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
        runners = [p for p in ours if any(part.endswith((_RUNNER, f"{_RUNNER}.py")) for part in p.cmdline())]
        before = [sum(p.cpu_times()[:2]) for p in runners]
        time.sleep(IDLE_SECONDS)
        spent = sum(sum(p.cpu_times()[:2]) - used for p, used in zip(runners, before, strict=True))
        query.stop()
    yield Figure(
        "idle query: CPU of the runner", 100 * spent / IDLE_SECONDS, "% of a core", at_most=5.0,
        detail=f"{len(runners)} process, {IDLE_SECONDS:g} s",
    )  # fmt: skip
