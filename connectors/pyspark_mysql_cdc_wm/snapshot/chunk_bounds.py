"""The bounds of the next chunks of tables: for each batch, the server returns the keys at which they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.server_errors import LOCKED, code_of
from pyspark_mysql_cdc_wm.lookup.committed_transactions import has_gtids, wait_until_visible
from pyspark_mysql_cdc_wm.lookup.rights import refusal, rows_of_tables
from pyspark_mysql_cdc_wm.lookup.server_checks import (
    check_key,
    check_logged,
    check_visible,
    without_key,
)
from pyspark_mysql_cdc_wm.lookup.stream_layout import check_fits
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described
from pyspark_mysql_cdc_wm.lookup.table_list import TableList
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.start import StartMode
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, TableReading, quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout
from pyspark_mysql_cdc_wm.snapshot.key_order import bound_of, condition, condition_beyond
from watermark_source.contract.stream import SnapshotSize
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
    UnsupportedFormatError,
)
from watermark_source.planning.snapshot_ranges import Chunk
from watermark_source.planning.state import Bound

_log = logging.getLogger(__name__)
SWAP_SECONDS = 10.0
"""Limit in seconds for another table to replace one that was renamed; online schema change tools need less than one."""
SWAP_PAUSE_SECONDS = 0.1
_ROWS = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE"


@dataclass(frozen=True, slots=True)
class DescribedTables:
    """The tables of a snapshot as the server describes them, each checked once in a process."""

    connection: MySqlConnection
    selection: Selection
    layout: Layout
    choice: ColumnChoice
    known: dict[TableName, TableColumns]
    """Those that were described and that existed, at first the ones that ``load()`` has checked."""
    warned_of: set[TableName] = field(default_factory=set)

    def add(self, names: Set[TableName]) -> None:
        """Describe and check new tables, and warn of tables without a key.

        Raises:
            UserError, UnsupportedFormatError: a table cannot be a part of the stream.
            SourceError: the server cannot be reached, or refuses.
        """
        unknown = names - self.known.keys()
        tables = described(self.connection, unknown, self.choice) if unknown else {}
        for name, table in tables.items():
            check_fits(self.layout, self.choice, name, table)
            check_key(name, table)
        if tables:
            check_logged(self.connection, self.selection, tables)
        check_visible(self.connection, tables)
        self.known.update(tables)
        new = names & self.known.keys() - self.warned_of
        if unkeyed := sorted(name for name in new if not self.known[name].key):
            _log.warning("%s", without_key(unkeyed))
        self.warned_of.update(new)

    def forget(self, name: TableName) -> None:
        """Describe a table again at the next ``add``."""
        self.known.pop(name, None)

    def current(self, name: TableName) -> TableColumns | None:
        """Describe a table again, since it may have new labels, or be another table of the same name."""
        return described(self.connection, {name}, self.choice).get(name)


_WARNING_SECONDS = 60.0
"""Interval in seconds between warnings about a locked table."""


class ChunkBounds:
    """Implements ``Snapshots``."""

    def __init__(
        self,
        connection: MySqlConnection,
        tables: TableList,
        described: DescribedTables,
        options: MySqlOptions,
        *,
        by_gtids: bool,
    ) -> None:
        """Cut ``tables`` by their primary keys or chosen columns; a table with neither is one chunk."""
        self._connection = connection
        self._tables = tables
        self._described = described
        self._by_gtids = by_gtids
        wanted = options.snapshot
        most = wanted.chunk_rows * wanted.parallelism if options.max_rows is None else options.max_rows
        # Rows of a chunk and chunks of a batch, about.
        self._rows = min(wanted.chunk_rows, most)
        self._chunks = min(wanted.parallelism, most // self._rows)
        self._again = {(tables.selection.key(each.table), each.label) for each in wanted.reread}
        """Which tables are read again, by the keys of their names."""
        self.one_moment = wanted.as_of_one_moment
        self.come_first = options.reads_tables
        self.nothing_follows = options.start is StartMode.SNAPSHOT
        # Another table may replace one by two renames, between which neither exists.
        self._swap_seconds = SWAP_SECONDS if options.unlogged.ignores_whole else 0.0
        self._next_warning: dict[TableName, float] = {}

    def logs(self) -> Set[str]:
        """Return the tables' names, and those of their readings that were requested.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        names = {self._tables.selection.key(name): name for name in self._tables.now()}
        again = {str(TableReading(names[key], label)) for key, label in self._again if key in names}
        return again | frozenset(map(str, names.values()))

    def dropped(self, logs: Set[str]) -> Set[str]:
        """Return which of the tables that were not listed no longer exist; MariaDB does not list one during a rename.

        A table that another may replace is missing only after ten seconds.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        until = time.monotonic() + self._swap_seconds
        while True:
            locked = {log for log in filter(self.is_wanted, logs) if self._is_locked(TableReading.of(log).table)}
            self._tables.expire()
            gone = logs - self.logs() - locked
            if time.monotonic() >= until or not any(map(self.is_wanted, gone)):
                return gone
            time.sleep(SWAP_PAUSE_SECONDS)

    def is_wanted(self, log: str) -> bool:
        """Return whether the user chose a table, or has requested this reading of it."""
        table, label = TableReading.of(log)
        selection = self._tables.selection
        is_requested = label is None or (selection.key(table), label) in self._again
        return is_requested and selection.matches(table)

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return the upper bounds of the next chunks, one table after another.

        Raises:
            ResponseTimeoutError: a transaction in the binlog does not become visible.
            UserError, UnsupportedFormatError: a new table cannot be a part of the stream.
            SourceError: the server cannot be reached, or refuses.
        """
        if self._connection.is_mariadb:
            wait_until_visible(self._connection)
        elif has_gtids(self._connection) != self._by_gtids:
            # The mode decides how the source determines which transactions are visible.
            raise UnsupportedFormatError(
                f"{self._connection.settings.where}: gtid_mode was set to {'OFF' if self._by_gtids else 'ON'} while a "
                "snapshot was read. Start the query again: it resumes from its checkpoint"
            )
        tables = {log: TableReading.of(log).table for log in lower}
        self._described.add(frozenset(tables.values()))
        bounds: dict[str, tuple[Bound, ...]] = {}
        left = self._chunks
        for log, name in tables.items():
            if not left:
                break
            if log != str(name) and str(name) in lower:
                # Once the first reading is complete the stream has every change of the table.
                continue
            try:
                ends = self._ends(name, lower[log], left, to_end=to_end)
            except UnknownSplitError:
                # The table was dropped after it was listed.
                self._described.forget(name)
                self._tables.expire()
                continue
            if ends:
                bounds[log] = ends
                left -= 0 if to_end else len(ends)
        return bounds

    def sizes(self, logs: Set[str]) -> Mapping[str, SnapshotSize]:
        """Return the tables' rows by the server's current statistics, not by those it caches for a day.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        names = {log: TableReading.of(log).table for log in logs}
        counted = rows_now(self._connection, names.values())
        return {log: self._size(name, counted.get(name)) for log, name in names.items()}

    def _is_locked(self, name: TableName) -> bool:
        """Return whether another session still locks a table, for example to rename it, after some seconds."""
        locked = False
        with self._connection.waiting_for_locks():
            try:
                self._connection.rows(f"SELECT 1 FROM {name.quoted} LIMIT 0")  # noqa: S608 - quoted
            except SourceError as refused:
                if isinstance(refused, UnreachableError | ResponseTimeoutError):
                    raise
                if isinstance(refused, RefusedError):
                    # It may still be there: its rows are neither dropped nor to be delivered.
                    raise refusal(self._connection, name) from refused
                # After any other response the list of tables is right.
                locked = code_of(refused.__cause__) == LOCKED
        return locked

    def _size(self, name: TableName, rows: int | None) -> SnapshotSize:
        table = self._described.known.get(name)
        return SnapshotSize(rows, rows if table is not None and not table.chunk_columns else self._rows)

    def _ends(self, name: TableName, start: Bound, most: int, *, to_end: bool) -> tuple[Bound, ...]:
        known = self._described.known.get(name)
        if known is not None and to_end:
            return (None,)
        now = None if known is None else self._described.current(name)
        if now is None:
            raise UnknownSplitError(f"there is no table {name}")
        if not now.chunk_columns:
            return (None,)
        key, ends, rows = now.chunk_columns, list[Bound](), self._rows
        slow = f"The statement looks up where a chunk of {rows} rows of {name} ends: lower the option snapshotChunkRows"
        slow += f", or create an index that begins with {key[0].name}" if key[0].chosen else ""
        with self._connection.waiting_for_locks():
            while len(ends) < most and (not ends or ends[-1] is not None):
                try:
                    start = key_after(self._connection, name, key, start, rows, if_slow=slow)
                except SourceError as refused:
                    if code_of(refused.__cause__) != LOCKED:
                        raise
                    # LOCK TABLES or an ALTER TABLE locks it: its snapshot waits, and the binlog is read meanwhile.
                    self._warn_locked(name)
                    break
                ends.append(start)
        return tuple(ends)

    def _warn_locked(self, name: TableName) -> None:
        now = time.monotonic()
        if now >= self._next_warning.get(name, 0.0):
            self._next_warning[name] = now + _WARNING_SECONDS
            _log.warning(
                "%s is locked, or about to be altered: its snapshot waits until it can be read. SHOW PROCESSLIST; "
                "shows the session that locks it",
                name,
            )


def key_after(
    connection: MySqlConnection, name: TableName, key: Sequence[KeyColumn], start: Bound, rows: int, *, if_slow: str
) -> Bound:
    """Return the bound of the chunk of so many rows that begins at a bound; ``None`` if the table has no more rows.

    Raises:
        ResponseTimeoutError: the server takes too long to look it up; ``if_slow`` is the advice at its end.
        SourceError: the server cannot be reached, or refuses.
    """
    columns = ", ".join(column.selected(quoted(column.name)) for column in key)
    select = f"SELECT {columns} FROM {name.quoted}"  # noqa: S608 - quoted
    row = connection.one(f"{select}{condition(key, Chunk(start, None))} LIMIT 1 OFFSET {rows}", if_slow=if_slow)
    if row is not None and key[0].chosen:
        # More rows than a chunk's may have equal values: the chunk ends behind the last of them.
        beyond = condition_beyond(key[0], start, bound_of(key, row, f"table {name}"))
        row = connection.one(f"{select}{beyond} LIMIT 1", if_slow=if_slow)
    return None if row is None else bound_of(key, row, f"table {name}")


def rows_now(connection: MySqlConnection, tables: Iterable[TableName]) -> Mapping[TableName, int]:
    """Return the tables' rows by the server's current statistics, not by those it caches for a day.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    if not connection.is_mariadb:
        connection.rows("SET SESSION information_schema_stats_expiry = 0")
    counted = rows_of_tables(connection, _ROWS, tables)
    return {name: int(row[0]) for name, row in counted if row[0] is not None}
