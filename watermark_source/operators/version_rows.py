"""Rows of the build side as they are in state: one tuple of plain values a row, and back to Arrow columns.

Moments, dates and spans of time travel as their integers: exact, and without Python's calendar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def _as_integer(kind: pa.DataType) -> pa.DataType | None:
    """Return the integer type of the same width, of types that are integers with a meaning."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else None


def to_rows(columns: Sequence[pa.ChunkedArray], count: int) -> list[Row]:
    """Return the rows of some columns, which may be none."""
    if not columns:
        return [()] * count
    plain = []
    for column in columns:
        integer = _as_integer(column.type)
        plain.append((column if integer is None else column.cast(integer)).to_pylist())
    return list(zip(*plain, strict=True))


def to_columns(rows: Sequence[Row | None], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows; a row that is ``None`` is null in all of them."""
    nothing = (None,) * len(kinds)
    cells = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(kinds)
    columns = []
    for values, kind in zip(cells, kinds, strict=True):
        integer = _as_integer(kind)
        column = pa.array(values, kind if integer is None else integer)
        columns.append(column if integer is None else column.cast(kind))
    return columns
