"""A consistent read of a server's tables, which returns rows in columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
import pymysql

from pyspark_mysql_cdc_wm.client.connection import Row, connected
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.client.server_errors import LOCKED, ErrorKind, code_of, kind_of, server_error
from pyspark_mysql_cdc_wm.client.text_rows import text_rows
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.arrow_types import FLOATS, has_empty_label, is_text_of_digits
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.snapshot_values import text_column
from pyspark_mysql_cdc_wm.records.table_definition import Column
from pyspark_mysql_cdc_wm.snapshot.key_order import condition
from watermark_source.errors import (
    CorruptDataError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnsupportedFormatError,
    listed,
)
from watermark_source.planning.snapshot_ranges import Chunk

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")
LOCK_SECONDS = 50
"""Limit in seconds for one wait for a table that another session has locked, or waits to alter."""
LOCK_WAITS = 6
"""Number of such waits, each with a warning, before the task fails."""

_OF_A_VIEW = (
    "SET SESSION sql_mode = '' /*M!100300 , idle_readonly_transaction_timeout = 0 */",
    # The server waits while the task reads the changes since, at the speed of the query.
    "SET SESSION net_write_timeout = 600",
    # A task that died silently keeps other sessions from altering its tables for at most this time.
    "SET SESSION wait_timeout = 600",
    f"SET SESSION lock_wait_timeout = {LOCK_SECONDS} /*M!100300 , idle_transaction_timeout = 0 */",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
"""Settings of the session, after those of every connection (``client/connection.py``)."""
_BEGIN = "START TRANSACTION READ ONLY"
"""The view begins with the first SELECT of a row, after the metadata locks of the tables are held."""
_RESTART_CODES = (1213, 1412)
"""The server's error numbers for a deadlock, and for a table that was truncated, altered or created again since the
view began."""
_ATTEMPTS = 20
_ALL_ROWS = 2**64 - 1
_ENGINE = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_KEEP_ALIVE_SECONDS = 60.0
"""Idle time in seconds after which a statement without effect keeps the connection of a view open."""


class ConsistentView:
    """A read-only transaction that sees its tables as of one moment.

    It locks no rows, but its metadata locks keep other sessions from altering, truncating or dropping the tables.
    """

    def __init__(self, settings: LoginSettings, *, batch_rows: int = 10_000) -> None:
        """Connect and begin the transaction.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        self._settings = settings
        self._batch_rows = batch_rows
        self._connection: Any = connected(settings)
        self._last_statement = time.monotonic()
        for statement in (*_OF_A_VIEW, _BEGIN):
            self._execute(statement)

    def close(self) -> None:
        """Close the connection without waiting for rows that are still being sent."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for a response

    def kept_alive(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield items as they come, and keep the server from closing the idle connection meanwhile."""
        for item in items:
            if time.monotonic() - self._last_statement > _KEEP_ALIVE_SECONDS:
                self._execute("DO 0")
            yield item

    def release(self) -> None:
        """Begin the transaction again, which releases all tables; raises as ``hold``."""
        self._execute(_BEGIN)

    def hold(self, tables: Iterable[TableName]) -> frozenset[TableName]:
        """Keep tables from being altered, truncated or dropped, and return those that exist.

        Other sessions that alter one wait from now on. If a session is altering one already, or has locked it, this
        waits up to five minutes. The view begins when all tables are held, so request what it must include after that.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        wanted = sorted(tables)
        for _ in range(_ATTEMPTS):
            existing = self._try_to_hold(wanted)
            if existing is not None:
                return existing
            self.release()
        raise SourceError(
            f"{self._settings.where}: a table was altered, emptied or created again at each of {_ATTEMPTS} attempts to "
            f"read a chunk of it, one of {listed(list(map(str, wanted)))}. Start the query again when that is over"
        )

    def _try_to_hold(self, tables: Iterable[TableName]) -> frozenset[TableName] | None:
        """Return the tables that exist and are held, ``None`` if the view began before one was altered."""
        existing = set()
        try:
            for table in tables:
                with suppress(UnknownSplitError):
                    self._lock(table, rows=0)
                    existing.add(table)
            for table in sorted(existing):
                self._lock(table, rows=1)
        except SourceError as refused:
            if code_of(refused.__cause__) in _RESTART_CODES:
                return None
            raise
        return frozenset(existing)

    def _lock(self, table: TableName, *, rows: int, waits: int = LOCK_WAITS) -> None:
        """Take the metadata lock of a table; the view begins with the first call with ``rows`` = 1.

        A view that began before all locks were held could miss rows of a copy that replaced a table in between.
        """
        try:
            # Only a SELECT of a row makes the server check that the view can see this table.
            self._execute(f"SELECT 1 FROM {table.quoted} LIMIT {rows}")  # noqa: S608 - quoted
        except SourceError as refused:
            if code_of(refused.__cause__) != LOCKED:
                raise
            if waits == 1:
                minutes = LOCK_SECONDS * LOCK_WAITS / 60
                raise ResponseTimeoutError(
                    f"{self._settings.where}: {table} could not be read for {minutes:g} minutes: another session has "
                    "locked it, or waits to alter it. SHOW PROCESSLIST; shows the session; end it, or start the query "
                    "again later"
                ) from refused
            _log.warning("%s is locked, or about to be altered: waiting to read it", table)
            self._lock(table, rows=rows, waits=waits - 1)

    def _execute(self, statement: str) -> None:
        """Execute a statement and ignore its rows; repeat it if it is interrupted (KILL QUERY)."""
        until = time.monotonic() + self._settings.patience_seconds
        while True:
            self._last_statement = time.monotonic()
            try:
                with self._translated_errors(), self._connection.cursor() as cursor:
                    cursor.execute(statement)
            except SourceError as refused:
                if not _is_interrupted(refused) or time.monotonic() >= until:
                    raise
            else:
                return

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.MySQLError, OSError) as failure:
            raise server_error(failure, self._settings.where, self._settings.username) from failure

    def select(self, statement: str, *values: str) -> Sequence[Row]:
        """Return the rows of a statement that sees what the view does.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        with self._translated_errors(), self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())

    def rows(
        self,
        table: TableName,
        columns: Sequence[Column],
        types: Sequence[pa.DataType],
        *,
        key: Sequence[KeyColumn],
        chunked_by: Sequence[KeyColumn],
        keys: Chunk,
    ) -> Iterator[tuple[int, tuple[pa.Array, ...]]]:
        """Yield all rows of a range in its order, in batches as the server sends them: their number and their columns.

        All: the next range begins where this one was planned to end.

        After KILL QUERY the statement is sent again for the remaining rows, where the same rows come first again: of
        InnoDB's tables, in the order of their key.

        Args:
            table: the table.
            columns: the columns to select.
            types: the columns' Arrow types.
            key: the primary key's columns, by which rows are compared.
            chunked_by: the columns that ``keys`` is a range of; all rows are selected without any.
            keys: the range.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            UnsupportedFormatError: a key has no value in a stream.
        """
        keyed = {column.name: column for column in key}
        of_key = [keyed.get(str(column.name)) for column in columns]
        selected = ", ".join(map(_selected, columns, of_key)) or "1"
        statement = f"SELECT {selected} FROM {table.quoted}{condition(chunked_by, keys)}"  # noqa: S608 - quoted
        build = list(map(text_column, columns, types, of_key))
        in_order = bool(key) and keyed.keys() <= {column.name for column in chunked_by}
        count, until = 0, time.monotonic() + self._settings.patience_seconds
        while True:
            before = count
            # OFFSET needs a limit: this is the highest that servers accept.
            rest = f"{statement} LIMIT {count}, {_ALL_ROWS}" if count else statement
            try:
                for memory, starts, sizes in text_rows(
                    self._connection, self._settings.where, rest, columns=len(columns) or 1, batch_rows=self._batch_rows
                ):
                    arrays = tuple(
                        _decoded(table, columns[i], decode, Values(memory, starts[i], sizes[i]))
                        for i, decode in enumerate(build)
                    )
                    count += starts.shape[1]
                    yield starts.shape[1], arrays
            except SourceError as refused:
                now = time.monotonic()
                if count > before:
                    until = now + self._settings.patience_seconds
                if not _is_interrupted(refused) or now >= until:
                    raise
                if count and not (in_order and self._is_of_innodb(table)):
                    raise
                _log.warning("%s; reading the rest of %s after %d rows of this part", refused, table, count)
            else:
                return

    def _is_of_innodb(self, table: TableName) -> bool:
        return any(str(engine).lower() == "innodb" for (engine,) in self.select(_ENGINE, *table))


def _is_interrupted(refused: SourceError) -> bool:
    return refused.__cause__ is not None and kind_of(refused.__cause__) is ErrorKind.INTERRUPTED


def _decoded(table: TableName, column: Column, decode: Callable[[Values], pa.Array], values: Values) -> pa.Array:
    try:
        return decode(values)
    except (CorruptDataError, UnsupportedFormatError) as problem:
        raise type(problem)(f"table {table} column {column.name}: {problem}") from problem


def _selected(column: Column, key: KeyColumn | None) -> str:
    name = quoted(str(column.name))
    if column.type in FLOATS:
        # A DOUBLE shows all digits, unlike FLOAT(M,D). Adding 0 instead would lose the sign of -0.
        return f"{name} * 1e0"
    if is_text_of_digits(column):
        # The cast removes the zeros of ZEROFILL.
        return f"CAST({name} AS DECIMAL({column.precision}, {column.scale}))"
    if has_empty_label(column):
        return f"CAST({name} AS UNSIGNED)"
    return name if key is None else key.told_apart(name)
