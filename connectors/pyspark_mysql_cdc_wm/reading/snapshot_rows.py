"""The rows of chunks of tables as of a position of the binlog."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.ddl_statements import defined_until
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import shows_all_of_its_end
from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, as_described, described
from pyspark_mysql_cdc_wm.options.tables import TableName, TableReading
from pyspark_mysql_cdc_wm.reading.schema_changes import check_unpacked, checked_statements, compare_altered
from pyspark_mysql_cdc_wm.reading.stream_to_read import StreamToRead, decoded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, MOMENT, Layout
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, integers, table_rows
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, key_names, shown_names
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import SWAP_PAUSE_SECONDS, SWAP_SECONDS
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from pyspark_mysql_cdc_wm.snapshot.rows_as_of import LoggedOrder, RollBack, chunk_names
from watermark_source.arrow_columns import repeated
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.snapshot_ranges import Chunk
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_EARLIEST_TIME = np.int64(1)
"""The event time of rows without one, a microsecond after 1970 began. Spark's initial watermark is 0, and a row of 0
would be late for it."""
REREAD = "reread"
"""The ``_change_type`` of a row of a table that is read again."""
_DROPPED = "table %s was dropped before %s of it was read: only rows that the binlog changes until then are delivered"


class TableChunk(NamedTuple):
    """A range of a table's keys."""

    split: Split
    reading: TableReading
    keys: Chunk

    @property
    def table(self) -> TableName:
        """The table."""
        return self.reading.table


def as_inserts(chunk: TableChunk, rows: TableRows | None, version: int, layout: Layout) -> Iterator[ReadBatch]:
    """Yield the rows of a chunk as one batch of inserts, unless there are none; ``version`` is ``_commit_version``.

    Where the table is read again, they are rows that the stream has had.
    """
    count = len(rows.columns[0]) if rows is not None and rows.columns else 0
    if rows is None or not count:
        return
    about = {
        "_change_type": repeated("insert" if chunk.reading.label is None else REREAD, pa.string(), count),
        "_snapshot": repeated(True, pa.bool_(), count),
        "_commit_version": integers(np.full(count, version), pa.int64()),
        "_change_number": integers(np.zeros(count, np.int64), pa.int64()),
        "_commit_timestamp": pa.nulls(count, CHANGE_COLUMNS["_commit_timestamp"]),
        "_database": repeated(chunk.table.database, pa.string(), count),
        "_table": repeated(chunk.table.table, pa.string(), count),
    }
    earliest = integers(np.full(count, _EARLIEST_TIME), MOMENT)
    times = earliest if rows.event_time is None else pc.coalesce(rows.event_time, earliest)
    yield ReadBatch(chunk.split, count, (*rows.columns, *map(about.get, layout.about)), times)


def read_chunks(stream: StreamToRead, chunks: Sequence[TableChunk], place: int) -> Iterator[ReadBatch]:
    """Yield the rows of chunks, one after another, as of a position of the binlog.

    Chunks are ranges of primary keys or chosen columns, or whole tables with neither.

    The binlog since the position is read once for all chunks. All transactions before the position must be visible
    by now, unless the server is MySQL without GTIDs. A table without a primary key is delivered as the SELECT sees
    it, since its rows cannot be distinguished and changes to them cannot be undone. Of a table that was dropped
    since, only the rows that the binlog changed between the position and the drop are delivered.

    Raises:
        SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
        DataLossError: the binlog from the position on was purged, or the rows of an XA transaction that was
            prepared before it and committed since, and ``fail_on_data_loss`` is set.
        SchemaError: a table has columns that the stream lacks, and ignoredChanges has no columns.
    """
    with closing(MySqlConnection(stream.client)) as connection, closing(ConsistentView(stream.client)) as view:
        existing = _held(stream, view, {chunk.table for chunk in chunks})
        columns = described(connection, existing, stream.choice)
        if stream.known is not None:
            rights = Rights(connection)
            for table, now in columns.items():
                readable = {name.lower() for name in now.names}
                lacking = [name for name in stream.layout.names if name.lower() not in readable]
                stream.known.check_readable(table, lacking, rights)
        yield from _ChunksRead(stream, connection, view, columns, chunks, place=place).batches()


def _held(stream: StreamToRead, view: ConsistentView, tables: Set[TableName]) -> frozenset[TableName]:
    """Return the existing tables, which the view holds; wait for copies that may replace missing tables."""
    until = time.monotonic() + (SWAP_SECONDS if stream.unlogged.ignores_whole else 0.0)
    while len(existing := view.hold(tables)) < len(tables) and time.monotonic() < until:
        view.release()
        time.sleep(SWAP_PAUSE_SECONDS)
    return existing


class _ChunksRead:
    """One read of chunks, by a view that holds their tables."""

    def __init__(
        self,
        stream: StreamToRead,
        connection: MySqlConnection,
        view: ConsistentView,
        columns: Mapping[TableName, TableColumns],
        chunks: Sequence[TableChunk],
        *,
        place: int,
    ) -> None:
        self._stream, self._connection, self._view = stream, connection, view
        self._columns, self._place = columns, place
        order = LoggedOrder(connection, stream.choice)
        self._since = [(chunk, RollBack(chunk.table, stream.layout, order, chunk.keys)) for chunk in chunks]
        self._left = set(columns)
        """The tables that were not dropped since the position: a later one of the name is another one."""
        # This comes after the view began, so all that the view sees is in the binlog before its current end.
        end = LogStatus(connection).end().number
        # The view keeps its tables from being altered, so that later statements concern none of them.
        self._end, self._names = end, stream.present_names(lambda: end)

    def batches(self) -> Iterator[ReadBatch]:
        """Yield the rows; raises as ``read_chunks``."""
        yield from self._undone()
        for chunk, changed in self._since:
            if chunk.table in self._left:
                yield from self._unchanged(chunk, self._columns[chunk.table], changed)
            else:
                _log.warning(_DROPPED, chunk.table, chunk.keys)

    def _unchanged(self, chunk: TableChunk, columns: TableColumns, undone: RollBack) -> Iterator[ReadBatch]:
        """Yield the rows of a chunk that were not changed since the position."""
        table, by_name, types, stream = chunk.table, columns.by_name, columns.type_by_name, self._stream
        undone.check_key(columns.key)
        if stream.known is not None:
            stream.known.compare(table, columns.names, lambda: frozenset(columns.names), "where its snapshot is read")
        # The list is empty if the table has lost all columns of the stream.
        needed = [name for name in stream.layout.needed(columns.names, columns.key) if name in by_name]
        selected, kinds = [by_name[name] for name in needed], [types[name] for name in needed]
        for count, arrays in self._view.rows(
            table, selected, kinds, key=columns.key_columns, chunked_by=columns.chunk_columns, keys=undone.keys
        ):
            values, rows = dict(zip(needed, arrays, strict=True)), count
            kept = undone.untouched([values[name] for name in columns.key])
            if kept is not None:
                indices = integers(kept, pa.int64())
                values, rows = {name: array.take(indices) for name, array in values.items()}, len(indices)
            yield from self._batch(chunk, table_rows(stream.layout, f"table {table}", by_name, values, rows))

    def _undone(self) -> Iterator[ReadBatch]:
        """Yield rows that were changed after the position as they were, up to where their table was dropped.

        Changes to tables without a key are not undone, even if the binlog names unique columns in place of one.
        """
        keyless = frozenset(table for table, now in self._columns.items() if not now.key)
        is_behind = self._stream.relocation.as_of is not None or self._end > self._place
        if keyless and is_behind:
            # The dropped table may have had a key, so its changes can be undone.
            gone: set[TableName] = set()
            cut = self._stream.drops.cut(self._blocks_since(), keyless, gone)
            keyless -= {table for _, dropped in cut for table in dropped}
            keyless -= gone
        if not shows_all_of_its_end(self._connection):
            for table in self._left - keyless:
                self._add_invisible(table)
        if is_behind:
            yield from self._images_before(keyless)
        self._names.check()
        for chunk, changed in self._since:
            if chunk.table in self._left:
                yield from self._batch(chunk, changed.rows_before())

    def _images_before(self, keyless: frozenset[TableName]) -> Iterator[ReadBatch]:
        """Yield the rows that the binlog changes as they were before, without those of ``keyless`` tables."""
        stream, drops = self._stream, self._stream.drops
        # The decoder reads these. A table is removed where it is dropped: a later one of its name is another.
        tables = {chunk.table for chunk, _ in self._since}
        all_tables, existing, concerns = frozenset(tables), frozenset(self._left), self._concerns(tables)
        decoder = self._decoder(tables, existing)
        gone, changed_as_a_whole = set[TableName](), dict[tuple[str, str], str]()
        for block, dropped in drops.cut(self._blocks_since(), tables, gone):
            definitions = checked_statements(block, concerns, stream.unlogged)
            changed_as_a_whole |= definitions.whole
            if stream.known is not None:
                compare_altered(stream.known, definitions, stream.unlogged)
            undone = tables - keyless
            undoing = [(chunk, changed) for chunk, changed in self._since if chunk.table in undone]
            for changes in decoded(decoder, block):
                for chunk, changed in undoing:
                    if chunk.table == (changes.table.database, changes.table.table):
                        yield from self._batch(chunk, changed.undone(changes))
            tables -= dropped
        drops.refuse_renamed(tables - gone - existing, changed_as_a_whole)
        self._left -= all_tables - tables | gone

    def _add_invisible(self, table: TableName) -> None:
        """Add the changes before the position that a SELECT may not see yet: those in the last file of the binlog."""
        begin = LogPosition(LogPosition.of(self._place).file).number
        concerns = self._concerns({table})
        last_file = dumped(self._stream.client, self._base, begin, self._place, check=False)
        for block in self._view.kept_alive(last_file):
            if count := defined_until(block.memory, block.events, concerns, table.table):
                begin = int(block.places[count - 1])
        decoder = self._decoder({table}, {table})
        for block in self._blocks(begin, self._place):
            checked_statements(block, concerns, self._stream.unlogged)
            for changes in decoded(decoder, block):
                for chunk, changed in self._since:
                    if chunk.table == table:
                        changed.add_before(changes)

    @cached_property
    def _base(self) -> str:
        return LogStatus(self._connection).base()

    def _blocks_since(self) -> Iterator[PlacedBlock]:
        as_of = self._stream.relocation.as_of
        return self._blocks(self._place, self._end, None if as_of is None else as_of[1])

    def _blocks(self, start: int, end: int, left_out: str | None = None) -> Iterator[PlacedBlock]:
        return self._names.watch(self._view.kept_alive(self._stream.blocks(self._base, start, end, left_out)))

    def _decoder(self, tables: Collection[TableName], existing: Collection[TableName]) -> ChangeDecoder:
        """Return the decoder for tables; table maps of ``existing`` ones are completed from the server."""
        connection, stream = self._connection, self._stream

        def keys(table: TableMap) -> tuple[str, ...]:
            return *key_names(table), *chunk_names(table, stream.choice)

        def wanted(table: TableMap) -> Collection[str] | None:
            nameless = any(column.name is None for column in table.columns)
            return None if nameless else stream.layout.needed(shown_names(table), keys(table))

        return stream.decoder(
            connection,
            wanted,
            reads=lambda *name: name in tables,
            completed=as_described(
                connection, lambda table: table in existing, self._names.note_described, Rights(connection)
            ),
            keys=keys,
            inspect=partial(check_unpacked, self._concerns(tables), stream.unlogged),
        )

    def _concerns(self, tables: Iterable[TableName]) -> Callable[[str, str], bool]:
        key = self._stream.tables.key
        return lambda database, name: key(TableName(database, name)) in map(key, tables)

    def _batch(self, chunk: TableChunk, rows: TableRows | None) -> Iterator[ReadBatch]:
        as_of, shift = self._stream.relocation.as_of, self._stream.relocation.shift
        return as_inserts(chunk, rows, (self._place if as_of is None else as_of[0]) + shift, self._stream.layout)
