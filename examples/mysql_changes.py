"""Tables under writes, copied by their stream: snapshot, then binlog. ``make demo-mysql`` runs this.

Two tables of orders are filled, and four writers keep inserting, updating, deleting and changing primary keys while a
query reads what the tables hold and then the binlog. Each batch is merged into tables of SQLite. Ends by comparing
these with the server, row by row.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from examples.demo import Progress, introduce, last_sentence, quiet_spark, run_demo, say, stopped_at_the_end
from examples.servers import Login, MySqlServer, add_addresses, database_of
from examples.sinks import WholeBatches
from watermark_source import data_rows
from watermark_source.durations import count_text
from watermark_source.monitor.terminal import LiveStatus
from watermark_source.status_model.status_json import parse_progress

TABLES = ("orders_eu", "orders_us")
COLUMNS = "id, customer, amount"
DATABASE = "shop"
READER = Login("cdc", "an example")
WRITERS = 4
SET_UP = """\
Two tables of MySQL have {rows} rows in all, and four writers insert, update, delete and change keys without pause. A
query reads what the tables hold, then the binlog for {seconds} s, and merges each batch into tables of SQLite. At the
end both are compared row by row, and the same is done with a copy by SELECT, as a JDBC reader takes it."""
Tables = dict[str, dict[int, tuple[Any, ...]]]
"""The rows of each table by their keys."""
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

    def rows(self) -> Tables:
        """Return the rows of the tables by their keys."""
        with self._open() as database:
            return {
                table: {row[0]: row for row in database.execute(f"SELECT {COLUMNS} FROM {table}")} for table in TABLES
            }

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # Spark calls from threads of its own.
        with closing(sqlite3.connect(self._path)) as connection, connection:
            yield connection


def rows_of(server: MySqlServer, database: str) -> Tables:
    """Return the rows of the server's tables, as a reader without the binlog gets them: by SELECT."""
    columns = "id, customer, CAST(amount AS CHAR)"
    return {table: {row[0]: row for row in server.run(f"SELECT {columns} FROM {database}.{table}")} for table in TABLES}


def differences(server: Tables, copy: Tables) -> int:
    """Return how many rows of the server's tables and of the copy's have no equal."""
    return sum(server[t].get(key) != copy[t].get(key) for t in TABLES for key in server[t].keys() | copy[t].keys())


def is_in_binlog(query: StreamingQuery) -> bool:
    """Return whether the snapshot has been read."""
    status = parse_progress(query.lastProgress)
    return bool(status) and not status[0].snapshots and status[0].rows.read > 0


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
        selected = rows_of(server, database)
        for writer in writers:
            writer.start()
        batches = WholeBatches(copy.merge)
        query = changes.writeStream.foreachBatch(batches).option("checkpointLocation", f"{folder}/query").start()

        def line() -> str:
            transactions = count_text(sum(writer.transactions for writer in writers))
            state = "the binlog is read" if is_in_binlog(query) else "the tables are read"
            return f"{state}; {transactions} transactions written, {count_text(copy.changes)} rows and changes copied"

        progress = Progress(console, [query], line)
        # Where nothing can be redrawn in place, the lines of progress are enough.
        live = LiveStatus(query, console=console) if console.is_terminal else nullcontext()
        with live, stopped_at_the_end(query), closing(batches):
            progress.wait_until(lambda: is_in_binlog(query))
            until = time.monotonic() + seconds
            progress.wait_until(lambda: time.monotonic() > until)
            for writer in writers:
                writer.stopped.set()
                writer.join()
            query.processAllAvailable()
        original = rows_of(server, database)
        total, lost = sum(map(len, original.values())), differences(original, copy.rows())
    console.print(f"{line()}. The server's tables have {count_text(total)} rows now.")
    say(
        console,
        last_sentence(
            "A copy by SELECT at the start",
            differences(original, selected),
            total,
            "rows in their last state",
            ours="this source's copy",
            ours_lost=lost,
        ),
    )
    return total > 0 and not lost


def main(console: Console) -> int:
    """Run the demo; exit status 1 if a row of the copy is different."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="how many rows to begin with (default 300 000)")
    parser.add_argument("--seconds", type=int, default=15, help="how long to read the binlog (default 15)")
    add_addresses(parser, mysql=True)
    given = parser.parse_args()
    introduce(console, SET_UP.format(rows=count_text(given.rows), seconds=given.seconds))
    with database_of(given.mysql, DATABASE, READER) as (server, database, reader):
        fill(server, database, given.rows)
        with quiet_spark("mysql-changes", console) as spark:
            equal = stream(spark, server, database, reader, rows=given.rows, seconds=given.seconds, console=console)
    return 0 if equal else 1


if __name__ == "__main__":
    run_demo(main)
