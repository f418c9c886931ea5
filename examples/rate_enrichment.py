"""The job of FLIP-326 with its ``datagen``: clicks of Spark's rate source, each joined with its user from MySQL.

Spark's source is in no alignment group, so that nothing can hold it. By default its clicks wait in state until the
snapshot of the users is complete, and each finds its user; with ``wait=False`` each is answered in its own batch, with
what has been read of the users up to then. Both run, one after the other. Clicks come by the batch
(``rate-micro-batch``), and so do users: how many miss each other does not depend on how fast the machine is. Ends by
counting them.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.clickstream_enrichment import (
    APART,
    DATABASE,
    READER,
    Clicks,
    enriched,
    fill_users,
    joined,
    user_info,
    verdict,
)
from examples.demo import ROCKSDB, introduce, quiet_spark, run_demo, say
from examples.servers import Login, add_addresses, database_of
from watermark_source import follow_clock
from watermark_source.durations import count_text

SET_UP = """\
{users} users are in MySQL, which are read in eight batches; with each batch from the first on come {clicks} clicks from
Spark's rate source. Each click is joined with its user, twice: by a join that answers a click at once, with the users
that have been read by then, and by one whose clicks wait in state until the snapshot of the users is complete."""
CHUNKS, BATCHES = 8, 10
"""Of the users' snapshot, one a batch, and of the clicks."""


def click_event(spark: SparkSession, users: int, rows_per_batch: int) -> DataFrame:
    """Return clicks of users, as if drawn; their time is that of their batch."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch).load()
    clicks = rate.selectExpr(f"CAST(pmod(hash(value), {users}) AS INT) AS user_id", "value AS item_id")
    return follow_clock(clicks, "proctime")


def answered(
    spark: SparkSession,
    address: str,
    users: int,
    database: str = DATABASE,
    reader: Login = READER,
    *,
    rows_per_batch: int = 1_000,
    wait: bool = True,
    **options: Any,
) -> DataFrame:
    """Return the clicks with the gender of their users; ``options`` are those of the users' source."""
    clicks = click_event(spark, users, rows_per_batch)
    changing = user_info(spark, address, database, reader, APART, **options)
    return enriched(clicks, changing, **({"buffer": True} if wait else {"wait": False}))


def main(console: Console) -> int:
    """Run the example; exit status 1 if a click that waited missed its user."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=10_000, help="how many clicks (default 10 000)")
    parser.add_argument("--users", type=int, default=100_000, help="how many users (default 100 000)")
    add_addresses(parser, kafka=False, mysql=True)
    given = parser.parse_args()
    per_batch = max(1, given.clicks // BATCHES)
    introduce(console, SET_UP.format(users=count_text(given.users), clicks=count_text(per_batch)))
    with database_of(given.mysql, DATABASE, READER) as (server, database, reader):
        fill_users(server, given.users, database)
        with quiet_spark("rate-enrichment", console, ROCKSDB) as spark:

            def run(title: str, *, wait: bool) -> Clicks:
                rows = answered(
                    spark, server.address, given.users, database, reader,
                    rows_per_batch=per_batch, wait=wait,
                    snapshotChunkRows=max(1, given.users // CHUNKS), snapshotParallelism=1,
                )  # fmt: skip
                return joined(rows, given.clicks, title, console)

            at_once = run("a join that does not wait", wait=False)
            waited = run("a join that waits", wait=True)
    say(console, verdict(at_once, waited))
    return 0 if not waited.missed else 1


if __name__ == "__main__":
    run_demo(main)
