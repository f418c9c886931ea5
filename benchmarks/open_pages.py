"""What a status page that twenty browsers have open costs the driver of a query: its JVM and its Python process."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.functions import window

from benchmarks.figures import Figure, spread
from benchmarks.queries import OURS
from watermark_source import StatusPage, follow_watermark

READERS, SECONDS, WARM_UP = 20, 20.0, 20.0
_EVERY = 0.1
"""Seconds between two records: the query has a batch a second, and little else to do."""
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
        query = counts.trigger(processingTime="1 second").option("checkpointLocation", checkpoint).start()
        stack.callback(query.stop)
        _passes(producer, topic, WARM_UP)
        taken: list[float] = []
        sent: list[int] = []
        for _ in range(max(1, rounds)):
            without = _cpu_of(producer, topic)
            with StatusPage(spark, port=0) as page, _opened(page.url) as readers:
                _passes(producer, topic, WARM_UP / 2)
                taken.append(_cpu_of(producer, topic) - without)
            sent += [int(line) for line in readers]
    yield Figure(
        f"status page open in {READERS} browsers: CPU of the driver", 100 * statistics.median(taken) / SECONDS,
        "% of a core", at_most=1.0,
        detail=f"{spread([100 * each / SECONDS for each in taken])} %; {len(sent)} pages of "
        f"{statistics.median(sent) / 1_000:.0f} kB",
    )  # fmt: skip


@contextlib.contextmanager
def _opened(url: str) -> Iterator[list[str]]:
    """Keep the page open in a process of its own; the list has, at the end, the bytes of each page received."""
    received: list[str] = []
    command = [sys.executable, "-c", _READERS, url, str(READERS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
        yield received
        received += readers.communicate("")[0].split()


def _cpu_of(producer: KafkaProducer, topic: str) -> float:
    """Return the seconds of CPU that this process and the JVM use in a while."""
    driver = [psutil.Process(), *(child for child in psutil.Process().children() if "java" in child.name())]
    before = sum(sum(process.cpu_times()[:2]) for process in driver)
    _passes(producer, topic, SECONDS)
    return sum(sum(process.cpu_times()[:2]) for process in driver) - before


def _passes(producer: KafkaProducer, topic: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        producer.send(topic, b"record")
        time.sleep(_EVERY)
