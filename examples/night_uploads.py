"""A watermark strategy of one's own: by day readings are a minute out of order, by night two hours.

Meters send each reading at once by day. From midnight to six they collect readings, and upload them up to two hours
later. One bound for all hours either loses readings of the night, or delays every window of the day by two hours.
``NightUploads`` has a bound for each hour. The readings are counted three times, with a bound of a minute, with one of
two hours, and with the class.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import SparkSession
from rich.console import Console

from examples.demo import quiet_spark, run_demo
from examples.servers import add_addresses, topic_of
from examples.sinks import counted_windows
from watermark_source import RowsRead, WatermarkGenerator, follow_watermark

TOPIC = "meter-readings"
PARTITIONS = 2
START_MS = 1_767_304_800_000  # 2026-01-01 22:00 UTC
HOURS = 14
MINUTE_MS = 60_000
DAY_BOUND, NIGHT_BOUND = MINUTE_MS, 120 * MINUTE_MS
WINDOW_MS = 10 * MINUTE_MS


def minute_of_day(millis: int) -> int:
    """Return the minute of the day in UTC."""
    at = datetime.fromtimestamp(millis / 1_000, tz=UTC)
    return 60 * at.hour + at.minute


class NightUploads(WatermarkGenerator):
    """Two hours behind from midnight until the last upload of the night has ended, else a minute."""

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        """Return the watermark by the bound of the hour; there is nothing to remember."""
        if rows.highest is None:
            return None, None
        uploads = minute_of_day(rows.highest) < 6 * 60 + NIGHT_BOUND // MINUTE_MS
        return rows.highest - (NIGHT_BOUND if uploads else DAY_BOUND) - 1, None


STRATEGIES: Mapping[str, Mapping[str, str]] = {
    "a minute": {"maxOutOfOrderness": "1 minute"},
    "two hours": {"maxOutOfOrderness": "2 hours"},
    "NightUploads": {"watermarkStrategy": "examples.night_uploads:NightUploads"},
}


def produce(bootstrap: str, topic: str, rows: int) -> Counter[int]:
    """Write readings in the order in which they are sent; return how many each window has."""
    step = HOURS * 60 * MINUTE_MS // rows
    taken = [START_MS + n * step for n in range(rows)]

    def sent(n: int) -> int:
        delay = (NIGHT_BOUND if minute_of_day(taken[n]) < 6 * 60 else DAY_BOUND) - 1
        return taken[n] + n * 7_919_000 % delay

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    for n in sorted(range(rows), key=sent):
        producer.send(topic, b"7", partition=n % PARTITIONS, timestamp_ms=taken[n])
    producer.flush()
    producer.close()
    return Counter(millis // WINDOW_MS * WINDOW_MS for millis in taken)


def count(
    spark: SparkSession, bootstrap: str, topic: str, strategy: str, console: Console, *, per_batch: int
) -> Counter[int]:
    """Return how many readings each closed window has with one of the strategies, by its start in milliseconds."""
    stream = (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .options(**STRATEGIES[strategy])
        .load()
    )
    return Counter(counted_windows(follow_watermark(stream), "10 minutes", console, strategy))


def lost(windows: Counter[int], taken: Counter[int]) -> int:
    """Return how many readings are missing from closed windows."""
    return sum(taken[start] - windows[start] for start in windows)


def main(console: Console) -> int:
    """Run the example; exit status 1 if the class loses a reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="readings (default 20000)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    console.print("preparing its broker and data …")
    with topic_of(given.kafka, TOPIC, PARTITIONS) as (bootstrap, topic), quiet_spark("night-uploads", console) as spark:
        taken = produce(bootstrap, topic, given.rows)
        missing = 0
        for name in STRATEGIES:
            windows = count(spark, bootstrap, topic, name, console, per_batch=given.rows // 20)
            missing = lost(windows, taken)
            console.print(
                f"{name}: {len(windows)} of {len(taken)} windows are closed, {missing} readings missing from them",
                soft_wrap=True,
            )
    return 1 if missing else 0


if __name__ == "__main__":
    run_demo(main)
