"""Orders in JSON, counted per minute of ``created_at``: as withWatermark has it, and by a watermark per partition.

``make demo-json`` runs this. The three partitions of the topic are written together, but their producers are not alike:
one is on time, one delivers what happened half an hour ago, one has a clock that is an hour fast. A watermark on the
parsed column follows the fastest, and the rows of the others are late. With ``eventTimeColumn`` the source itself knows
the event time of each record, so each partition has a watermark of its own.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from examples.demo import introduce, last_sentence, quiet_spark, run_demo, say
from examples.servers import add_addresses, topic_of
from examples.sinks import counted_windows
from watermark_source import data_rows, follow_watermark
from watermark_source.durations import count_text

TOPIC = "json-orders"
START_MS = 1_767_225_600_000  # 2026-01-01
DISORDER_MS = 30_000
AHEAD_MS = (0, -1_800_000, 3_600_000)
"""How far the event times of each partition are from when its orders are written."""
SET_UP = """\
{orders} orders in JSON are in three partitions that were written together: 0 is on time, 1 delivers orders of half an
hour ago, 2 has a clock that is an hour fast. Two queries count them by minute of order.created_at: one with
withWatermark on the column of from_json, and one with eventTimeColumn, by which the source knows the time of each
record, and valueFormat, by which it decodes them."""
SCHEMA = "order STRUCT<id: STRING, created_at: TIMESTAMP>, amount DOUBLE"


@dataclass(frozen=True)
class Result:
    """What a query counted: orders by the start of their minute, and how many orders it lost."""

    windows: dict[int, int]
    lost: int


def produce(bootstrap: str, topic: str, rows: int) -> Counter[int]:
    """Write ``rows`` orders to each partition, and return how many there are in each minute."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    minutes: Counter[int] = Counter()
    for n in range(rows):
        for partition, ahead in enumerate(AHEAD_MS):
            event_time = START_MS + ahead + 500 * n - n * 7_919 % DISORDER_MS
            minutes[event_time // 60_000 * 60_000] += 1
            created_at = datetime.fromtimestamp(event_time / 1_000, UTC).isoformat(timespec="milliseconds")
            order = {"order": {"id": f"{partition}-{n}", "created_at": created_at}, "amount": n % 100}
            producer.send(topic, json.dumps(order).encode(), partition=partition, timestamp_ms=START_MS + 500 * n)
    producer.flush()
    producer.close()
    return minutes


def orders(spark: SparkSession, bootstrap: str, topic: str, rows: int, **options: str) -> DataFrame:
    """Return the topic as a stream that takes several batches for it, as a query does that runs for long."""
    return (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(1, rows * len(AHEAD_MS) // 6))
        .options(**options)
        .load()
    )


def on_the_parsed_column(spark: SparkSession, bootstrap: str, topic: str, rows: int) -> DataFrame:
    """Return the orders as users write it with Spark's own source."""
    document = F.from_json(F.col("value").cast("string"), SCHEMA).alias("json")
    stream = data_rows(orders(spark, bootstrap, topic, rows)).select(document).select("json.*")
    return stream.withColumn("event_time", F.col("order.created_at")).withWatermark("event_time", "30 seconds")


def by_partition(spark: SparkSession, bootstrap: str, topic: str, rows: int) -> DataFrame:
    """Return the orders as the source decodes them, with a watermark that it makes from the documents."""
    decoded = {"valueFormat": "json", "valueSchema": SCHEMA, "timeZone": "UTC"}
    options = {**decoded, "eventTimeColumn": "value:$.order.created_at", "maxOutOfOrderness": "30 seconds"}
    return follow_watermark(orders(spark, bootstrap, topic, rows, **options)).select("event_time", "payload.*")


def count(rows: DataFrame, produced: Counter[int], console: Console, title: str) -> Result:
    """Count the orders of each minute until all are read; what is still open at the end is no loss."""
    windows = counted_windows(rows, "1 minute", console, title)
    closed = [start for start in produced if start <= max(windows, default=0)]
    return Result(windows, sum(produced[start] - windows.get(start, 0) for start in closed))


def side_by_side(results: dict[str, Result], console: Console) -> None:
    """Print the results as a table."""
    table = Table("", *results, title="orders per minute of order.created_at")
    table.add_row("windows closed", *(str(len(each.windows)) for each in results.values()))
    table.add_row("orders missing from them", *(str(each.lost) for each in results.values()))
    console.print(table)
    console.print("Fewer windows are closed by eventTimeColumn: those the slowest partition has not come to are open.")


def main(console: Console) -> int:
    """Run the example; exit status 1 if ours lost an order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000, help="orders in each partition (default 4000)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    rows: int = given.rows
    introduce(console, SET_UP.format(orders=count_text(rows * len(AHEAD_MS))))
    with topic_of(given.kafka, TOPIC, partitions=len(AHEAD_MS)) as (bootstrap, topic):
        produced = produce(bootstrap, topic, rows)
        with quiet_spark("json-event-time", console) as spark:
            streams = {
                "withWatermark": on_the_parsed_column(spark, bootstrap, topic, rows),
                "eventTimeColumn": by_partition(spark, bootstrap, topic, rows),
            }
            results = {title: count(stream, produced, console, title) for title, stream in streams.items()}
    side_by_side(results, console)
    plain, ours = (each.lost for each in results.values())
    say(console, last_sentence("withWatermark", plain, produced.total(), "orders", ours_lost=ours))
    return 1 if results["eventTimeColumn"].lost else 0


if __name__ == "__main__":
    run_demo(main)
