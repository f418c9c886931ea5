"""Rows of the build side as they are in state: one tuple of plain values a row, and back to Arrow columns.

Moments, dates and spans of time travel as their integers: exact, and without Python's calendar. Texts travel as their
bytes: Spark's need not be UTF-8. Both also within structs, arrays and maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

_PLAIN = {
    pa.types.is_timestamp: pa.int64(),
    pa.types.is_duration: pa.int64(),
    pa.types.is_time64: pa.int64(),
    pa.types.is_date32: pa.int32(),
    pa.types.is_string: pa.binary(),
}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values as Python holds all of them."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_plain(member.type)) for member in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    return next((plain for is_it, plain in _PLAIN.items() if is_it(kind)), kind)


def to_rows(columns: Sequence[pa.ChunkedArray], count: int) -> list[Row]:
    """Return the rows of some columns, which may be none."""
    if not columns:
        return [()] * count
    return list(zip(*(column.cast(_plain(column.type)).to_pylist() for column in columns), strict=True))


def to_columns(rows: Sequence[Row | None], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of rows; a row that is ``None`` is null in all of them."""
    nothing = (None,) * len(kinds)
    cells = list(zip(*(nothing if row is None else row for row in rows), strict=True)) or [()] * len(kinds)
    return [
        # Not safe: bytes become a text whatever they are.
        pa.array(values, _plain(kind)).cast(kind, safe=False)
        for values, kind in zip(cells, kinds, strict=True)
    ]
