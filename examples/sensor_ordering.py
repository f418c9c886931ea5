"""Readings of an on-time, an early and a late sensor, put in order of the time at which they were measured.

After the example of Pravega's PDP-26. A reading is written a moment after it was measured; one sensor's clock is ahead,
another sensor's readings are on their way for long. The watermark follows the time of writing, less what a reading may
be on its way (``maxOutOfOrderness``): rows that come later than that are late, and marked.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from examples.demo import ROCKSDB, Progress, quiet_spark, run_demo, stopped_at_the_end
from examples.servers import add_addresses, topic_of
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from watermark_source import follow_watermark, order_by_event_time

TOPIC = "readings"
START_MS = 1_510_626_600_000
BEHIND_MS = {"on time": 0, "early": -31_000, "late": 28_000}
"""By how much a sensor's readings are older than the time at which they are written; a partition each."""
JITTER_MS = 2_000
LAG_MS = 10_000
SHOWN = 6
Reading = tuple[str, str, int]
"""Plant, sensor, when it was measured (ms)."""


@dataclass
class Readings:
    """What left the query, in its order, and whether it was late."""

    batches: dict[int, list[tuple[Reading, bool]]] = field(default_factory=dict)

    def sink(self, batch: DataFrame, number: int) -> None:
        """Keep a batch; one that is retried replaces itself."""
        rows = batch.selectExpr("plant", "sensor", "unix_millis(measured_at)", "late").collect()
        self.batches[number] = [((plant, sensor, at), late) for plant, sensor, at, late in rows]

    @property
    def count(self) -> int:
        """How many have left."""
        return sum(map(len, self.batches.values()))

    def left(self, *, late: bool) -> list[Reading]:
        """Return those in order, or those that were late."""
        return [reading for number in sorted(self.batches) for reading, was in self.batches[number] if was == late]


def produce(bootstrap: str, topic: str, seconds: int) -> list[Reading]:
    """Write a reading of each sensor every second, and return all of them."""
    written = START_MS + 1_000 * np.arange(seconds)
    records, readings = {}, []
    for partition, (sensor, behind) in enumerate(BEHIND_MS.items()):
        measured = written - behind - np.arange(seconds) * 7_919 % JITTER_MS
        readings += [(f"plant {n % 2}", sensor, int(at)) for n, at in enumerate(measured)]
        texts = [";".join(map(str, reading)).ljust(40) for reading in readings[-seconds:]]
        values = np.frombuffer("".join(texts).encode(), dtype=np.uint8).reshape(seconds, 40)
        records[partition] = PartitionRecords(written, values)
    bulk_produce_partitions(bootstrap, topic, records)
    return readings


def in_order(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the readings of each plant in the order in which they were measured."""
    readings = (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOutOfOrderness", f"{LAG_MS} milliseconds")
        .option("maxOffsetsPerTrigger", "30")  # small batches, to see the watermark advance
        .load()
        .selectExpr("split(string(value), ';') AS parts", "marker")
        .selectExpr("parts[0] AS plant", "parts[1] AS sensor", "parts[2] AS millis", "marker")
        .selectExpr("plant", "sensor", "timestamp_millis(bigint(trim(millis))) AS measured_at", "marker")
    )
    return order_by_event_time(follow_watermark(readings, "measured_at"), key="plant", time="measured_at")


def run(spark: SparkSession, bootstrap: str, topic: str, console: Console) -> Readings:
    """Read all that is there now."""
    readings = Readings()
    with tempfile.TemporaryDirectory(prefix="sensor-ordering-") as checkpoint:
        query = (
            in_order(spark, bootstrap, topic)
            .writeStream.foreachBatch(readings.sink)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        progress = Progress(console, [query], lambda: f"{len(readings.batches)} batches, {readings.count} readings out")
        with stopped_at_the_end(query):
            progress.wait_until(lambda: not query.isActive)
            query.awaitTermination()
    return readings


def show(readings: Readings, console: Console) -> None:
    """Print what became of each sensor's readings, and the first ones in order."""
    table = Table(title="readings of each sensor")
    for column in ("sensor", "in order", "late"):
        table.add_column(column, justify="left" if column == "sensor" else "right")
    counts = {late: Counter(sensor for _, sensor, _ in readings.left(late=late)) for late in (False, True)}
    for sensor in BEHIND_MS:
        table.add_row(sensor, str(counts[False][sensor]), str(counts[True][sensor]))
    console.print(table)
    ordered = [reading for reading in readings.left(late=False) if reading[0] == "plant 0"]
    middle = len(ordered) // 2
    for plant, sensor, measured in ordered[middle : middle + SHOWN]:
        console.print(f"{plant}: measured at {(measured - START_MS) / 1_000:8.3f} s, {sensor}")


def verdict(readings: Readings, written: list[Reading], console: Console) -> bool:
    """Print whether every reading is in order, late or still to come."""
    ordered = readings.left(late=False)
    by_plant: dict[str, list[int]] = {}
    for plant, _, measured in ordered:
        by_plant.setdefault(plant, []).append(measured)
    is_ordered = all(times == sorted(times) for times in by_plant.values())
    out = Counter(ordered) + Counter(readings.left(late=True))
    watermark = max(measured for _, sensor, measured in written if not BEHIND_MS[sensor]) - LAG_MS
    waiting = Counter(written) - out
    whole = not out - Counter(written) and all(measured >= watermark for _, _, measured in waiting)
    console.print(
        f"{len(written)} readings written: {len(ordered)} left {'in order' if is_ordered else 'OUT OF ORDER'}, "
        f"{out.total() - len(ordered)} late, {waiting.total()} wait for the watermark"
        + ("." if whole else ", which is WRONG.")
    )
    return whole and is_ordered


def main(console: Console) -> int:
    """Run the example; exit status 1 if a reading is missing or out of order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="how long the sensors measure (default 300)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    console.print("preparing its broker and data …")
    with topic_of(given.kafka, TOPIC, len(BEHIND_MS)) as (bootstrap, topic):
        written = produce(bootstrap, topic, given.seconds)
        with quiet_spark("sensor-ordering", console, ROCKSDB) as spark:
            readings = run(spark, bootstrap, topic, console)
    show(readings, console)
    return 0 if verdict(readings, written, console) else 1


if __name__ == "__main__":
    run_demo(main)
