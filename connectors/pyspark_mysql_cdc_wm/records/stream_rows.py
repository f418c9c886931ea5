"""Rows of a table to the stream's columns and their event times, as its layout has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.event_time_column import MOMENT, EventTimeColumn
from pyspark_mysql_cdc_wm.records.json_rows import json_rows
from pyspark_mysql_cdc_wm.records.layout import Layout
from pyspark_mysql_cdc_wm.records.table_definition import Column
from watermark_source.errors import UnsupportedFormatError


class TableRows(NamedTuple):
    """Rows of a table as the stream has them."""

    columns: tuple[pa.Array, ...]
    """The stream's, of the table's own."""
    event_time: pa.Array | None
    """Null where a row tells none; ``None`` if it is not a column of the table."""

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
        wanted = zip(layout.names, layout.types, strict=True)
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
    way = (
        "Load the stream again and start the query with its checkpoint: it goes on here, with the type that the table "
        "has now. Or leave the column out by the option excludeColumns, or set rowFormat to json in a new query, which "
        "follows such changes"
        if _has_room(was, kind)
        else "Leave it out by the option excludeColumns, set rowFormat to json, which follows such changes, or begin a "
        "new query after the change"
    )
    raise UnsupportedFormatError(
        f"{where} was altered: at this place of the binlog the column {name} is {was}, and the stream has it as "
        f"{kind}. {way}"
    )


def _has_room(kind: pa.DataType, was: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(was) and types.is_integer(kind):
        return bool(kind.bit_width >= was.bit_width)
    if types.is_decimal(was) and types.is_decimal(kind):
        return bool(kind.scale >= was.scale and kind.precision - kind.scale >= was.precision - was.scale)
    return bool(types.is_float32(was) and types.is_float64(kind))
