"""Changes of a table as the columns of a stream: the table's own, then what was changed, when, and in which order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.event_time_column import MOMENT
from pyspark_mysql_cdc_wm.records.key_column import comparable
from pyspark_mysql_cdc_wm.records.layout import Layout, Mask
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, table_rows
from watermark_source.arrow_columns import column, repeated

_TYPES = column(("insert", "update_preimage", "update_postimage", "delete"), pa.string())
"""By what an image is."""


class ChangedRows(NamedTuple):
    """Rows to deliver: all columns before the engine's own, and their event times."""

    rows: int
    columns: tuple[pa.Array, ...]
    event_time: pa.Array


def table_rows_of(changes: Changes, layout: Layout) -> TableRows:
    """Return what of the stream comes of the table's own columns.

    Raises:
        UnsupportedFormatError: the table had other columns then.
    """
    where = f"table {changes.table.database}.{changes.table.table}"
    columns = {str(column.name): column for column in changes.table.columns if not column.hidden}
    values = dict(zip(changes.names, changes.columns, strict=True))
    return table_rows(layout, where, columns, values, len(changes.images.kinds))


def changed_rows(changes: Changes, layout: Layout, kept: Mask | None = None) -> ChangedRows:
    """Return the images as rows of the stream; only those that are ``kept``.

    An update that changes the primary key is two things: the old row is deleted, another is inserted. An update of
    which only one image is kept is that one's half.
    """
    kinds = change_types(changes, kept)
    table = table_rows_of(changes, layout)
    version, number, committed = changes.versions, changes.numbers, changes.committed
    if kept is not None:
        chosen = np.flatnonzero(kept)
        kinds, version, number, committed = kinds[chosen], version[chosen], number[chosen], committed[chosen]
        table = table.take(integers(chosen, pa.int64()))
    rows = len(kinds)
    when = integers(committed, MOMENT)
    about = {
        "_change_type": _TYPES.take(integers(kinds, pa.int64())),
        "_snapshot": repeated(False, pa.bool_(), rows),
        "_commit_version": integers(version, pa.int64()),
        "_change_number": integers(number, pa.int64()),
        "_commit_timestamp": when,
        "_database": repeated(changes.table.database, pa.string(), rows),
        "_table": repeated(changes.table.table, pa.string(), rows),
    }
    times = when if table.event_time is None else pc.coalesce(table.event_time, when)
    return ChangedRows(rows, (*table.columns, *map(about.get, layout.about)), times)


def change_types(changes: Changes, kept: Mask | None) -> npt.NDArray[np.int64]:
    """Return what each image is delivered as: ``INSERT``, ``UPDATE_BEFORE``, ``UPDATE_AFTER`` or ``DELETE``."""
    kinds = changes.images.kinds.astype(np.int64)
    before = np.flatnonzero(kinds == UPDATE_BEFORE)
    if not before.size:
        return kinds
    # Both images of an update lie side by side.
    halves = np.zeros(before.size, np.bool_) if kept is None else kept[before] != kept[before + 1]
    for name in changes.key:
        values = comparable(changes.column(name))
        old, new = (values.take(integers(at, pa.int64())) for at in (before, before + 1))
        # What is no date is null.
        same = pc.equal(old, new).fill_null(False)
        same = pc.or_(same, pc.and_(old.is_null(), new.is_null()))
        halves |= ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
    kinds[before[halves]] = DELETE
    kinds[before[halves] + 1] = INSERT
    return kinds


def integers(values: npt.NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """Return a column without nulls of integers, or of what integers stand for."""
    content = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(content)], 0)
