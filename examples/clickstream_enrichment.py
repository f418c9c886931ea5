"""Clicks from Kafka, each joined with its user from MySQL: none comes out before all users are there.

The job that FLIP-326 begins with, in PySpark::

    INSERT INTO print_sink
    SELECT click_event.user_id AS user_id, item_id, gender FROM click_event
    LEFT JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime
    ON click_event.user_id = user_info.user_id;

Clicks and users are there before the query starts, and both are read from the first moment on: the alignment group
holds the clicks in Kafka until the snapshot of the users is complete. Before that, the same without a group and without
waiting, as its other side. Ends by counting clicks that missed their user.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

from examples.demo import (
    ROCKSDB,
    Progress,
    introduce,
    last_sentence,
    quiet_spark,
    run_demo,
    say,
    stopped_at_the_end,
)
from examples.servers import Login, MySqlServer, add_addresses, database_of, topic_of
from examples.sinks import WholeBatches
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
APART: dict[str, Any] = {"watermarkStrategy": "none"}
"""Options of sources in no group: each is read as fast as it can be."""
READER = Login("enrichment", "an example")
SET_UP = """\
{clicks} clicks are in Kafka, {users} users in MySQL, all there before the queries start. Each click is joined with its
user, twice: by a join that answers a click at once, with the users that have been read by then, and by one whose
alignment group holds the clicks in Kafka until the snapshot of the users is complete."""
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


def click_event(
    spark: SparkSession, bootstrap: str, topic: str = TOPIC, together: dict[str, Any] = TOGETHER
) -> DataFrame:
    """Return the clicks; their time is the clock."""
    rows = (
        spark.readStream.format("aligned-kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
        .options(**together, sourceName="clicks")
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
        .options(excludeColumns="_snapshot,_commit_timestamp,_database,_table")
        .options(**together, sourceName="users", **options)
        .load()
    )
    return follow_watermark(rows)


def enriched(clicks: DataFrame, users: DataFrame, **options: Any) -> DataFrame:
    """Return the clicks with the gender of their users."""
    joined = temporal_join(clicks, users, on="user_id", probe_time="proctime", how="left", **options)
    return joined.select("user_id", "item_id", "gender")


class Clicks:
    """Counts the clicks that come out, and those without their user."""

    def __init__(self) -> None:
        self.clicks = 0
        self.missed = 0

    def add(self, batch: DataFrame, _: int) -> None:
        """Take in one batch."""
        found = batch.select(F.count("*").alias("n"), F.count("gender").alias("with_user")).collect()[0]
        self.clicks += found.n
        self.missed += found.n - found.with_user


def joined(rows: DataFrame, clicks: int, title: str, console: Console) -> Clicks:
    """Run a query until so many clicks have come out, and return what it counted."""
    sink = Clicks()
    batches = WholeBatches(sink.add)
    console.print(f"starting {title} …")
    with tempfile.TemporaryDirectory(prefix="clicks-") as checkpoint:
        query = rows.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint).queryName(title).start()
        progress = Progress(
            console,
            [query],
            lambda: f"{title}: {count_text(sink.clicks)} clicks have come out, {count_text(sink.missed)} without user",
        )
        with stopped_at_the_end(query), closing(batches):
            progress.wait_until(lambda: sink.clicks >= clicks)
    return sink


def verdict(at_once: Clicks, waited: Clicks) -> str:
    """Return the last sentence of a demo: how many clicks each join left without their user."""
    return last_sentence(
        "A join that does not wait for the users", at_once.missed, at_once.clicks, "users of clicks",
        ours="the join that waits", ours_lost=waited.missed,
    )  # fmt: skip


def main(console: Console) -> int:
    """Run the example; exit status 1 if a click missed its user."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=200_000, help="how many clicks (default 200 000)")
    parser.add_argument("--users", type=int, default=100_000, help="how many users (default 100 000)")
    add_addresses(parser, kafka=True, mysql=True)
    given = parser.parse_args()
    introduce(console, SET_UP.format(clicks=count_text(given.clicks), users=count_text(given.users)))
    with (
        topic_of(given.kafka, TOPIC, PARTITIONS) as (bootstrap, topic),
        database_of(given.mysql, DATABASE, READER) as (server, database, reader),
    ):
        fill_users(server, given.users, database)
        produce_clicks(bootstrap, given.clicks, given.users, topic)
        with quiet_spark("clickstream-enrichment", console, ROCKSDB) as spark:
            # As of a table that is too large for one batch.
            snapshot = {"snapshotChunkRows": max(1, given.users // 8), "snapshotParallelism": 1}

            def streams(together: dict[str, Any]) -> tuple[DataFrame, DataFrame]:
                users = user_info(spark, server.address, database, reader, together, **snapshot)
                return click_event(spark, bootstrap, topic, together), users

            at_once = joined(enriched(*streams(APART), wait=False), given.clicks, "a join that does not wait", console)
            waited = joined(enriched(*streams(TOGETHER)), given.clicks, "a join that waits", console)
    say(console, verdict(at_once, waited))
    return 0 if not waited.missed else 1


if __name__ == "__main__":
    run_demo(main)
