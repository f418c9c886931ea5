"""Rows of a snapshot with the columns about changes: each is an insert, as of the place of the snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.change_columns import integers
from pyspark_mysql_cdc_wm.records.event_time_column import MOMENT
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, Layout
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange
from watermark_source.arrow_columns import repeated
from watermark_source.planning.split import Split
from watermark_source.spark.connector.read_batch import ReadBatch

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
