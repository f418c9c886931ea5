"""Latency from produce to sink at 1 000 records a second, and what an idle query and an open status page cost."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.request import urlopen

import psutil
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure, ratio
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.until_the_sink import until_the_sink
from watermark_source import StatusPage

RATE = 1_000
WARM_UP, SECONDS = 10.0, 20.0
IDLE_SECONDS = 20.0
PAGE_SECONDS, PAGE_EVERY = 10.0, 2.0
"""How long the page is open at a time, and seconds between two loads: the shortest that a reader can choose."""
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
        runners = [p for p in _processes() if _is_runner(p)]
        before = _cpu(runners)
        time.sleep(IDLE_SECONDS)
        spent = _cpu(runners) - before
        query.stop()
    yield Figure(
        "idle query: CPU of the runner", 100 * spent / IDLE_SECONDS, "% of a core", at_most=5.0,
        detail=f"{len(runners)} process, {IDLE_SECONDS:g} s",
    )  # fmt: skip


def page(spark: SparkSession, bootstrap: str, topic: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure a query at a steady rate with its status page open in a browser, and without one, in turn."""
    producer = SteadyProducer(bootstrap, topic, partitions)
    taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint, contextlib.ExitStack() as stack:
        producer.start()
        stack.callback(producer.stop)
        stream = _stream(spark, OURS, bootstrap, topic).writeStream.format("noop")
        query = stream.option("checkpointLocation", checkpoint).start()
        stack.callback(query.stop)
        time.sleep(WARM_UP)
        for number in range(2 * 3 * rounds):
            is_open = number % 4 in (1, 2)
            taken[is_open].append(_cpu_a_batch(spark, query, is_open=is_open))
    for place, what in enumerate(("the runner", "all processes")):
        used = {is_open: [both[place] for both in runs] for is_open, runs in taken.items()}
        yield Figure(
            f"CPU of {what} a batch, status page open / none", ratio(used[True], used[False]), "x",
            at_most=1.01 if place == 0 else None,
            detail=f"{statistics.median(used[False]):.2f} ms without; {len(used[True])} times {PAGE_SECONDS:g} s each",
        )  # fmt: skip


def _cpu_a_batch(spark: SparkSession, query: Any, *, is_open: bool) -> tuple[float, float]:
    """Return the milliseconds of the runner's CPU, and of all processes', for each batch of a while."""
    ours = [*_processes(), psutil.Process()]
    runners = [p for p in ours if _is_runner(p)]
    with StatusPage(spark, port=0) if is_open else contextlib.nullcontext() as shown:
        number, before = query.lastProgress["batchId"], (_cpu(runners), _cpu(ours))
        end = time.monotonic() + PAGE_SECONDS
        while time.monotonic() < end:
            if shown is not None:
                with urlopen(shown.url) as answer:
                    answer.read()
            time.sleep(PAGE_EVERY)
        spent = _cpu(runners) - before[0], _cpu(ours) - before[1]
        batches = query.lastProgress["batchId"] - number
    return 1_000 * spent[0] / batches, 1_000 * spent[1] / batches


def _processes() -> list[psutil.Process]:
    """Return the JVM and the Python processes that it has started."""
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def _is_runner(process: psutil.Process) -> bool:
    return any(part.endswith((_RUNNER, f"{_RUNNER}.py")) for part in process.cmdline())


def _cpu(processes: Iterable[psutil.Process]) -> float:
    """Return the seconds of CPU that processes have used; those that have ended count no more."""
    used = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:2])
    return used
