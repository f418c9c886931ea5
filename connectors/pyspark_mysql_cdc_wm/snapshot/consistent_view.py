"""One moment of a server's tables, and rows of it in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pymysql

from pyspark_mysql_cdc_wm.client.connection import connected
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.client.text_rows import TextReader
from pyspark_mysql_cdc_wm.errors.server import server_error
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.column import Column, ColumnType
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.memory import Values
from pyspark_mysql_cdc_wm.records.text_values import text_column
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange, condition

_SESSION = (
    "SET SESSION sql_mode = ''",
    # It waits while changes since are read, at the speed of whoever takes them.
    "SET SESSION wait_timeout = 2147483",
    "SET SESSION net_write_timeout = 600 /*!80000 , SESSION max_execution_time = 0 */",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)


class ConsistentView:
    """What a transaction sees that has just begun. Locks nothing."""

    def __init__(self, settings: ClientSettings, *, batch_rows: int = 10_000) -> None:
        """Connect and begin.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        self._settings = settings
        self._batch_rows = batch_rows
        try:
            self._connection: Any = connected(settings)
            with self._connection.cursor() as cursor:
                for statement in _SESSION:
                    cursor.execute(statement)
        except (pymysql.MySQLError, OSError) as failure:
            raise server_error(failure, settings.where, settings.username) from failure

    def close(self) -> None:
        """End it without waiting for rows that are still being sent."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for an answer

    def rows(
        self,
        table: TableName,
        columns: Sequence[Column],
        types: Sequence[pa.DataType],
        key: Sequence[KeyColumn],
        keys: KeyRange,
    ) -> Iterator[tuple[pa.Array, ...]]:
        """Yield the columns of a range of keys, in the order of the key; of all rows where there is no key."""
        shown = ", ".join(_shown(column) for column in columns)
        statement = f"SELECT {shown} FROM {table.quoted}{condition(key, keys)}"  # noqa: S608 - quoted
        build = [text_column(column, kind) for column, kind in zip(columns, types, strict=True)]
        reader = TextReader(self._connection, self._settings.where, batch_rows=self._batch_rows)
        for memory, starts, sizes in reader.rows(statement, len(columns)):
            yield tuple(each(Values(memory, starts[i], sizes[i])) for i, each in enumerate(build))


def _shown(column: Column) -> str:
    name = quoted(str(column.name))
    # As eight bytes a number of four has all its digits; a sum with 0 would lose the sign of -0.
    return f"{name} * 1e0" if column.type is ColumnType.FLOAT else name
