"""What a status page that twenty browsers have open costs the driver of a query.

It counts the Python process that serves the page, and beside it the JVM of Spark, which that process asks: not the
broker, the processes of the query's source, or those that read the page.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.functions import window

from benchmarks.figures import Figure, spread
from benchmarks.queries import OURS
from watermark_source import StatusPage, follow_watermark

READERS, SECONDS, WARM_UP = 20, 20.0, 20.0
_EVERY = 1.0
"""Seconds between two records: the query has a batch every five seconds, and little else to do."""
_READERS = """
import sys, threading, urllib.request
def read():
    with urllib.request.urlopen(sys.argv[1] + "events") as events:
        for line in events:
            if line.startswith(b"data: "):
                print(len(line), flush=True)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=read, daemon=True).start()
sys.stdin.read()
"""


def open_pages(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Measure a query with its page open in twenty browsers, and without a page, in turn."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint, contextlib.ExitStack() as stack:
        producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        stack.callback(producer.close)
        source = spark.readStream.format(OURS).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        rows = follow_watermark(source.option("startingOffsets", "latest").load(), "event_time")
        counts = rows.groupBy(window("event_time", "10 seconds")).count().writeStream.format("noop")
        query = counts.trigger(processingTime="5 seconds").option("checkpointLocation", checkpoint).start()
        stack.callback(query.stop)
        _passes(producer, topic, WARM_UP)
        added: list[_Shares] = []
        sent: list[int] = []
        for _ in range(max(1, rounds)):
            before = _shares(spark, producer, topic)
            with StatusPage(spark, port=0) as page, _opened(page.url) as readers:
                _passes(producer, topic, WARM_UP / 2)
                during = [_shares(spark, producer, topic) for _ in range(2)]
            sent += [int(line) for line in readers]
            # A drift of the machine is the same before and after.
            added += [
                each.less(other) for each, other in zip(during, (before, _shares(spark, producer, topic)), strict=True)
            ]
    python, jvm = ([each[process] for each in added] for process in (0, 1))
    yield Figure(
        f"status page open in {READERS} browsers: CPU of the process that serves it", statistics.median(python),
        "% of a core", at_most=1.0,
        detail=f"{spread(python)}; JVM {spread(jvm)}; {len(sent)} pages of {statistics.median(sent) / 1_000:.0f} kB",
    )  # fmt: skip


class _Shares(NamedTuple):
    """Percentages of a core."""

    python: float
    jvm: float

    def less(self, other: _Shares) -> _Shares:
        return _Shares(self.python - other.python, self.jvm - other.jvm)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[list[str]]:
    """Keep the page open in a process of its own; the list has, at the end, the bytes of each page received."""
    received: list[str] = []
    command = [sys.executable, "-c", _READERS, url, str(READERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
        yield received
        received += readers.communicate("")[0].split()


def _shares(spark: SparkSession, producer: KafkaProducer, topic: str) -> _Shares:
    """Return how much of a core this process and the JVM of Spark take for a while."""
    # Nothing else has which of the processes is Spark's: the broker is a JVM, too.
    processes = psutil.Process(), psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # noqa: SLF001
    before = [sum(process.cpu_times()[:2]) for process in processes]
    _passes(producer, topic, SECONDS)
    after = [sum(process.cpu_times()[:2]) for process in processes]
    return _Shares(*(100 * (b - a) / SECONDS for a, b in zip(before, after, strict=True)))


def _passes(producer: KafkaProducer, topic: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        producer.send(topic, b"record")
        time.sleep(_EVERY)
