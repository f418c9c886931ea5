"""One moment of a server's tables, and rows of it in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pymysql

from pyspark_mysql_cdc_wm.client.connection import connected
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.client.text_rows import TextReader
from pyspark_mysql_cdc_wm.errors.server import code_of, server_error
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.column import Column, ColumnType
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.memory import Values
from pyspark_mysql_cdc_wm.records.text_values import text_column
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange, condition
from watermark_source.errors import SourceError, UnknownSplitError, listed

_SESSION = (
    "SET SESSION sql_mode = ''",
    # It waits while changes since are read, at the speed of whoever takes them.
    "SET SESSION net_write_timeout = 600",
    "SET SESSION wait_timeout = 2147483 /*!80000 , max_execution_time = 0 */ /*M!100100 , max_statement_time = 0 */",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_REDEFINED = 1412
"""The server's number for a table that was emptied, altered or made anew since the view began."""
_VIEWS = 20


class ConsistentView:
    """What a transaction sees that has just begun. Locks no rows; of a table it keeps away who would redefine it."""

    def __init__(self, settings: ClientSettings, *, batch_rows: int = 10_000) -> None:
        """Connect and begin.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        self._settings = settings
        self._batch_rows = batch_rows
        self._connection: Any = connected(settings)
        with self._telling():
            for statement in (*_SESSION, _BEGIN):
                self._execute(statement)

    def close(self) -> None:
        """End it without waiting for rows that are still being sent."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for an answer

    def hold(self, tables: Iterable[TableName]) -> frozenset[TableName]:
        """Keep tables as they are until the end, and return those that are there.

        Who drops, empties or alters one waits from now on. Where somebody has done so since the view began, which does
        not see that table then, another view is begun: ask for nothing before that must be in it.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        wanted = sorted(tables)
        for _ in range(_VIEWS):
            there = self._held(wanted)
            if there is not None:
                return there
            with self._telling():
                self._execute(_BEGIN)
        raise SourceError(
            f"{self._settings.where}: a table was altered, emptied or made anew each of the {_VIEWS} times that a "
            f"chunk of it was to be read, one of {listed(list(map(str, wanted)))}"
        )

    def _held(self, tables: Iterable[TableName]) -> frozenset[TableName] | None:
        """Return which tables are there and kept, ``None`` if the view does not see one as it is now."""
        there = set()
        for table in tables:
            try:
                with self._telling():
                    # One row: without any the server does not look whether the view sees this table.
                    self._execute(f"SELECT 1 FROM {table.quoted} LIMIT 1")  # noqa: S608 - quoted
            except UnknownSplitError:
                continue
            except SourceError as refused:
                if refused.__cause__ is not None and code_of(refused.__cause__) == _REDEFINED:
                    return None
                raise
            there.add(table)
        return frozenset(there)

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.MySQLError, OSError) as failure:
            raise server_error(failure, self._settings.where, self._settings.username) from failure

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
