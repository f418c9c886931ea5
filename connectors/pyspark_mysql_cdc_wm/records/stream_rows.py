"""Rows of a table to the stream's columns and their event times, as its layout has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.json_rows import json_rows
from pyspark_mysql_cdc_wm.records.key_column import comparable
from pyspark_mysql_cdc_wm.records.layout import MOMENT, EventTimeColumn, Layout, Mask
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.table_definition import Column
from watermark_source.arrow_columns import column, repeated
from watermark_source.errors import UnsupportedFormatError


class TableRows(NamedTuple):
    """Rows of a table as the stream has them."""

    columns: tuple[pa.Array, ...]
    """The stream's, of the table's own."""
    event_time: pa.Array | None
    """Null where a row has none; ``None`` if it is not a column of the table."""

    def take(self, at: pa.Array) -> TableRows:
        """Return some of the rows."""
        times = None if self.event_time is None else self.event_time.take(at)
        return TableRows(tuple(each.take(at) for each in self.columns), times)


def table_rows(
    layout: Layout, where: str, table: Mapping[str, Column], values: Mapping[str, pa.Array], rows: int
) -> TableRows:
    """Return rows of a table, whose columns and values, if it has any that are read, are given by name, in its order.

    A column that the table has not, or had not then, is null.

    Raises:
        UnsupportedFormatError: a column of the table is of another type than the stream's, and does not fit it.
    """
    times = None if layout.event_time is None else _times(where, layout.event_time, values, rows)
    if layout.choice is None:
        wanted = zip(layout.delivered(values), layout.types, strict=True)
        columns = tuple(
            _fitted(where, name, kind, values[name]) if name in values else pa.nulls(rows, kind)
            for name, kind in wanted
        )
        return TableRows(columns, times)
    names = layout.delivered(name for name in table if name in values)
    return TableRows((json_rows([(table[name], values[name]) for name in names], rows),), times)


def _times(where: str, column: EventTimeColumn, values: Mapping[str, pa.Array], rows: int) -> pa.Array:
    name = column.among(values)
    if name is None:
        return pa.nulls(rows, MOMENT)
    if not pa.types.is_timestamp(values[name].type):
        raise UnsupportedFormatError(
            f"{where} was altered: at this place of the binlog the column {name}, which is event time, is "
            f"{values[name].type}"
        )
    return column.moments(values[name])


def _fitted(where: str, name: str, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return values as the stream has them: as they are, or of a type that has room for all that the table's has."""
    was = values.type
    if was == kind:
        return values
    if _has_room(kind, was):
        return values.cast(kind)
    raise UnsupportedFormatError(
        f"{where} was altered: at this place of the binlog the column {name} is {was}, and the stream has it as "
        f"{kind}. Load the stream again and start the query with its checkpoint: it resumes here, with the type that "
        "the table has now, unless the batch has rows of an earlier type as well. Or leave the column out by "
        "the option excludeColumns, or begin a new query; with rowFormat json it follows such changes"
    )


_DIGITS_OF_BIGINT = 19


def _has_room(kind: pa.DataType, was: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(was) and types.is_integer(kind):
        return bool(kind.bit_width >= was.bit_width)
    if types.is_integer(was) and types.is_decimal(kind):
        # As a BIGINT UNSIGNED is.
        return bool(kind.precision - kind.scale >= _DIGITS_OF_BIGINT)
    if types.is_decimal(was) and types.is_decimal(kind):
        return bool(kind.scale >= was.scale and kind.precision - kind.scale >= was.precision - was.scale)
    return bool(types.is_float32(was) and types.is_float64(kind))


# Changes of a table as the columns of a stream: the table's own, then what was changed, when, and in which order.


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
