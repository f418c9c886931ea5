"""Tables that are being written to, copied by their stream: snapshot, then binlog. ``make demo-mysql`` runs this.

Two tables of orders are filled, and four writers go on inserting, updating, deleting and changing primary keys while a
query reads what the tables hold and then the binlog. Each batch is merged into tables of SQLite. Ends by comparing
these with the server, row by row.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from examples.servers import Login, MySqlServer, add_addresses, database_of
from examples.sinks import WholeBatches, stop_between_batches
from watermark_source import data_rows
from watermark_source.durations import count_text
from watermark_source.monitor.status_json import parse_progress
from watermark_source.monitor.terminal import LiveStatus

TABLES = ("orders_eu", "orders_us")
COLUMNS = "id, customer, amount"
DATABASE = "shop"
READER = Login("cdc", "an example")
WRITERS = 4
PATIENCE_SECONDS = 300
"""Without any progress; far more than a busy laptop needs to compile the decoders for the first batch."""
_INSERT_ROWS = 10_000


def fill(server: MySqlServer, database: str, rows: int) -> None:
    """Make the tables."""
    for number, table in enumerate(TABLES):
        # The second has twice as many.
        last = rows * (number + 1) // 3
        statements = [
            f"INSERT INTO {database}.{table} VALUES "
            + ", ".join(
                f"({i}, 'customer {i % 997}', {i % 100})" for i in range(first, min(first + _INSERT_ROWS, last))
            )
            for first in range(0, last, _INSERT_ROWS)
        ]
        columns = "id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(10, 2)"
        server.run(f"CREATE TABLE {database}.{table} ({columns})", *statements, f"ANALYZE TABLE {database}.{table}")


class Writer(threading.Thread):
    """Changes the tables, up to two hundred times a second, until it is stopped."""

    def __init__(self, server: MySqlServer, database: str, seed: int, keys: int) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.transactions = 0
        self._server = server
        self._database = database
        self._chance = random.Random(seed)
        self._keys = keys

    def run(self) -> None:
        with closing(self._server.connect()) as connection, connection.cursor() as cursor:
            while not self.stopped.wait(0.005):
                try:
                    cursor.execute(self._statement())
                except (pymysql.err.IntegrityError, pymysql.err.OperationalError):
                    # A key that is there already, or a row that another writer has: what else is a busy table?
                    continue
                self.transactions += 1

    def _statement(self) -> str:
        table, one, other = (
            f"{self._database}.{self._chance.choice(TABLES)}",
            *self._chance.choices(range(self._keys), k=2),
        )
        amount = self._chance.randrange(10_000) / 100
        return self._chance.choice(
            [
                f"INSERT INTO {table} VALUES ({one}, 'new', {amount})",
                f"UPDATE {table} SET amount = {amount} WHERE id BETWEEN {one} AND {one + 9}",
                f"DELETE FROM {table} WHERE id = {one}",
                f"UPDATE {table} SET id = {other} WHERE id = {one}",
                f"REPLACE INTO {table} VALUES ({one}, 'again', {amount})",
            ]
        )


class Copy:
    """The tables of SQLite that the stream keeps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.changes = 0
        with self._open() as database:
            for table in TABLES:
                database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, customer TEXT, amount TEXT)")

    def merge(self, batch: DataFrame, _: int) -> None:
        """Make the copy what the tables were at the end of a batch: of each key the last change counts."""
        last = F.max_by(F.struct("_change_type", "customer", "amount"), F.struct("_commit_version", "_change_number"))
        changes = data_rows(batch).where("_change_type <> 'update_preimage'")
        rows = changes.groupBy("_table", "id").agg(last.alias("last"), F.count("*").alias("changes"))
        found = rows.select(
            "_table", "id", F.col("last._change_type").alias("type"), "last.customer",
            F.col("last.amount").cast("string").alias("amount"), "changes",
        ).toArrow().to_pylist()  # fmt: skip
        with self._open() as database:
            for table in TABLES:
                own = [row for row in found if row["_table"] == table]
                gone = [row for row in own if row["type"] == "delete"]
                kept = [row for row in own if row["type"] != "delete"]
                database.executemany(f"DELETE FROM {table} WHERE id = :id", gone)
                database.executemany(f"INSERT OR REPLACE INTO {table} VALUES (:id, :customer, :amount)", kept)
        self.changes += sum(row["changes"] for row in found)

    def rows(self, table: str) -> dict[int, tuple[Any, ...]]:
        """Return the rows of a table by their keys."""
        with self._open() as database:
            return {row[0]: row for row in database.execute(f"SELECT {COLUMNS} FROM {table}")}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # Spark calls from threads of its own.
        with closing(sqlite3.connect(self._path)) as connection, connection:
            yield connection


def differences(server: MySqlServer, database: str, copy: Copy) -> tuple[int, int]:
    """Return how many rows the server's tables have, and how many of them and of the copy's have no equal."""
    rows = different = 0
    for table in TABLES:
        found = server.run(f"SELECT id, customer, CAST(amount AS CHAR) FROM {database}.{table}")
        original, copied = {row[0]: row for row in found}, copy.rows(table)
        rows += len(original)
        different += sum(original.get(key) != copied.get(key) for key in original.keys() | copied.keys())
    return rows, different


def wait_for_the_binlog(query: StreamingQuery) -> None:
    """Return when the snapshot has been read."""
    read, deadline = -1, time.monotonic() + PATIENCE_SECONDS
    while True:
        status = parse_progress(query.lastProgress)
        if status and not status[0].snapshots and status[0].rows.read:
            return
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        if status and status[0].rows.read != read:
            read, deadline = status[0].rows.read, time.monotonic() + PATIENCE_SECONDS
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing was read for {PATIENCE_SECONDS} s ({query.status['message']})")
        time.sleep(0.2)


def stream(
    spark: SparkSession,
    server: MySqlServer,
    database: str,
    reader: Login,
    *,
    rows: int,
    seconds: int,
    console: Console,
) -> bool:
    """Copy the tables while they are written to, and return whether the copy is equal in the end."""
    options: dict[str, Any] = {
        "hostname": server.host, "port": server.port, "username": reader.user, "password": reader.password,
        "tables": ",".join(f"{database}.{table}" for table in TABLES), "snapshotChunkRows": max(1, rows // 16),
        "snapshotParallelism": 2, "sourceName": "shop",
    }  # fmt: skip
    writers = [Writer(server, database, seed, rows) for seed in range(WRITERS)]
    with tempfile.TemporaryDirectory(prefix="mysql-changes-") as folder:
        copy = Copy(Path(folder, "copy.db"))
        changes = spark.readStream.format("mysql-cdc-wm").options(**options).load()
        for writer in writers:
            writer.start()
        batches = WholeBatches(copy.merge)
        query = changes.writeStream.foreachBatch(batches).option("checkpointLocation", f"{folder}/query").start()
        try:
            with LiveStatus(query, console=console):
                wait_for_the_binlog(query)
                query.awaitTermination(seconds)
                for writer in writers:
                    writer.stopped.set()
                    writer.join()
                query.processAllAvailable()
        finally:
            # Before its checkpoint is removed.
            batches.close()
            stop_between_batches(query)
        found, different = differences(server, database, copy)
    console.print(
        f"{count_text(sum(writer.transactions for writer in writers))} transactions meanwhile; "
        f"{count_text(copy.changes)} rows and changes came through the stream."
    )
    equal = "equal in every row." if not different else f"DIFFERENT in {count_text(different)} rows."
    console.print(f"The server's tables have {count_text(found)} rows, and the copy is {equal}")
    return found > 0 and not different


def main() -> int:
    """Run the demo; exit status 1 if a row of the copy is different."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="how many rows to begin with (default 300 000)")
    parser.add_argument("--seconds", type=int, default=15, help="how long to read the binlog (default 15)")
    add_addresses(parser, mysql=True)
    given = parser.parse_args()
    console = Console()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with database_of(given.mysql, DATABASE, READER) as (server, database, reader):
        console.print(f"filling two tables with {count_text(given.rows)} rows …")
        fill(server, database, given.rows)
        console.print("starting Spark …")
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("mysql-changes")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            equal = stream(spark, server, database, reader, rows=given.rows, seconds=given.seconds, console=console)
        finally:
            spark.stop()
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
