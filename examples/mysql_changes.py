"""A table that is being written to, copied by its stream: snapshot, then binlog. ``python examples/mysql_changes.py``.

Starts a server of its own, or takes a running one by its options. Ends by comparing the copy with the table.
"""

from __future__ import annotations

import random
import tempfile
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from services.mysql import MySql, mysql_service
from services.mysql_client import run
from watermark_source import data_rows

ROWS = 20_000
SECONDS = 15
PASSWORD = "an example"


def prepare(server: MySql) -> None:
    """Make a table, and a user with no more rights than are needed."""
    numbers = ", ".join(f"({i}, {i % 100})" for i in range(ROWS))
    run(
        server.host, server.port, "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, amount INT NOT NULL)",
        f"INSERT INTO shop.orders VALUES {numbers}",
        f"CREATE USER 'cdc'@'%' IDENTIFIED BY '{PASSWORD}'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%'", "GRANT SELECT ON shop.orders TO 'cdc'@'%'",
    )  # fmt: skip


def write(server: MySql, stopped: threading.Event) -> None:
    """Change the table until told to stop."""
    chance = random.Random(1)
    while not stopped.is_set():
        one = chance.randrange(2 * ROWS)
        statement = chance.choice(
            [
                f"UPDATE shop.orders SET amount = amount + 1 WHERE id BETWEEN {one} AND {one + 10}",
                f"DELETE FROM shop.orders WHERE id = {one}",
                f"REPLACE INTO shop.orders VALUES ({one}, 1)",
            ]
        )
        run(server.host, server.port, statement)


def main() -> None:
    """Run the example."""
    copy: dict[int, int] = {}

    def apply(batch: DataFrame, number: int) -> None:
        """Make the copy what the table was at the end of the batch."""
        rows = data_rows(batch).orderBy("_commit_version", "_change_number").collect()
        for row in rows:
            if row["_change_type"] in ("insert", "update_postimage"):
                copy[row["id"]] = row["amount"]
            elif row["_change_type"] == "delete":
                del copy[row["id"]]
        print(f"batch {number}: {len(rows)} changes, the copy has {len(copy)} rows")

    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with mysql_service() as server, tempfile.TemporaryDirectory() as folder:
        prepare(server)
        options: dict[str, Any] = {
            "hostname": server.host, "port": server.port, "username": "cdc", "password": PASSWORD,
            "tables": "shop.orders", "snapshotChunkRows": 2_000,
        }  # fmt: skip
        changes = spark.readStream.format("mysql-cdc-wm").options(**options).load()
        stopped = threading.Event()
        writer = threading.Thread(target=write, args=(server, stopped))
        writer.start()
        query = changes.writeStream.foreachBatch(apply).option("checkpointLocation", folder).start()
        query.awaitTermination(SECONDS)
        stopped.set()
        writer.join()
        query.processAllAvailable()
        query.stop()
        table = dict(run(server.host, server.port, "SELECT id, amount FROM shop.orders"))
    different = {key for key in copy.keys() | table.keys() if copy.get(key) != table.get(key)}
    print(f"the table has {len(table)} rows; {len(different)} of the copy's are different")
    spark.stop()
    if different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
