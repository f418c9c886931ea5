"""A database of a test's own, and what the binlog states about one of its tables, decoded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import end_statement
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from services.mysql import MySql
from services.mysql_client import connect, run
from services.wait_until import wait_until

DEEP_RECURSION = (
    "SET SESSION /*!80000 cte_max_recursion_depth = 1000000 */ /*M!100000 max_recursive_iterations = 1000000 */"
)
"""For WITH RECURSIVE, on both servers."""


@dataclass
class Database:
    """One database; ``run`` runs statements in it."""

    server: MySql
    name: str
    since: FilePosition
    charsets: dict[int, str]

    def run(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        settings = (self.server.host, self.server.port)
        with connect(*settings, database=self.name) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    def dump(self, since: FilePosition | bytes | None = None) -> BinlogDump:
        return BinlogDump(root(self.server), since or self.since)

    def changes(self, *tables: str, since: FilePosition | bytes | None = None, **options: Any) -> Iterator[Changes]:
        """Decode all that the binlog has about some tables of this database."""

        def wanted(table: TableMap) -> list[str] | None:
            chosen = table.database == self.name and table.table in tables
            return [str(column.name) for column in table.columns] if chosen else None

        decoder = ChangeDecoder(self.charsets, wanted, **options)
        with closing(self.dump(since)) as dump:
            for block in dump.blocks():
                yield from decoder.decode(block.memory, block.events, block.file)


def shorten(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Give the logins of a test other limits, by the names of their fields; those that an option sets, it does not."""
    defaults = LoginSettings.__init__.__kwdefaults__
    assert defaults is not None
    for name, value in seconds.items():
        assert name in defaults
        monkeypatch.setitem(defaults, name, value)


def root(server: MySql) -> LoginSettings:
    return LoginSettings(server.host, server.port, "root", "")


def end_of_binlog(server: MySql) -> FilePosition:
    """Where the next event will be."""
    with closing(MySqlConnection(root(server))) as connection:
        statement = end_statement(connection)
    ((file, position, *_),) = run(server.host, server.port, statement)
    return FilePosition(file, position)


def purge_before_end(database: Database) -> None:
    """Remove all files before the current one; a server keeps those that a dump which is being closed still reads."""
    file = end_of_binlog(database.server).file

    def purged() -> bool:
        database.run(f"PURGE BINARY LOGS TO '{file}'")
        return str(database.run("SHOW BINARY LOGS")[0][0]) == file

    wait_until(purged, 60, f"the purge of all binlog files before {file}")


@contextmanager
def new_database(server: MySql, *, drop: bool = True) -> Iterator[Database]:
    """Make a database; what the binlog has about it begins at ``since``."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    since = end_of_binlog(server)
    with closing(MySqlConnection(root(server))) as connection:
        charsets = dict(collations_of(connection).charsets)
    run(server.host, server.port, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield Database(server, name, since, charsets)
    if drop:
        run(server.host, server.port, f"DROP DATABASE {name}")


def python_rows(images: Changes) -> list[list[Any]]:
    """The rows as Python values, durations and moments without a zone."""
    return [list(row) for row in zip(*(_values(column) for column in images.columns), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.view(pa.timestamp("us"))
    return column.to_pylist()
