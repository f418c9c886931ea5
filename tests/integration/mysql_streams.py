"""Queries over tables of a MySQL server: a database of the test's own, a user with no more rights than needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from services.mysql import MySql
from services.mysql_client import run
from tests.integration.mysql_binlog import Database, new_database
from tests.spark.queries import Streams

PASSWORD = "s3cr-et pass'word"
USER = "cdc"
RIGHTS = ("SELECT ON *.*", "REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*")
"""What a query over any table needs."""
CHANGE = ("_change_type", "_commit_version", "_change_number")


def make_user(server: MySql, name: str, *grants: str, password: str = PASSWORD) -> None:
    """Make a user again, with exactly these grants."""
    quoted = password.replace("'", "''")
    run(
        server.host, server.port, f"DROP USER IF EXISTS '{name}'@'%'",
        f"CREATE USER '{name}'@'%' IDENTIFIED BY '{quoted}'",
        *(f"GRANT {grant} TO '{name}'@'%'" for grant in grants),
    )  # fmt: skip


@dataclass
class MySqlStreams(Streams):
    """What a test needs to stream from a server."""

    database: Database = field(kw_only=True)

    def run_sql(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        return self.database.run(*statements)

    def source(self, tables: str = "t", **options: Any) -> DataFrame:
        """Load a stream of tables of the test's database."""
        server = self.database.server
        named = ",".join(f"{self.database.name}.{table}" for table in tables.split(","))
        given = {"hostname": server.host, "port": server.port, "username": USER, "password": PASSWORD, "tables": named}
        reader = self.spark.readStream.format("mysql-cdc-wm")
        for name, value in {**given, **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def changes(self, name: str, columns: Sequence[str]) -> list[Row]:
        """Return some columns of the data rows of a file sink, in the order of the changes."""
        found = self.result(name)
        if "marker" in found.columns:
            found = found.where("marker IS NULL")
        return found.orderBy("_commit_version", "_change_number").select(*columns).collect()


@pytest.fixture
def mysql_database(mysql: MySql) -> Iterator[Database]:
    """A new database of the run's server, and a user who may read it and the binlog."""
    make_user(mysql, USER, *RIGHTS)
    with new_database(mysql) as database:
        yield database


@pytest.fixture
def mysql_streams(spark: SparkSession, mysql_database: Database, tmp_path: Path) -> Iterator[MySqlStreams]:
    """Queries over that database; whatever still runs at the end of the test is stopped."""
    made = MySqlStreams(spark, tmp_path, database=mysql_database)
    yield made
    made.stop()
