"""A primary key of one whole number, as numbers that can be compared with the bounds of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column import ColumnType

WHOLE_NUMBERS = frozenset({ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG})
Keys = npt.NDArray[np.integer[Any]]
"""64 bits, with a sign or without."""


def key_numbers(column: pa.Array) -> Keys:
    """Return a column of integers, or of eight bytes without a sign (a decimal), which has no nulls, as numbers."""
    if pa.types.is_decimal(column.type):
        halves = np.frombuffer(column.buffers()[1], np.uint64)
        return halves[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def within(keys: Keys, lower: int | None, upper: int | None) -> npt.NDArray[np.bool_]:
    """Return which keys are at or above ``lower`` and below ``upper``; ``None`` is no limit."""
    inside = np.ones(len(keys), np.bool_)
    if lower is not None:
        inside &= keys >= keys.dtype.type(lower)
    if upper is not None:
        inside &= keys < keys.dtype.type(upper)
    return inside
