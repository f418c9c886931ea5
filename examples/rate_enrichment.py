"""The job of FLIP-326 with its ``datagen``: clicks of Spark's ``rate`` source, each joined with its user from MySQL.

Spark's ``rate`` is in no alignment group, so that nothing can hold it in its source. By default its clicks wait in
state until the snapshot of the users is complete, and each finds its user; with ``--no-wait`` each is answered in its
own batch, with what has been read of the users up to then. Ends by counting clicks that missed their user.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.clickstream_enrichment import (
    DATABASE,
    READER,
    PrintSink,
    enriched,
    fill_users,
    print_clicks,
    session,
    user_info,
)
from examples.servers import Login, add_addresses, database_of
from watermark_source import follow_clock
from watermark_source.durations import count_text

ON_CLOCK: dict[str, Any] = {"watermarkStrategy": "none"}
"""Options of the users, which are in no group with ``rate``."""


def click_event(spark: SparkSession, users: int, rows_per_second: int) -> DataFrame:
    """Return clicks of users, one after the other; their time is that of their batch."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
    clicks = rate.selectExpr(f"CAST(value % {users} AS INT) AS user_id", "value AS item_id")
    return follow_clock(clicks, "proctime")


def answered(
    spark: SparkSession,
    address: str,
    users: int,
    database: str = DATABASE,
    reader: Login = READER,
    *,
    rows_per_second: int = 1_000,
    wait: bool = True,
    **options: Any,
) -> DataFrame:
    """Return the clicks with the gender of their users; ``options`` are those of the users' source."""
    clicks = click_event(spark, users, rows_per_second)
    changing = user_info(spark, address, database, reader, ON_CLOCK, **options)
    return enriched(clicks, changing, **({"buffer": True} if wait else {"wait": False}))


def main() -> int:
    """Run the example; exit status 1 if a click that waited missed its user."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, default=10_000, help="how many clicks (default 10 000)")
    parser.add_argument("--users", type=int, default=100_000, help="how many users (default 100 000)")
    parser.add_argument("--no-wait", action="store_true", help="answer each click in its own batch")
    add_addresses(parser, kafka=False, mysql=True)
    given = parser.parse_args()
    console = Console()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with database_of(given.mysql, DATABASE, READER) as (server, database, reader):
        console.print(f"{count_text(given.users)} users in MySQL …")
        fill_users(server, given.users, database)
        console.print("starting Spark …")
        sink = PrintSink(console)
        with session() as spark, tempfile.TemporaryDirectory(prefix="rate-") as folder:
            rows = answered(
                spark, server.address, given.users, database, reader,
                wait=not given.no_wait, snapshotChunkRows=max(1, given.users // 8), snapshotParallelism=1,
            )  # fmt: skip
            print_clicks(rows, sink, given.clicks, folder)
    console.print(f"{count_text(sink.clicks)} clicks, {count_text(sink.missed)} of them without their user.")
    return 1 if sink.missed and not given.no_wait else 0


if __name__ == "__main__":
    sys.exit(main())
