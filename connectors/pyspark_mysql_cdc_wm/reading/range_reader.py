"""The reader of ranges on executors, which returns Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, TableReading
from pyspark_mysql_cdc_wm.reading.binlog_rows import read_binlog
from pyspark_mysql_cdc_wm.reading.delivered_tables import Part
from pyspark_mysql_cdc_wm.reading.snapshot_rows import TableChunk, read_chunks
from pyspark_mysql_cdc_wm.reading.stream_to_read import StreamToRead
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Mask
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from pyspark_mysql_cdc_wm.snapshot.rows_as_of import LoggedOrder, chunk_names
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Relocation
from watermark_source.errors import InternalError
from watermark_source.planning.snapshot_ranges import Chunk, SnapshotBatch
from watermark_source.planning.split import Piece, SplitRange


@dataclass(frozen=True, slots=True)
class MySqlRangeReader:
    """Implements ``RangeReader``, with snapshots and replicas. Each range has a connection of its own."""

    stream: StreamToRead

    def relocated(self, relocation: Relocation) -> MySqlRangeReader:
        """Return the reader of a batch for one server, which need not be the one that the offsets come from."""
        client = replace(self.stream.client, server=relocation.copy)
        return MySqlRangeReader(replace(self.stream, client=client, relocation=relocation))

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, in the order of the binlog.

        Raises:
            SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
            DataLossError: rows of a range were purged, and ``fail_on_data_loss`` is set.
        """
        for wanted in ranges:
            yield from read_binlog(self.stream, wanted)

    def read_piece(self, piece: Piece, batch: SnapshotBatch | None) -> Iterator[ReadBatch]:
        """Yield the rows of a piece of the binlog; raises as ``read`` does."""
        if batch is None:
            yield from read_binlog(self.stream, piece.range, whole=piece.whole)
        else:
            yield from self._read_beside(piece.range, batch, piece.whole)

    def read_during_snapshot(self, ranges: Sequence[SplitRange], batch: SnapshotBatch) -> Iterator[ReadBatch]:
        """Yield the rows of chunks as of the batch's end, and the changes to keys that previous batches read.

        Raises as ``read`` does.
        """
        chunks = []
        for wanted in ranges:
            chunk = batch.chunks.get(wanted)
            if chunk is not None:
                chunks.append(TableChunk(wanted.split, TableReading.of(wanted.split.log), chunk))
            elif wanted.split == BINLOG:
                yield from self._read_beside(wanted, batch, None)
            else:
                raise InternalError(f"{wanted} is not a chunk of its batch")
        if chunks:
            yield from read_chunks(self.stream, chunks, batch.positions[BINLOG])

    def _read_beside(self, wanted: SplitRange, batch: SnapshotBatch, whole: SplitRange | None) -> Iterator[ReadBatch]:
        """Yield the changes of the binlog to keys that previous batches read."""
        stream = self.stream
        with closing(MySqlConnection(stream.client)) as connection:
            part = _Copied(batch, stream.tables, connection, stream.choice)
            yield from read_binlog(stream, wanted, part, whole)


class _Copied(Part):
    """The ``Part`` with the changes to rows that previous batches have delivered."""

    def __init__(
        self, batch: SnapshotBatch, tables: Selection, connection: MySqlConnection, choice: ColumnChoice
    ) -> None:
        self._choice = choice
        self._key = tables.key
        # A table that is read again has been read before.
        read = {log: TableReading.of(log) for log in (*batch.complete, *batch.copied)}
        first = {log: tables.key(reading.table) for log, reading in read.items() if reading.label is None}
        self._complete = {first[log] for log in batch.complete & first.keys()}
        self._copied = {first[log]: bound for log, bound in batch.copied.items() if log in first}
        self._order = LoggedOrder(connection, choice)

    def has(self, table: TableName) -> bool:
        """Return whether previous batches have read any rows of a table."""
        key = self._key(table)
        return key in self._complete or self._copied.get(key) is not None

    def has_any(self, database: str) -> bool:
        """Return whether previous batches have read any rows of a database's tables."""
        own = self._key(TableName(database, "")).database
        read = self._complete | {key for key, bound in self._copied.items() if bound is not None}
        return any(key.database == own for key in read)

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return the columns whose ranges are chunks."""
        return chunk_names(table, self._choice)

    def keeps(self, changes: Changes) -> Mask | None:
        """Return which row images have keys below the end of the last chunk that was read.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            OffsetError: the key column was altered since, or snapshotChunkColumn was changed.
        """
        table = self._key(TableName(changes.table.database, changes.table.table))
        if table in self._complete:
            return None
        return self._order.within(changes, Chunk(None, self._copied[table]))
