"""The rows of a range of the binlog: the changes to the tables that are read, in the order of the binlog."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, TransactionStarts
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.rights import Rights, readable_columns
from pyspark_mysql_cdc_wm.lookup.table_columns import as_described
from pyspark_mysql_cdc_wm.lookup.table_list import is_sequence
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.reading.delivered_tables import EVERYTHING, DeliveredTables, Part
from pyspark_mysql_cdc_wm.reading.schema_changes import altered_in, changes_between, check_unpacked
from pyspark_mysql_cdc_wm.reading.stream_to_read import StreamToRead, decoded
from pyspark_mysql_cdc_wm.records.changes import Changes, as_logged
from pyspark_mysql_cdc_wm.records.layout import MOMENT
from pyspark_mysql_cdc_wm.records.stream_rows import ChangedRows, changed_rows
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, key_names, shown_names
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import DataLossError, UnskippableLossError, UnsupportedFormatError
from watermark_source.planning.split import SplitRange

_log = logging.getLogger(__name__)


def read_binlog(
    stream: StreamToRead, wanted: SplitRange, part: Part = EVERYTHING, whole: SplitRange | None = None
) -> Iterator[ReadBatch]:
    """Yield the rows of a range; the last batch is empty and has the highest commit time that was reached.

    Both ends of the range are between transactions, or it is a piece of ``whole``, whose ends are. The dump then
    begins where ``whole`` does, and events before the piece are skipped. An event belongs to the piece in which it
    ends. With MariaDB, which may roll back a transaction at its end, it belongs to the piece in which its
    transaction begins.

    Raises:
        DataLossError: part of the range was purged, and ``fail_on_data_loss`` is set.
        SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
    """
    with closing(MySqlConnection(stream.client)) as connection:
        yield from _RangeRead(stream, connection, wanted, part, whole).batches()


class _ReadTables:
    """The tables that a range has changes of: whether they are delivered, which columns, and what altered them."""

    def __init__(self, stream: StreamToRead, connection: MySqlConnection, part: Part) -> None:
        self._stream, self._connection, self._part = stream, connection, part
        self.rights = Rights(connection)
        begun = frozenset[TableName]() if stream.known is None else stream.known.tables
        self.delivers = DeliveredTables(stream.tables, part, self.rights, begun)
        self._altered: dict[tuple[str, str], str] = {}

    def check_statements(self, block: PlacedBlock) -> None:
        """Refuse the statements of a block that are not followed, and note which tables they altered."""
        if self._stream.known is not None:
            self._altered |= altered_in(block, self.delivers, self._stream.unlogged, self._stream.known)

    def needed(self, table: TableMap) -> Collection[str] | None:
        """Return the columns to decode of a table that is read; ``None`` for a sequence, which snapshots leave out."""
        if is_sequence(self._connection, table):
            return None
        name, known = TableName(table.database, table.table), self._stream.known
        if known is not None:
            if self._part is EVERYTHING:
                known.check(table)
            known.check_readable(name, {column.name for column in table.columns if column.hidden}, self.rights)
            has_now = partial(readable_columns, self._connection, name)
            by = f" by {self._altered[name]}" if name in self._altered else ""
            known.compare(name, shown_names(table), has_now, "where the binlog is read", by)
        compared = (*key_names(table), *self._part.compares(table))
        return self._stream.layout.needed(shown_names(table), compared)

    def delivered(self, changes: Changes) -> ChangedRows:
        """Return the rows to deliver of changes; raises as ``changed_rows``."""
        try:
            return changed_rows(changes, self._stream.layout, self._part.keeps(changes))
        except UnsupportedFormatError as problem:
            by = self._altered.get((changes.table.database, changes.table.table))
            if by is None:
                raise
            raise UnsupportedFormatError(f"{problem}. It was altered by {by}") from problem


class _RangeRead:
    """One read of a range."""

    def __init__(
        self,
        stream: StreamToRead,
        connection: MySqlConnection,
        wanted: SplitRange,
        part: Part,
        whole: SplitRange | None,
    ) -> None:
        status, tables = LogStatus(connection), _ReadTables(stream, connection, part)
        delivers, names = tables.delivers, stream.present_names(lambda: status.end().number)
        self._stream, self._connection, self._wanted, self._whole = stream, connection, wanted, whole
        self._status, self._base, self._tables, self._names = status, status.base(), tables, names
        described = as_described(connection, lambda name: delivers(*name), names.note_described, tables.rights)
        # Commit times need no column names.
        named = stream.layout.names or stream.layout.event_time is not None or part is not EVERYTHING
        # Nothing here refers to this object: in a circle with it the decoder's memory would stay until a collection.
        self._decoder = stream.decoder(
            connection,
            tables.needed,
            reads=delivers,
            completed=described if named else as_logged,
            inspect=None if stream.known is None else partial(check_unpacked, delivers, stream.unlogged),
        )

    def batches(self) -> Iterator[ReadBatch]:
        """Yield the rows, and the highest commit time; raises as ``read_binlog``."""
        stream = self._stream
        try:
            for block in self._blocks():
                self._tables.check_statements(block)
                for changes in decoded(self._decoder, block, stream.relocation.shift):
                    rows = self._tables.delivered(changes)
                    if rows.rows:
                        yield ReadBatch(self._wanted.split, rows.rows, rows.columns, self._on_time(rows.event_time))
            self._names.check(partial(changes_between, stream.run, stream.client, self._base, self._entered.end))
        except UnskippableLossError as loss:
            if stream.fail_on_data_loss:
                raise DataLossError(f"{loss}. Set failOnDataLoss to false to continue with the rest") from loss
            _log.warning(
                "failOnDataLoss=false: skipping the rest of %s, which was purged while it was read",
                self._shown(self._wanted),
            )
        if stream.layout.event_time is None:
            yield ReadBatch(self._wanted.split, 0, (), pa.nulls(0, MOMENT), reached=self._decoder.reached or None)

    @property
    def _entered(self) -> SplitRange:
        """The range that the dump is of."""
        return self._whole or self._wanted

    def _blocks(self) -> Iterator[PlacedBlock]:
        left_out, start = self._stream.relocation.left_out, self._entered.start
        # A dump by GTIDs does not depend on where the range begins.
        if not self._stream.fail_on_data_loss and left_out is None:
            start = self._available_start()
        end = self._entered.end if left_out is None else self._wanted.end
        blocks = self._names.watch(self._stream.blocks(self._base, start, end, left_out))
        if self._whole is None:
            return blocks
        return self._of_piece(blocks, start if self._connection.is_mariadb else None)

    def _of_piece(self, blocks: Iterator[PlacedBlock], entered: int | None) -> Iterator[PlacedBlock]:
        """Yield the events that end in the piece; the decoder skips the events before it.

        If ``entered``, the position at which the dump begins, is given, yield whole transactions that begin in it.
        """
        piece, starts = self._wanted, TransactionStarts(entered or 0)
        for block in blocks:
            places = block.places
            if entered is not None:
                begins, before = starts.of(block)
                begun = np.concatenate((np.array([entered], np.int64), before))
                entered = int(begun[-1])
                places = np.repeat(begun + 1, np.diff(begins, prepend=0, append=len(places)))
            first, last = np.searchsorted(places, (piece.start, piece.end), side="right").tolist()
            if first:
                passed, shift = block.between(0, first), self._stream.relocation.shift
                self._decoder.pass_over(
                    passed.memory, passed.events, passed.file, passed.places + shift, prepared=passed.prepared
                )
            if first < last:
                yield block.between(first, last)
            if last < len(block.places):
                return

    def _on_time(self, times: pa.Array) -> pa.Array:
        """Return commit times raised to the watermark: the clock of a new server may be behind, or was set back.

        MariaDB logs the start times of statements, which are in no order: they stay.
        """
        floor = self._stream.relocation.floor
        if floor is None or self._stream.layout.event_time is not None or self._connection.is_mariadb:
            return times
        return pc.max_element_wise(times.view(pa.int64()), floor * 1_000).view(MOMENT)

    def _available_start(self) -> int:
        earliest, entered = self._status.earliest(), self._entered
        if earliest.number <= entered.start:
            return entered.start
        _log.warning(
            "failOnDataLoss=false: of %s, skipping what is before %s, which was purged",
            self._shown(entered),
            earliest.shown(self._base),
        )
        return min(earliest.number, entered.end)

    def _shown(self, wanted: SplitRange) -> str:
        return wanted.shown(lambda _, position: LogPosition.of(position).shown(self._base))
