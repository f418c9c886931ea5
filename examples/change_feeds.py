"""Change feeds of CockroachDB and TiDB: the markers that they write into a topic are its watermark.

CockroachDB writes ``resolved`` messages, TiCDC ``TIDB_WATERMARK`` messages, each to every partition: no change with a
commit time at or before theirs follows that was not sent before. So a window can be closed when they have passed it,
without a bound for disorder, and a partition whose keys do not change advances as well. The messages here have the form
of CockroachDB's documentation (``WITH updated, resolved``) and of TiCDC's (``canal-json`` with
``enable-tidb-extension``).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.demo import quiet_spark, run_demo
from examples.servers import add_addresses, topic_of
from examples.sinks import counted_windows
from watermark_source import follow_watermark

START_MS = 1_767_225_600_000  # 2026-01-01
PARTITIONS = 3
"""The last one has markers alone: none of its keys changes."""
STEP_MS = 700
MARKED_EVERY = 10
WINDOW_MS = 10_000
Message = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """How a system writes changes and markers, and the options that read them."""

    topic: str
    change: Callable[[int, int], Message]
    """Makes the message of a changed row from its key and commit time, in milliseconds."""
    marker: Callable[[int], Message]
    """Makes the message after which no change at or before a time follows."""
    options: Mapping[str, str]


COCKROACHDB = Feed(
    "cockroachdb-orders",
    # Decimal nanoseconds, and a logical counter behind the point.
    change=lambda key, millis: {"after": {"id": key}, "updated": f"{millis}000000.0000000003"},
    marker=lambda millis: {"resolved": f"{millis}000000.0000000000"},
    options={
        "watermarkStrategy": "punctuated",
        "watermarkColumn": "value:$.resolved",
        "eventTimeColumn": "value:$.updated", "eventTimeFormat": "nanos", "eventTimeErrors": "null",
    },
)  # fmt: skip
TICDC = Feed(
    "ticdc-orders",
    # Timestamps of TiDB's oracle: milliseconds times 2^18, plus a logical counter.
    change=lambda key, millis: {
        "type": "UPDATE", "es": millis, "data": [{"id": str(key)}], "_tidb": {"commitTs": (millis << 18) + 2}
    },
    marker=lambda millis: {
        "type": "TIDB_WATERMARK", "es": millis, "data": None, "_tidb": {"watermarkTs": (millis << 18) + 1}
    },
    options={
        "watermarkStrategy": "punctuated",
        "watermarkColumn": "value:$._tidb.watermarkTs",
        "eventTimeColumn": "value:$._tidb.commitTs", "eventTimeFormat": "tso", "eventTimeErrors": "null",
    },
)  # fmt: skip


def produce(bootstrap: str, feed: Feed, rows: int) -> None:
    """Write changes to all partitions but the last, and to every partition a marker behind each ten of them."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)

    def send(message: Message, partition: int) -> None:
        producer.send(feed.topic, json.dumps(message).encode(), partition=partition)

    for first in range(0, rows, MARKED_EVERY):
        # Later changes come first.
        for n in reversed(range(first, min(rows, first + MARKED_EVERY))):
            send(feed.change(n, START_MS + STEP_MS * n), n % (PARTITIONS - 1))
        for partition in range(PARTITIONS):
            send(feed.marker(START_MS + STEP_MS * (first + MARKED_EVERY) - 1), partition)
    producer.flush()
    producer.close()


def changes(spark: SparkSession, bootstrap: str, feed: Feed, *, per_batch: int) -> DataFrame:
    """Return the changes of a feed, with the watermark that its markers state; the markers themselves have no time."""
    stream = (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", feed.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .options(**feed.options)
        .load()
    )
    return follow_watermark(stream).where("event_time IS NOT NULL")


def count(rows: DataFrame, console: Console) -> dict[int, int]:
    """Return how many changes each closed window of ten seconds has, by its start in milliseconds."""
    return counted_windows(rows, "10 seconds", console, "changes")


def missing(windows: Mapping[int, int], rows: int) -> int:
    """Return how many changes are not in the closed windows; what is still open at the end is not missing."""
    written = Counter((START_MS + STEP_MS * n) // WINDOW_MS * WINDOW_MS for n in range(rows))
    return sum(written[start] - windows.get(start, 0) for start in written if start <= max(windows, default=0))


def main(console: Console) -> int:
    """Run the example; exit status 1 if a change is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000, help="changes of each feed (default 2000)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    lost = 0
    with quiet_spark("change-feeds", console) as spark:
        for feed in (COCKROACHDB, TICDC):
            with topic_of(given.kafka, feed.topic, PARTITIONS) as (bootstrap, topic):
                named = replace(feed, topic=topic)
                produce(bootstrap, named, given.rows)
                windows = count(changes(spark, bootstrap, named, per_batch=max(1, given.rows // 6)), console)
                found = missing(windows, given.rows)
                console.print(f"{feed.topic}: {len(windows)} windows are closed; changes missing from them: {found}")
                lost += found
    return 1 if lost else 0


if __name__ == "__main__":
    run_demo(main)
