"""A database of a test's own, and what the binlog says about one of its tables, decoded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.column import TableMap
from pyspark_mysql_cdc_wm.decoding import RowImages, TableDecoder
from pyspark_mysql_cdc_wm.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.events import HEADER_SIZE, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.table_map import read_table_map
from services.mysql import MySql
from services.mysql_client import connect, run
from services.mysql_program import Flavour

_ROWS = np.array(
    [
        EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
        EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
    ]
)  # fmt: skip


@dataclass
class Database:
    """One database; ``run`` runs statements in it."""

    server: MySql
    name: str
    since: FilePosition
    charsets: dict[int, str] = field(default_factory=dict)

    def run(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        with connect(self.server.host, self.server.port, database=self.name) as connection:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return tuple(cursor.fetchall())

    def dump(self, since: FilePosition | bytes | None = None) -> BinlogDump:
        settings = {"host": self.server.host, "port": self.server.port, "user": "root", "password": ""}
        return BinlogDump(settings, since or self.since)

    def images(self, table: str, **options: Any) -> Iterator[tuple[TableMap, RowImages]]:
        """Decode all that the binlog has about a table, block by block, statement by statement, as is easiest."""
        decoders: dict[TableMap, TableDecoder] = {}
        current: dict[bytes, TableMap] = {}
        with closing(self.dump()) as dump:
            for block in dump.blocks():
                for i, event in enumerate(block.events):
                    body = block.memory[event[START] + HEADER_SIZE : event[STOP]].tobytes()
                    if event[TYPE] == EventType.TABLE_MAP:
                        current[body[:6]] = read_table_map(body, "test")
                    elif event[TYPE] in _ROWS:
                        found = current[body[:6]]
                        if (found.database, found.table) != (self.name, table):
                            continue
                        if found not in decoders:
                            decoders[found] = TableDecoder(found, self.charsets, **options)
                        rows = np.ascontiguousarray(block.events[i : i + 1])
                        for images in decoders[found].decode(block.memory, rows):
                            yield found, images


@contextmanager
def new_database(server: MySql) -> Iterator[Database]:
    """Make a database; what the binlog has about it begins at ``since``."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    status = "SHOW BINARY LOG STATUS" if server.flavour is Flavour.MYSQL else "SHOW MASTER STATUS"
    ((file, position, *_),) = run(server.host, server.port, status)
    collations = run(
        server.host, server.port, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
    )
    run(server.host, server.port, f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield Database(server, name, FilePosition(file, position), {int(number): str(each) for number, each in collations})
    run(server.host, server.port, f"DROP DATABASE {name}")


def python_rows(images: RowImages) -> list[list[Any]]:
    """The rows as Python values, durations and moments without a zone."""
    return [list(row) for row in zip(*(_values(column) for column in images.columns), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.view(pa.timestamp("us"))
    return column.to_pylist()
