"""Clicks from Kafka, each joined with its user from MySQL: none comes out before all users are there.

The job that FLIP-326 begins with, in PySpark::

    INSERT INTO print_sink
    SELECT click_event.user_id AS user_id, item_id, gender FROM click_event
    LEFT JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime
    ON click_event.user_id = user_info.user_id;

Clicks and users are there before the query starts, and both are read from the first moment on: the alignment group
holds the clicks in Kafka until the snapshot of the users is complete. Ends by counting clicks that missed their user.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from examples.servers import Login, MySqlServer, add_addresses, database_of, topic_of
from examples.sinks import WholeBatches, stop_between_batches
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from watermark_source import follow_watermark, temporal_join
from watermark_source.durations import count_text

TOPIC, PARTITIONS = "click_event", 2
DATABASE = "shop"
GENDERS = ("female", "male")
TOGETHER: dict[str, Any] = {
    "alignmentGroup": "enrichment", "alignmentMembers": 2, "watermarkStrategy": "none",
}  # fmt: skip
"""Options of both sources: the group holds the clicks while the snapshot of the users is read."""
READER = Login("enrichment", "an example")
PATIENCE_SECONDS = 300
"""Without any progress; far more than a busy laptop needs to compile the decoders for the first batch."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_INSERT_ROWS = 10_000
_DIGITS = 8


def fill_users(server: MySqlServer, rows: int, database: str = DATABASE) -> None:
    """Make the table of users."""
    server.run(
        f"CREATE TABLE {database}.user_info (user_id INT PRIMARY KEY, gender VARCHAR(10) NOT NULL)",
        *(
            f"INSERT INTO {database}.user_info VALUES "
            + ", ".join(f"({i}, '{GENDERS[i % 2]}')" for i in range(first, min(first + _INSERT_ROWS, rows)))
            for first in range(0, rows, _INSERT_ROWS)
        ),
        f"ANALYZE TABLE {database}.user_info",
    )


def produce_clicks(bootstrap: str, clicks: int, users: int, topic: str = TOPIC) -> None:
    """Write clicks of users: a value is the user's id and the item's, of eight digits each."""
    ids = np.stack([np.random.default_rng(1).integers(0, users, clicks), np.arange(clicks)], axis=1)
    digits = ids[:, :, None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10
    values = (digits + ord("0")).astype(np.uint8).reshape(clicks, 2 * _DIGITS)
    now = np.full(clicks, int(time.time() * 1_000), dtype=np.int64)
    parts = {n: PartitionRecords(now[n::PARTITIONS], values=values[n::PARTITIONS]) for n in range(PARTITIONS)}
    bulk_produce_partitions(bootstrap, topic, parts)


def click_event(spark: SparkSession, bootstrap: str, topic: str = TOPIC) -> DataFrame:
    """Return the clicks; their time is the clock."""
    rows = (
        spark.readStream.format("aligned-kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
        .options(**TOGETHER, sourceName="clicks")
        .load()
    )
    return follow_watermark(rows).select(
        F.expr(f"CAST(substr(CAST(value AS STRING), 1, {_DIGITS}) AS INT)").alias("user_id"),
        F.expr(f"CAST(substr(CAST(value AS STRING), {_DIGITS + 1}) AS INT)").alias("item_id"),
        F.col("event_time").alias("proctime"),
    )


def user_info(
    spark: SparkSession,
    address: str,
    database: str = DATABASE,
    reader: Login = READER,
    together: dict[str, Any] = TOGETHER,
    **options: Any,
) -> DataFrame:
    """Return the users: a snapshot, then the binlog, on the clock from there on."""
    host, _, port = address.rpartition(":")
    rows = (
        spark.readStream.format("mysql-cdc-wm")
        .options(hostname=host, port=port, username=reader.user, password=reader.password)
        .options(tables=f"{database}.user_info")
        .options(excludeColumns="_snapshot,_commit_timestamp,_database,_table", useProcessingTimeDuringBinlog="true")
        .options(**together, sourceName="users", **options)
        .load()
    )
    return follow_watermark(rows)


def enriched(clicks: DataFrame, users: DataFrame, **options: Any) -> DataFrame:
    """Return the clicks with the gender of their users."""
    joined = temporal_join(clicks, users, on="user_id", probe_time="proctime", how="left", **options)
    return joined.select("user_id", "item_id", "gender")


class PrintSink:
    """Counts what comes out, and shows the first rows of each batch."""

    def __init__(self, console: Console) -> None:
        self.clicks = 0
        self.missed = 0
        self._console = console

    def add(self, batch: DataFrame, number: int) -> None:
        """Take in one batch."""
        found = batch.select(F.count("*").alias("n"), F.count("gender").alias("with_user")).collect()[0]
        if found.n:
            self.clicks += found.n
            self.missed += found.n - found.with_user
            first = batch.first()
            self._console.print(f"batch {number}: {count_text(found.n)} clicks, the first of them {tuple(first or ())}")


def wait_for(query: StreamingQuery, sink: PrintSink, clicks: int) -> None:
    """Return when all clicks have come out."""
    seen, deadline = -1, time.monotonic() + PATIENCE_SECONDS
    while sink.clicks < clicks:
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        last = query.lastProgress
        if last and last["batchId"] != seen:
            seen, deadline = last["batchId"], time.monotonic() + PATIENCE_SECONDS
        if time.monotonic() > deadline:
            raise SystemExit(f"no batch for {PATIENCE_SECONDS} s ({query.status['message']})")
        time.sleep(0.1)


@contextmanager
def session() -> Iterator[SparkSession]:
    """Yield a small Spark of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("clickstream-enrichment")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def print_clicks(rows: DataFrame, sink: PrintSink, clicks: int, checkpoint: str) -> None:
    """Run a query into the sink until that has so many clicks."""
    batches = WholeBatches(sink.add)
    query = rows.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint).start()
    try:
        wait_for(query, sink, clicks)
    finally:
        # Before its checkpoint is removed.
        batches.close()
        stop_between_batches(query)


def main() -> int:
    """Run the example; exit status 1 if a click missed its user."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=200_000, help="how many clicks (default 200 000)")
    parser.add_argument("--users", type=int, default=100_000, help="how many users (default 100 000)")
    add_addresses(parser, kafka=True, mysql=True)
    given = parser.parse_args()
    console = Console()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with (
        topic_of(given.kafka, TOPIC, PARTITIONS) as (bootstrap, topic),
        database_of(given.mysql, DATABASE, READER) as (server, database, reader),
    ):
        console.print(f"{count_text(given.users)} users in MySQL, {count_text(given.clicks)} clicks in Kafka …")
        fill_users(server, given.users, database)
        produce_clicks(bootstrap, given.clicks, given.users, topic)
        console.print("starting Spark …")
        sink = PrintSink(console)
        with session() as spark, tempfile.TemporaryDirectory(prefix="clickstream-") as folder:
            chunk = max(1, given.users // 8)
            users = user_info(spark, server.address, database, reader, snapshotChunkRows=chunk)
            rows = enriched(click_event(spark, bootstrap, topic), users)
            print_clicks(rows, sink, given.clicks, folder)
    console.print(f"{count_text(sink.clicks)} clicks, {count_text(sink.missed)} of them without their user.")
    return 0 if not sink.missed else 1


if __name__ == "__main__":
    sys.exit(main())
