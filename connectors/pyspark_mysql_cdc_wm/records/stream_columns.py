"""Rows of a table to the stream's columns, as its layout has them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column import Column
from pyspark_mysql_cdc_wm.records.json_rows import json_rows
from pyspark_mysql_cdc_wm.records.layout import Layout
from watermark_source.errors import UnsupportedFormatError


def stream_columns(
    layout: Layout, where: str, table: Mapping[str, Column], values: Mapping[str, pa.Array]
) -> tuple[pa.Array, ...]:
    """Return the stream's columns of rows of a table, whose columns and values are given by name, in its order.

    A column that the table has not, or had not then, is null.

    Raises:
        UnsupportedFormatError: a column of the table is of another type than the stream's, and does not fit it.
    """
    rows = len(next(iter(values.values()), ()))
    if layout.choice is None:
        wanted = zip(layout.names, layout.types, strict=True)
        return tuple(
            _fitted(where, name, kind, values[name]) if name in values else pa.nulls(rows, kind)
            for name, kind in wanted
        )
    names = layout.delivered(name for name in table if name in values)
    return (json_rows([(table[name], values[name]) for name in names], rows),)


def _fitted(where: str, name: str, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return values as the stream has them: as they are, or of a type that has room for all that the table's has."""
    was = values.type
    if was == kind:
        return values
    if _has_room(kind, was):
        return values.cast(kind)
    raise UnsupportedFormatError(
        f"{where} was altered: at this place of the binlog the column {name} is {was}, and the stream has it as "
        f"{kind}. Leave it out by the option excludeColumns, set rowFormat to json, which follows such changes, or "
        "begin a new query after the change"
    )


def _has_room(kind: pa.DataType, was: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(was) and types.is_integer(kind):
        return bool(kind.bit_width >= was.bit_width)
    if types.is_decimal(was) and types.is_decimal(kind):
        return bool(kind.scale >= was.scale and kind.precision - kind.scale >= was.precision - was.scale)
    return bool(types.is_float32(was) and types.is_float64(kind))
