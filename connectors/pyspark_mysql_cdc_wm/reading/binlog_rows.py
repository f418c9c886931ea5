"""A range of the binlog to rows: what changed in the tables that are read, in the order of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.client.charsets import charsets_of
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.log_dump import dumped, dumped_without
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.log_status import LogStatus
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.change_columns import MOMENT, Layout, Mask, changed_rows
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes
from pyspark_mysql_cdc_wm.records.column import TableMap
from pyspark_mysql_cdc_wm.records.statements import refuse_statements
from watermark_source.errors import DataLossError
from watermark_source.planning.split import SplitRange
from watermark_source.spark.connector import ReadBatch, Relocation

_log = logging.getLogger(__name__)

Keeps = Callable[[Changes], Mask | None]
"""Which images to deliver; ``None`` is all."""


def keep_all(_: Changes) -> None:
    """Deliver everything."""


@dataclass(frozen=True, slots=True)
class BinlogRows:
    """Reads ranges of the binlog."""

    client: ClientSettings
    tables: frozenset[TableName]
    layout: Layout
    fail_on_data_loss: bool
    relocation: Relocation | None = None
    batch_rows: int = 10_000

    def read(self, wanted: SplitRange, keeps: Keeps = keep_all) -> Iterator[ReadBatch]:
        """Yield the rows of a range; the last batch has none, and tells how far the log's time has come.

        Raises:
            DataLossError: part of the range was purged, and ``fail_on_data_loss`` is set.
            SourceError: the server, the way to it, or the bytes it sent.
        """
        shift, left_out = 0, None
        if self.relocation is not None:
            shift, left_out = self.relocation.shift, self.relocation.left_out
        with closing(MySqlConnection(self.client)) as connection:
            base = LogStatus(connection).base()
            charsets = charsets_of(connection)
            decoder = ChangeDecoder(charsets, self.needed, batch_rows=self.batch_rows)
            start = wanted.start
            if not self.fail_on_data_loss:
                start = self._still_there(connection, wanted)
        if left_out is None:
            blocks = dumped(self.client, base, start, wanted.end)
        else:
            blocks = dumped_without(self.client, GtidSet.parse(left_out), wanted.end)
        try:
            for block in blocks:
                refuse_statements(block.memory, block.events, block.file, self.tables)
                places = block.places + shift
                for changes in decoder.decode(block.memory, block.events, block.file, places):
                    rows = changed_rows(changes, self.layout, keeps(changes))
                    if rows.rows:
                        yield ReadBatch(wanted.split, rows.rows, rows.columns, self._event_time(rows.committed))
        except DataLossError:
            if self.fail_on_data_loss:
                raise
            _log.warning("failOnDataLoss is false: the rest of %s was purged while it was read", wanted)
        yield ReadBatch(wanted.split, 0, (), pa.nulls(0, MOMENT), reached=decoder.reached or None)

    def _event_time(self, committed: pa.Array) -> pa.Array:
        floor = None if self.relocation is None else self.relocation.floor
        if floor is None:
            return committed
        return pc.max_element_wise(committed.view(pa.int64()), floor * 1_000).view(MOMENT)

    def needed(self, table: TableMap) -> Collection[str] | None:
        """Return the columns of a table to decode, ``None`` if nobody reads it."""
        return self.layout.needed if TableName(table.database, table.table) in self.tables else None

    def _still_there(self, connection: MySqlConnection, wanted: SplitRange) -> int:
        earliest = LogStatus(connection).earliest().number
        if earliest <= wanted.start:
            return wanted.start
        _log.warning("failOnDataLoss is false: of %s, what is before %d was purged", wanted, earliest)
        return min(earliest, wanted.end)
