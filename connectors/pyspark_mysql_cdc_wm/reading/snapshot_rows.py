"""Chunks of tables to rows, as of a place in the binlog."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.ddl_statements import defined_until
from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition
from pyspark_mysql_cdc_wm.binlog.statement_effects import REFUSED, Unlogged
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped, dumped_without
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.lookup.commit_visibility import shows_all_of_its_end
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, as_described, described
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.schema_changes import Known, TableDrops, compare_altered, look_at_packed, looked_at
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, MOMENT, ColumnChoice, Layout
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, integers, table_rows
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, key_names, shown_names
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange
from pyspark_mysql_cdc_wm.snapshot.logged_key_order import LoggedOrder, chunk_names
from pyspark_mysql_cdc_wm.snapshot.rows_as_of import RollBack
from pyspark_mysql_cdc_wm.snapshot.table_waits import SWAP_PAUSE_SECONDS, SWAP_SECONDS
from watermark_source.arrow_columns import repeated
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Relocation
from watermark_source.planning.split import Split

# Rows of a snapshot with the columns about changes: each is an insert, as of the place of the snapshot.


_SINCE_EVER = np.int64(1)
"""A microsecond after 1970 began: Spark's watermark is 0 while there is none, and a row of just then is late for it."""


class TableChunk(NamedTuple):
    """A range of a table's keys."""

    split: Split
    table: TableName
    keys: KeyRange


def as_inserts(chunk: TableChunk, rows: TableRows | None, version: int, layout: Layout) -> Iterator[ReadBatch]:
    """Yield rows of a chunk as one batch of inserts, unless there are none. ``version`` is that of the commit."""
    count = len(rows.columns[0]) if rows is not None and rows.columns else 0
    if rows is None or not count:
        return
    about = {
        "_change_type": repeated("insert", pa.string(), count),
        "_snapshot": repeated(True, pa.bool_(), count),
        "_commit_version": integers(np.full(count, version), pa.int64()),
        "_change_number": integers(np.zeros(count, np.int64), pa.int64()),
        "_commit_timestamp": pa.nulls(count, CHANGE_COLUMNS["_commit_timestamp"]),
        "_database": repeated(chunk.table.database, pa.string(), count),
        "_table": repeated(chunk.table.table, pa.string(), count),
    }
    since_ever = integers(np.full(count, _SINCE_EVER), MOMENT)
    times = since_ever if rows.event_time is None else pc.coalesce(rows.event_time, since_ever)
    yield ReadBatch(chunk.split, count, (*rows.columns, *map(about.get, layout.about)), times)


_log = logging.getLogger(__name__)

_GONE = "table %s was dropped before %s of it was read: of its rows come those that the binlog tells of until then"


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Reads chunks of tables: ranges of their primary keys or of chosen columns; all rows of tables with neither."""

    client: ClientSettings
    tables: Selection
    choice: ColumnChoice
    layout: Layout
    fail_on_data_loss: bool
    """Whether rows of transactions (XA) that were purged before these were committed end the query."""
    known: Known | None = None
    """``None`` to look at no columns."""
    unlogged: Unlogged = REFUSED
    """As that of ``BinlogRows``."""
    by_grants: bool = False
    """As that of ``BinlogRows``."""
    relocation: Relocation | None = None
    batch_rows: int = 10_000

    def read(self, chunks: Sequence[TableChunk], place: int) -> Iterator[ReadBatch]:
        """Yield the rows of chunks, one after another, as their tables held them at a place of the binlog.

        The binlog since then is read once for all of them. What was committed up to there must be visible by now, but
        of a server that does not tell. A table without a primary key is as the SELECT sees it: nothing tells its rows
        apart, so changes since that place cannot be undone. Of a table that was dropped since, what the binlog tells is
        left: rows that were changed between that place and its end, to which their changes fit.

        Raises:
            SourceError: the server, the way to it, or the bytes it sent.
            DataLossError: the binlog from that place on was purged, or the rows of what was prepared before it and
                committed since (XA), and ``fail_on_data_loss`` is set.
            SchemaError: a table has got columns that the stream has not, and they are not to be ignored.
        """
        with (
            closing(MySqlConnection(self.client)) as connection,
            closing(ConsistentView(self.client, batch_rows=self.batch_rows)) as view,
        ):
            there = self._held(view, {chunk.table for chunk in chunks})
            columns = described(connection, there, self.choice)
            # After the view was opened: it sees nothing that is not in the binlog before here.
            order = LoggedOrder(connection, self.choice)
            since = [(chunk, RollBack(self.layout, order, chunk.keys)) for chunk in chunks]
            keyless = frozenset(table for table, each in columns.items() if not each.key)
            left = set(columns)
            yield from self._undone(connection, view, since, left, keyless=keyless, place=place)
            for chunk, changed in since:
                if chunk.table in left:
                    yield from self._still_as_they_were(chunk, columns[chunk.table], changed, view, place)
                else:
                    _log.warning(_GONE, chunk.table, chunk.keys)

    def _held(self, view: ConsistentView, tables: Set[TableName]) -> frozenset[TableName]:
        """Return the tables that are there, and kept; one that a copy may take the place of has some time for that."""
        until = time.monotonic() + (SWAP_SECONDS if self.unlogged.ignores_whole else 0.0)
        while len(there := view.hold(tables)) < len(tables) and time.monotonic() < until:
            view.release()
            time.sleep(SWAP_PAUSE_SECONDS)
        return there

    def _still_as_they_were(
        self, chunk: TableChunk, columns: TableColumns, undone: RollBack, view: ConsistentView, place: int
    ) -> Iterator[ReadBatch]:
        table, by_name, types = chunk.table, columns.by_name, columns.type_by_name
        undone.keyed_by(columns.key, str(table))
        if self.known is not None:
            self.known.compare(table, columns.names, lambda: frozenset(columns.names), "where its snapshot is read")
        # None of a table that has lost them all.
        needed = [name for name in self.layout.needed(columns.names, columns.key) if name in by_name]
        asked, kinds = [by_name[name] for name in needed], [types[name] for name in needed]
        for count, found in view.rows(
            table, asked, kinds, key=columns.key, chunked_by=columns.chunk_columns, keys=undone.keys
        ):
            values, rows = dict(zip(needed, found, strict=True)), count
            kept = undone.untouched([values[name] for name in columns.key])
            if kept is not None:
                taken = integers(kept, pa.int64())
                values, rows = {name: each.take(taken) for name, each in values.items()}, len(taken)
            yield from self._batch(chunk, table_rows(self.layout, f"table {table}", by_name, values, rows), place)

    def _undone(
        self,
        connection: MySqlConnection,
        view: ConsistentView,
        since: Sequence[tuple[TableChunk, RollBack]],
        left: set[TableName],
        *,
        keyless: frozenset[TableName],
        place: int,
    ) -> Iterator[ReadBatch]:
        """Yield what was changed after a place as it was, up to where its table was dropped.

        Takes such a table from those that are ``left``: one that is there now is another one. Of those that are there
        without a key nothing is undone, whatever unique columns the binlog names in its place.
        """
        status = LogStatus(connection)
        end = status.end().number
        tables = {chunk.table for chunk, _ in since}
        as_of = None if self.relocation is None else self.relocation.as_of

        def blocks() -> Iterable[PlacedBlock]:
            base = status.base()
            if as_of is None:
                found, start = dumped(self.client, base, place, end), place
            else:
                found, start = dumped_without(self.client, base, GtidSet.parse(as_of[1]), end), None
            return _beside(view, self._with_prepared(found, base, start))

        drops = TableDrops(self.tables, self.unlogged.ignores_whole)
        is_behind = as_of is not None or end > place
        if keyless and is_behind:
            # What was dropped had a key, perhaps, and is told of by that.
            gone: set[TableName] = set()
            keyless -= {each for _, dropped in drops.cut(blocks(), keyless, gone) for each in dropped}
            keyless -= gone
        if not shows_all_of_its_end(connection):
            for table in (tables & left) - keyless:
                of_table = [changed for chunk, changed in since if chunk.table == table]
                self._take_unseen(connection, view, table, of_table, place)
        if is_behind:
            decoder, concerns = self._decoder(connection, tables, left), self._concerns(tables)
            gone, changed_as_a_whole = set(), dict[tuple[str, str], str]()
            for block, dropped in drops.cut(blocks(), tables, gone):
                found = looked_at(block, concerns, self.unlogged)
                changed_as_a_whole |= found.whole
                if self.known is not None:
                    compare_altered(self.known, found)
                undoing = [each for each in since if each[0].table in tables - keyless]
                for changes in decoder.decode(
                    block.memory, block.events, block.file, block.places, prepared=block.prepared
                ):
                    for chunk, changed in undoing:
                        if chunk.table == (changes.table.database, changes.table.table):
                            yield from self._batch(chunk, changed.undone(changes), place)
                tables -= dropped
                left -= dropped
            drops.refuse_taken_away(tables - gone - left, changed_as_a_whole)
            left -= gone
        for chunk, changed in since:
            if chunk.table in left:
                yield from self._batch(chunk, changed.rows_before(), place)

    def _take_unseen(
        self,
        connection: MySqlConnection,
        view: ConsistentView,
        table: TableName,
        undone: Sequence[RollBack],
        place: int,
    ) -> None:
        """Take in what a SELECT may not see yet of what lies before a place."""
        begin, base = LogPosition(LogPosition.of(place).file).number, LogStatus(connection).base()
        concerns = self._concerns({table})
        for block in _beside(view, dumped(self.client, base, begin, place, check=False)):
            if leads := defined_until(block.memory, block.events, concerns, table.table):
                begin = int(block.places[leads - 1])
        decoder = self._decoder(connection, {table}, {table})
        for block in _beside(view, self._with_prepared(dumped(self.client, base, begin, place), base, begin)):
            looked_at(block, concerns, self.unlogged)
            for changes in decoder.decode(
                block.memory, block.events, block.file, block.places, prepared=block.prepared
            ):
                for changed in undone:
                    changed.add_before(changes)

    def _with_prepared(self, blocks: Iterable[PlacedBlock], base: str, start: int | None) -> Iterator[PlacedBlock]:
        return with_prepared(blocks, self.client, base, start=start, fail_on_data_loss=self.fail_on_data_loss)

    def _decoder(
        self, connection: MySqlConnection, tables: Collection[TableName], there: Collection[TableName]
    ) -> ChangeDecoder:
        """Return the decoder for tables, of which some are still ``there`` to be asked what the binlog leaves out."""

        def wanted(found: TableMap) -> Collection[str] | None:
            nameless = any(column.name is None for column in found.columns)
            if nameless:
                return None
            key = (*key_names(found), *chunk_names(found, self.choice))
            return self.layout.needed(shown_names(found), key)

        completed = as_described(
            connection, lambda table: table in there, mariadb=connection.is_mariadb, by_grants=self.by_grants
        )
        charsets = collations_of(connection).charsets
        return ChangeDecoder(
            charsets,
            wanted,
            reads=lambda *name: name in tables,
            completed=completed,
            inspect=partial(look_at_packed, self._concerns(tables), self.unlogged),
            batch_rows=self.batch_rows,
        )

    def _concerns(self, tables: Iterable[TableName]) -> Callable[[str, str], bool]:
        key = self.tables.key
        return lambda database, name: key(TableName(database, name)) in map(key, tables)

    def _version(self, place: int) -> int:
        if self.relocation is None:
            return place
        return (place if self.relocation.as_of is None else self.relocation.as_of[0]) + self.relocation.shift

    def _batch(self, chunk: TableChunk, rows: TableRows | None, place: int) -> Iterator[ReadBatch]:
        return as_inserts(chunk, rows, self._version(place), self.layout)


def _beside(view: ConsistentView, blocks: Iterable[PlacedBlock]) -> Iterator[PlacedBlock]:
    """Yield blocks; the server hears meanwhile that the view is still there."""
    for block in blocks:
        view.stay()
        yield block
