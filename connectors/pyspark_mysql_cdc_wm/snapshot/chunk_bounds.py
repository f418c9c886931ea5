"""Where the next chunks of tables end: the server is asked for one key in so many, batch by batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, waiting_for_locks
from pyspark_mysql_cdc_wm.client.server_errors import LOCKED, code_of
from pyspark_mysql_cdc_wm.lookup.commit_visibility import wait_until_visible
from pyspark_mysql_cdc_wm.lookup.committed_transactions import has_gtids
from pyspark_mysql_cdc_wm.lookup.server_checks import (
    check_key,
    check_logged,
    check_tables,
    check_visible,
    without_key,
)
from pyspark_mysql_cdc_wm.lookup.stream_layout import check_fits
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described
from pyspark_mysql_cdc_wm.lookup.table_list import TableList
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange, bound_of, condition, condition_beyond
from pyspark_mysql_cdc_wm.snapshot.table_waits import SWAP_PAUSE_SECONDS, SWAP_SECONDS
from watermark_source.contract.stream import SnapshotSize
from watermark_source.errors import (
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
    UnsupportedFormatError,
)
from watermark_source.planning.state import Bound

# The tables of a snapshot as the server describes them: looked at, and checked, when they are first met.


_log = logging.getLogger(__name__)


class DescribedTables:
    """Of one process."""

    def __init__(
        self,
        connection: MySqlConnection,
        selection: Selection,
        layout: Layout,
        choice: ColumnChoice,
        checked: Mapping[TableName, TableColumns],
    ) -> None:
        """Begin with tables that are ``checked`` already."""
        self._connection = connection
        self._selection = selection
        self._layout = layout
        self._choice = choice
        self._known = dict(checked)
        self._warned_of: set[TableName] = set()

    def get(self, name: TableName) -> TableColumns | None:
        """Return a table that was looked at, ``None`` of one that was not there."""
        return self._known.get(name)

    def look_at(self, names: Set[TableName]) -> None:
        """Describe and check those that are new here, and warn of tables without a key.

        Raises:
            UserError, UnsupportedFormatError: one cannot be a part of the stream.
            SourceError: the server cannot be reached, or refuses.
        """
        self._check(names - self._known.keys())
        new = names & self._known.keys() - self._warned_of
        if unkeyed := sorted(name for name in new if not self._known[name].key):
            _log.warning("%s", without_key(unkeyed))
        self._warned_of |= new

    def forget(self, name: TableName) -> None:
        """Look at a table again when it is met again."""
        self._known.pop(name, None)

    def as_it_is_now(self, name: TableName) -> TableColumns | None:
        """Ask again: it may have more labels since it was looked at, or be another one of its name."""
        return described(self._connection, {name}, self._choice).get(name)

    def _check(self, new: Set[TableName]) -> None:
        found = described(self._connection, new, self._choice) if new else {}
        for name, table in found.items():
            check_fits(self._layout, self._choice, name, table)
            check_key(name, table)
        if found:
            check_logged(self._connection, self._selection, found)
        check_tables(self._connection, found)
        check_visible(self._connection, found)
        self._known.update(found)


_TELL_SECONDS = 60.0
"""Between two warnings about a table that is locked."""


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """How tables are cut."""

    rows: int
    """About so many are a chunk."""
    chunks: int
    """So many are in a batch."""

    def within(self, rows: int | None) -> ChunkSize:
        """Return the size with which a batch has about so many rows at most; ``None`` is no limit."""
        if rows is None:
            return self
        of_chunk = min(self.rows, rows)
        return ChunkSize(of_chunk, min(self.chunks, rows // of_chunk))


class ChunkBounds:
    """``Snapshots`` of ``spark.connector``."""

    def __init__(
        self,
        connection: MySqlConnection,
        tables: TableList,
        described: DescribedTables,
        *,
        size: ChunkSize,
        come_first: bool,
        nothing_follows: bool,
        one_moment: bool,
        by_gtids: bool,
        may_be_swapped: bool,
    ) -> None:
        """Cut ``tables`` by their primary keys or chosen columns; those with neither are one chunk each.

        ``may_be_swapped``: others take their places, and for a moment there is none.
        """
        self._connection = connection
        self._tables = tables
        self._cut = size
        self._come_first = come_first
        self._nothing_follows = nothing_follows
        self._one_moment = one_moment
        self._by_gtids = by_gtids
        self._patience = SWAP_SECONDS if may_be_swapped else 0.0
        self._described = described
        self._tell_again_at: dict[TableName, float] = {}

    @property
    def come_first(self) -> bool:
        """Whether a new query begins with what tables hold."""
        return self._come_first

    @property
    def nothing_follows(self) -> bool:
        """Whether the stream is the snapshot alone."""
        return self._nothing_follows

    @property
    def one_moment(self) -> bool:
        """Whether all tables that a query begins with are as of one place of the binlog."""
        return self._one_moment

    def logs(self) -> Set[str]:
        """Return the tables' names.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        return frozenset(map(str, self._tables.now()))

    def gone(self, logs: Set[str]) -> Set[str]:
        """Return which tables that were not listed are gone: MariaDB leaves one out while it is renamed.

        One that another may take the place of is gone after ten seconds.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        until = time.monotonic() + self._patience
        while True:
            held = {log for log in filter(self.is_wanted, logs) if self._is_held(TableName.of(log))}
            self._tables.expire()
            gone = logs - self.logs() - held
            if time.monotonic() >= until or not any(map(self.is_wanted, gone)):
                return gone
            time.sleep(SWAP_PAUSE_SECONDS)

    def is_wanted(self, log: str) -> bool:
        """Return whether a table is one of those the user chose."""
        return self._tables.selection.matches(TableName.of(log))

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return where the next chunks end, one table after another.

        Raises:
            ResponseTimeoutError: a transaction that is in the binlog does not become visible.
            UserError, UnsupportedFormatError: a table was found that cannot be a part of the stream.
            SourceError: the server cannot be reached, or refuses.
        """
        if self._connection.is_mariadb:
            wait_until_visible(self._connection)
        elif has_gtids(self._connection) != self._by_gtids:
            # What is visible of the binlog is found in another way then.
            raise UnsupportedFormatError(
                f"{self._connection.settings.where}: gtid_mode was set to {'OFF' if self._by_gtids else 'ON'} while a "
                "snapshot was read. Start the query again, it goes on where it was"
            )
        tables = {log: TableName.of(log) for log in lower}
        self._described.look_at(frozenset(tables.values()))
        found: dict[str, tuple[Bound, ...]] = {}
        left = self._cut.chunks
        for log, name in tables.items():
            if not left:
                break
            try:
                ends = self._ends(name, lower[log], left, to_end=to_end)
            except UnknownSplitError:
                # It was dropped since it was listed.
                self._described.forget(name)
                self._tables.expire()
                continue
            if not ends:
                continue
            found[log] = ends
            left -= 0 if to_end else len(ends)
        return found

    def sizes(self, logs: Set[str]) -> Mapping[str, SnapshotSize]:
        """Return what the server's statistics say; as they are now, not as of a day ago.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        if not self._connection.is_mariadb:
            self._connection.rows("SET SESSION information_schema_stats_expiry = 0")
        return {log: self._size(TableName.of(log)) for log in logs}

    def _is_held(self, name: TableName) -> bool:
        """Return whether somebody who defines a table anew is still at it after some seconds."""
        held = False
        with waiting_for_locks(self._connection):
            try:
                self._connection.rows(f"SELECT 1 FROM {name.quoted} LIMIT 0")  # noqa: S608 - quoted
            except SourceError as refused:
                if isinstance(refused, UnreachableError | ResponseTimeoutError):
                    raise
                # After any other answer the list is right.
                held = code_of(refused.__cause__) == LOCKED
        return held

    def _size(self, name: TableName) -> SnapshotSize:
        found = self._connection.one(
            "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", *name
        )
        rows = None if found is None or found[0] is None else int(found[0])
        table = self._described.get(name)
        return SnapshotSize(rows, rows if table is not None and not table.chunk_columns else self._cut.rows)

    def _ends(self, name: TableName, start: Bound, most: int, *, to_end: bool) -> tuple[Bound, ...]:
        known = self._described.get(name)
        if known is not None and to_end:
            return (None,)
        now = None if known is None else self._described.as_it_is_now(name)
        if now is None:
            raise UnknownSplitError(f"there is no table {name}")
        if not now.chunk_columns:
            return (None,)
        ends: list[Bound] = []
        with waiting_for_locks(self._connection):
            while len(ends) < most and (not ends or ends[-1] is not None):
                try:
                    start = self._key_after(name, now.chunk_columns, start)
                except SourceError as refused:
                    if code_of(refused.__cause__) != LOCKED:
                        raise
                    # LOCK TABLES, or a statement that alters it: it waits its turn, and the binlog is read on.
                    self._tell_locked(name)
                    break
                ends.append(start)
        return tuple(ends)

    def _tell_locked(self, name: TableName) -> None:
        now = time.monotonic()
        if now >= self._tell_again_at.get(name, 0.0):
            self._tell_again_at[name] = now + _TELL_SECONDS
            _log.warning(
                "%s is locked, or about to be altered: its snapshot waits until it can be read. SHOW PROCESSLIST; "
                "tells who holds it",
                name,
            )

    def _key_after(self, name: TableName, key: Sequence[KeyColumn], start: Bound) -> Bound:
        """Return the key that so many rows of a table are below, from a key on; ``None`` if it has no more."""
        asked = ", ".join(column.asked(quoted(column.name)) for column in key)
        select = f"SELECT {asked} FROM {name.quoted}"  # noqa: S608 - quoted
        slow = (
            f"It was to tell where a chunk of {name} ends, {self._cut.rows} rows on: set the option snapshotChunkRows "
            "lower" + (f", or have an index begin with {key[0].name}" if key[0].chosen else "")
        )
        found = self._connection.one(
            f"{select}{condition(key, KeyRange(start, None))} LIMIT 1 OFFSET {self._cut.rows}", if_slow=slow
        )
        if found is not None and key[0].chosen:
            # So many rows may have one value, or values that are equal: a chunk ends with the last of them.
            beyond = condition_beyond(key[0], start, bound_of(key, found))
            found = self._connection.one(f"{select}{beyond} LIMIT 1", if_slow=slow)
        return None if found is None else bound_of(key, found)
