"""Two topics joined while they are replayed, one ten times faster: what Spark has to keep, alone and aligned.

Ads that were shown and clicks on them, a day of each. A click counts when it comes within a minute of its ad. Spark
keeps every row of one topic until the watermark of both has passed the time in which its partner may come: all that the
fast topic is ahead. In an alignment group the sources stay together, and so the state stays small.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from examples.demo import Progress, quiet_spark, run_demo, stopped_at_the_end
from examples.servers import add_addresses, topic_of
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from watermark_source import follow_watermark
from watermark_source.durations import count_text

SHOWN, CLICKED = "shown", "clicked"
TOPICS = {SHOWN: SHOWN, CLICKED: CLICKED}
"""By their roles; on a broker that was there before they have names of their own."""
PARTITIONS = 2
START_MS = 1_700_000_000_000
LONGEST_MS = 70_000
"""A click comes at most this long after its ad; one after more than a minute does not count."""
FASTER = 10
DRIFT_MINUTES = 10
ALIGNED: dict[str, Any] = {
    "alignmentGroup": "ads",
    "alignmentMaxDrift": f"{DRIFT_MINUTES} minutes",
    "alignmentMembers": "2",
}
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True)
class Day:
    """How much is replayed: rows of each topic, over so many hours."""

    rows: int
    hours: float

    @property
    def slow_batch(self) -> int:
        """Rows of a batch of the slow topic: as much event time as the sources may be apart."""
        return max(1, round(self.rows * DRIFT_MINUTES / 60 / self.hours))


@dataclass
class Joined:
    """What came out, whatever the order, how many rows Spark kept after each batch, and how far topics were apart."""

    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    drift_ms: int = 0
    seconds: float = 0.0

    def sink(self, batch: DataFrame, number: int) -> None:
        """Count a batch, and add up the hashes of its rows; one that is retried replaces itself."""
        hashed = F.sum(F.xxhash64("ad", "shown_at", "clicked_at").cast("decimal(38, 0)"))
        rows, total = batch.agg(F.count("*"), F.coalesce(hashed, F.lit(0))).collect()[0]
        self.counts[number] = (rows, int(total))

    @property
    def result(self) -> tuple[int, int]:
        """Return how many rows came out, and the sum of their hashes."""
        return sum(rows for rows, _ in self.counts.values()), sum(total for _, total in self.counts.values())

    @property
    def highest(self) -> int:
        """The most rows that Spark kept."""
        return max(self.kept, default=0)


def produce(bootstrap: str, day: Day, topics: Mapping[str, str] = TOPICS) -> int:
    """Write both topics, and return how many clicks count."""
    numbers = np.arange(day.rows)
    shown = START_MS + (numbers * (day.hours * 3_600_000 / day.rows)).astype(np.int64)
    delays = numbers * 7_919 % LONGEST_MS
    clicked = shown + delays
    order = np.argsort(clicked, kind="stable")
    for role, ads, times in ((SHOWN, numbers, shown), (CLICKED, order, clicked[order])):
        values = ads.astype(">u8").view(np.uint8).reshape(-1, 8)
        records = {p: PartitionRecords(times[p::PARTITIONS], values[p::PARTITIONS]) for p in range(PARTITIONS)}
        bulk_produce_partitions(bootstrap, topics[role], records, batch_records=5_000)
    return int(np.count_nonzero(delays <= 60_000))


def ads(spark: SparkSession, bootstrap: str, role: str, topic: str, rows: int, **options: Any) -> DataFrame:
    """Return a topic as a stream of ads and their times, so many rows a batch."""
    reader = (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("sourceName", role)
        .option("maxOffsetsPerTrigger", str(rows))
    )
    followed = follow_watermark(reader.options(**options).load())
    rows_of_ads = followed.selectExpr("bigint(conv(hex(value), 16, 10)) AS ad", f"event_time AS {role}_at")
    times = F.unix_millis(f"{role}_at")
    return rows_of_ads.observe(role, F.min(times).alias("first"), F.max(times).alias("last"))


def replay(
    spark: SparkSession,
    bootstrap: str,
    day: Day,
    console: Console,
    topics: Mapping[str, str] = TOPICS,
    **options: Any,
) -> Joined:
    """Join the topics from their beginning to what is their end now."""
    shown = ads(spark, bootstrap, SHOWN, topics[SHOWN], FASTER * day.slow_batch, **options)
    clicked = ads(spark, bootstrap, CLICKED, topics[CLICKED], day.slow_batch, **options).withColumnRenamed(
        "ad", "clicked_ad"
    )
    within = F.expr("ad = clicked_ad AND clicked_at BETWEEN shown_at AND shown_at + INTERVAL 1 MINUTE")
    joined = Joined()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="two-topics-join-") as checkpoint:
        query = (
            shown.join(clicked, within)
            .writeStream.foreachBatch(joined.sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        progress = Progress(console, [query], lambda: f"{count_text(joined.result[0])} rows joined")
        with stopped_at_the_end(query):
            progress.wait_until(lambda: not query.isActive)
            query.awaitTermination()
    joined.seconds = time.monotonic() - began
    joined.kept = [
        sum(int(operator["numRowsTotal"]) for operator in progress["stateOperators"])
        for progress in query.recentProgress
    ]
    joined.drift_ms = greatest_drift([progress.observedMetrics for progress in query.recentProgress])
    return joined


def greatest_drift(batches: Sequence[Mapping[str, Any]]) -> int:
    """Return the most by which a row of one topic came before an older one of the other, in milliseconds.

    Args:
        batches: of each the first and last event time of the topics, by name; null where a topic had no row.
    """
    found = [0]
    for ahead, behind in ((SHOWN, CLICKED), (CLICKED, SHOWN)):
        last, first = _of_each(batches, ahead, "last", -math.inf), _of_each(batches, behind, "first", math.inf)
        reached, to_come = accumulate(last, max), list(accumulate(reversed(first), min))[::-1]
        found += [int(at - later) for at, later in zip(reached, to_come[1:], strict=False) if at > later]
    return max(found)


def _of_each(batches: Sequence[Mapping[str, Any]], topic: str, what: str, nothing: float) -> list[float]:
    seen = [batch[topic][what] if topic in batch else None for batch in batches]
    return [nothing if at is None else at for at in seen]


def chart(series: Sequence[int], highest: int, *, width: int = 60, height: int = 6) -> list[str]:
    """Return a column chart as lines of text; each column is the highest of the batches that share it."""
    columns = min(width, len(series))
    edges = [round(n * len(series) / columns) for n in range(columns + 1)]
    eighths = [round(max(series[a:b]) * height * 8 / max(1, highest)) for a, b in pairwise(edges)]
    return [
        "".join(" ▁▂▃▄▅▆▇█"[min(8, max(0, filled - 8 * line))] for filled in eighths)
        for line in reversed(range(height))
    ]


def show(replays: dict[str, Joined], console: Console) -> None:
    """Print the charts, to one scale, and the figures side by side."""
    highest = max(joined.highest for joined in replays.values())
    for title, joined in replays.items():
        console.print(f"state rows after each batch, {title} (full height: {count_text(highest)})")
        for line in chart(joined.kept, highest):
            console.print("  |" + line, markup=False, highlight=False)
        console.print("  +" + "-" * min(60, len(joined.kept)), markup=False)
    table = Table()
    table.add_column("")
    for title in replays:
        table.add_column(title, justify="right")
    for label, figures in (
        ("most rows in state", [count_text(joined.highest) for joined in replays.values()]),
        (
            f"most apart (limit: {DRIFT_MINUTES} min)",
            [f"{joined.drift_ms / 60_000:.3f} min" for joined in replays.values()],
        ),
        ("rows joined", [count_text(joined.result[0]) for joined in replays.values()]),
        ("batches", [str(len(joined.kept)) for joined in replays.values()]),
        ("seconds", [f"{joined.seconds:.0f}" for joined in replays.values()]),
    ):
        table.add_row(label, *figures)
    console.print(table)


def main(console: Console) -> int:
    """Run the example; exit status 1 if the two replays differ, or if rows are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="of both topics together (default 400 000)")
    parser.add_argument("--hours", type=float, default=8, help="of event time that they span (default 8)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    day = Day(given.rows // 2, given.hours)
    console.print("preparing its broker and data …")
    with (
        topic_of(given.kafka, SHOWN, PARTITIONS) as (bootstrap, shown),
        topic_of(bootstrap, CLICKED, PARTITIONS) as (_, clicked),
    ):
        topics = {SHOWN: shown, CLICKED: clicked}
        expected = produce(bootstrap, day, topics)
        with quiet_spark("two-topics-join", console, {"spark.driver.memory": "3g", **STATE_STORE}) as spark:
            replays = {
                "alone": replay(spark, bootstrap, day, console, topics),
                "aligned": replay(spark, bootstrap, day, console, topics, **ALIGNED),
            }
    show(replays, console)
    alone, aligned = replays["alone"], replays["aligned"]
    equal = alone.result == aligned.result and alone.result[0] == expected
    console.print(f"{alone.highest / max(1, aligned.highest):.1f} times fewer rows in state when aligned.")
    console.print("The results are equal and whole." if equal else f"The results DIFFER, {expected} rows were due.")
    return 0 if equal else 1


if __name__ == "__main__":
    run_demo(main)
