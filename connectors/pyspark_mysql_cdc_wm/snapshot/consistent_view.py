"""One moment of a server's tables, and rows of it in columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pymysql

from pyspark_mysql_cdc_wm.client.connection import connected
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.client.server_errors import LOCKED, ErrorKind, code_of, kind_of, server_error
from pyspark_mysql_cdc_wm.client.text_rows import TextReader
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.arrow_types import has_empty_label, is_text_of_digits
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.snapshot_values import text_column
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange, condition
from pyspark_mysql_cdc_wm.snapshot.table_waits import LOCK_SECONDS, LOCK_WAITS
from watermark_source.errors import ResponseTimeoutError, SourceError, UnknownSplitError, listed

_log = logging.getLogger(__name__)

_FLOATS = (ColumnType.FLOAT, ColumnType.DOUBLE)
_SESSION = (
    "SET SESSION sql_mode = '' /*M!100300 , idle_readonly_transaction_timeout = 0 */",
    # It waits while changes since are read, at the speed of whoever takes them.
    "SET SESSION net_write_timeout = 600",
    # Who is gone without a word keeps nobody from its tables for longer.
    "SET SESSION wait_timeout = 600",
    f"SET SESSION lock_wait_timeout = {LOCK_SECONDS} /*M!100300 , idle_transaction_timeout = 0 */",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_BEGIN = "START TRANSACTION READ ONLY"
"""The view begins with the first row that is asked for: later than the tables are kept by their names."""
_ANOTHER_VIEW = (1213, 1412)
"""The server's numbers for locks in a circle, and for a table that was emptied, altered or made anew since the view
began."""
_VIEWS = 20
_STAY = 60.0
"""Seconds after which a view that was not asked for anything tells the server that it is still there."""


class ConsistentView:
    """What a transaction sees, as of when it holds its tables. Locks no rows; keeps away who would redefine a table."""

    def __init__(self, settings: ClientSettings, *, batch_rows: int = 10_000) -> None:
        """Connect and begin.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        self._settings = settings
        self._batch_rows = batch_rows
        self._connection: Any = connected(settings)
        self._asked_at = time.monotonic()
        with self._telling():
            for statement in (*_SESSION, _BEGIN):
                self._execute(statement)

    def close(self) -> None:
        """End it without waiting for rows that are still being sent."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for an answer

    def stay(self) -> None:
        """Keep the server from ending a view that is not asked for anything; call it now and then."""
        if time.monotonic() - self._asked_at > _STAY:
            with self._telling():
                self._execute("DO 0")

    def release(self) -> None:
        """Let go of what is held, and see what there is later; raises as ``hold``."""
        with self._telling():
            self._execute(_BEGIN)

    def hold(self, tables: Iterable[TableName]) -> frozenset[TableName]:
        """Keep tables as they are until the end, and return those that are there.

        Who drops, empties or alters one waits from now on; for one that does so already, or has locked it, this waits
        some minutes. What the view sees is of a moment when all are held: ask for nothing before that must be in it.

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
        try:
            for table in tables:
                with suppress(UnknownSplitError):
                    self._take(table, rows=0)
                    there.add(table)
            for table in sorted(there):
                self._take(table, rows=1)
        except SourceError as refused:
            if code_of(refused.__cause__) in _ANOTHER_VIEW:
                return None
            raise
        return frozenset(there)

    def _take(self, table: TableName, *, rows: int, waits: int = LOCK_WAITS) -> None:
        """Have the server keep a table for this view, which begins with the first that is asked for ``rows``.

        A view that began earlier would see, of a copy that took the table's place since, what the copy lacked then.
        """
        try:
            with self._telling():
                # Without a row the server does not look whether the view sees this table.
                self._execute(f"SELECT 1 FROM {table.quoted} LIMIT {rows}")  # noqa: S608 - quoted
        except SourceError as refused:
            if code_of(refused.__cause__) != LOCKED:
                raise
            if waits == 1:
                minutes = LOCK_SECONDS * LOCK_WAITS / 60
                raise ResponseTimeoutError(
                    f"{self._settings.where}: {table} could not be read for {minutes:g} minutes: somebody has locked "
                    "it, or waits to alter it behind somebody who reads it. SHOW PROCESSLIST; tells who; end that "
                    "session, or start the query again later"
                ) from refused
            _log.warning("%s is locked, or about to be altered: waiting to read it", table)
            self._take(table, rows=rows, waits=waits - 1)

    def _execute(self, statement: str) -> None:
        """Execute a statement without rows that matter; one that is ended from outside (KILL QUERY) again."""
        until = time.monotonic() + self._settings.patience_seconds
        while True:
            self._asked_at = time.monotonic()
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(statement)
            except pymysql.MySQLError as failure:
                if kind_of(failure) is not ErrorKind.INTERRUPTED or time.monotonic() >= until:
                    raise
            else:
                return

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
        *,
        key: Collection[str],
        chunked_by: Sequence[KeyColumn],
        keys: KeyRange,
    ) -> Iterator[tuple[int, tuple[pa.Array, ...]]]:
        """Yield how many rows there are of a range of what a table is ``chunked_by``, and their columns.

        They come in its order; all rows where there is nothing to cut by. Columns of the ``key`` tell rows apart.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            UnsupportedFormatError: a key that has no value in a stream.
        """
        shown = ", ".join(_shown(column) for column in columns) or "1"
        statement = f"SELECT {shown} FROM {table.quoted}{condition(chunked_by, keys)}"  # noqa: S608 - quoted
        build = [
            text_column(column, kind, of_key=column.name in key) for column, kind in zip(columns, types, strict=True)
        ]
        reader = TextReader(self._connection, self._settings.where, batch_rows=self._batch_rows)
        for memory, starts, sizes in reader.rows(statement, len(columns) or 1):
            found = tuple(each(Values(memory, starts[i], sizes[i])) for i, each in enumerate(build))
            yield starts.shape[1], found


def _shown(column: Column) -> str:
    name = quoted(str(column.name))
    if column.type in _FLOATS:
        # As eight bytes, of which all digits are shown, whatever FLOAT(M,D) shows; a sum with 0 would lose -0's sign.
        return f"{name} * 1e0"
    if is_text_of_digits(column):
        # ZEROFILL is for showing.
        return f"CAST({name} AS DECIMAL({column.precision}, {column.scale}))"
    return f"CAST({name} AS UNSIGNED)" if has_empty_label(column) else name
