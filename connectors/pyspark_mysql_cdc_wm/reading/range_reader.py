"""The executor side: ranges of positions to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.reading.binlog_rows import BinlogRows, Keeps
from pyspark_mysql_cdc_wm.reading.snapshot_rows import SnapshotRows
from pyspark_mysql_cdc_wm.records.change_columns import Mask
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder, KeyRange
from watermark_source.errors import InternalError
from watermark_source.planning.snapshot import SnapshotBatch
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import Bound
from watermark_source.spark.connector import ReadBatch, Relocation


@dataclass(frozen=True, slots=True)
class MySqlRangeReader:
    """``RangeReader`` of connector.py, with snapshots and copies. A connection lives as long as its range is read."""

    binlog: BinlogRows
    snapshot: SnapshotRows
    binlog_split: Split

    def relocated(self, relocation: Relocation) -> MySqlRangeReader:
        """Return the reader of a batch: of one server alone, which may not be the one that its offsets are of."""
        client = replace(self.binlog.client, server=relocation.copy)
        return replace(
            self,
            binlog=replace(self.binlog, client=client, relocation=relocation),
            snapshot=replace(self.snapshot, client=client, relocation=relocation),
        )

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, in the order of the binlog.

        Raises:
            SourceError: the server, the way to it, or the bytes it sent.
            DataLossError: rows of a range are gone (``fail_on_data_loss``).
        """
        for wanted in ranges:
            yield from self.binlog.read(wanted)

    def read_during_snapshot(self, ranges: Sequence[SplitRange], batch: SnapshotBatch) -> Iterator[ReadBatch]:
        """Yield the rows of chunks as of the batch's end, and of the binlog what concerns keys that were read before.

        Raises as ``read`` does.
        """
        place = batch.positions[self.binlog_split]
        for wanted in ranges:
            chunk = batch.chunks.get(wanted)
            if chunk is not None:
                keys = KeyRange(chunk.lower, chunk.upper)
                yield from self.snapshot.read(wanted.split, _table(wanted.split.log), keys, place)
            elif wanted.split == self.binlog_split:
                with closing(MySqlConnection(self.binlog.client)) as connection:
                    order = KeyOrder(self.snapshot.columns.key_columns, connection)
                    yield from self.binlog.read(wanted, _copied(batch.copied, self.binlog.layout.key, order))
            else:
                raise InternalError(f"{wanted} is no chunk of its batch")


def _copied(copied: Mapping[str, Bound], key: Sequence[str], order: KeyOrder) -> Keeps:
    """Return what tells which images are of rows that batches before have delivered."""

    def keeps(changes: Changes) -> Mask | None:
        log = f"{changes.table.database}.{changes.table.table}"
        if log not in copied:
            return None
        if copied[log] is None:
            return np.zeros(len(changes.versions), np.bool_)
        return order.within([changes.column(name) for name in key], KeyRange(None, copied[log]))

    return keeps


def _table(log: str) -> TableName:
    database, _, table = log.partition(".")
    return TableName(database, table)
