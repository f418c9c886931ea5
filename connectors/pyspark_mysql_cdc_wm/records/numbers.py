"""Columns of integers, floating point numbers, years and bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import Longs, uint_at
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, binary, fixed
from pyspark_mysql_cdc_wm.records.arrow_types import integer_type
from watermark_source.arrow_columns import bitmap
from watermark_source.machine_code.native import Word, address_of, compiled


@compiled("void(uint8[::1], int32[::1], int64, boolean, int64[::1])")
def _little(array: Word, starts: Word, width: Word, signed: Word, out: Word) -> None:
    data = address_of(array)
    shift = np.int64(64 - 8 * width)
    for row in range(starts.shape[0]):
        value = np.int64(0)
        if starts[row] >= 0:
            value = uint_at(data, np.int64(starts[row]), width)
            if signed:
                value = (value << shift) >> shift
        out[row] = value


def words(values: Values, width: int, *, signed: bool = False) -> Longs:
    """Return little-endian numbers of ``width`` bytes, 0 for null."""
    out = np.empty(values.rows, np.int64)
    _little(values.data, values.starts, width, signed, out)
    return out


def integers(values: Values, width: int, *, unsigned: bool) -> pa.Array:
    """Return a column of integers of 1, 2, 3, 4 or 8 bytes."""
    kind = integer_type(width, unsigned=unsigned)
    return whole_numbers(values, words(values, width, signed=not unsigned), kind)


def whole_numbers(values: Values, found: Longs, kind: pa.DataType) -> pa.Array:
    """Return the column of located values that are these; unsigned ones of 8 bytes are decimals."""
    present = values.starts >= 0
    if pa.types.is_decimal(kind):
        wide = np.zeros((values.rows, 2), np.int64)
        wide[:, 0] = found
        return fixed(kind, wide, present)
    return fixed(kind, found.astype(kind.to_pandas_dtype(), copy=False), present)


def floats(values: Values, width: int) -> pa.Array:
    """Return a column of floating point numbers of 4 or 8 bytes."""
    found = words(values, width)
    present = values.starts >= 0
    if width == 4:
        return fixed(pa.float32(), found.astype(np.uint32), present)
    return fixed(pa.float64(), found, present)


def years(values: Values) -> pa.Array:
    """Return a column of years; the year 0000 is 0."""
    found = words(values, 1)
    years: npt.NDArray[np.int32] = np.where(found == 0, 0, 1900 + found).astype(np.int32)
    return fixed(pa.int32(), years, values.starts >= 0)


def bits(values: Values, count: int) -> pa.Array:
    """Return a column of BIT(``count``), more than one as big-endian bytes."""
    if count > 1:
        return binary(pa.binary(), values)
    return fixed(pa.bool_(), np.frombuffer(bitmap(words(values, 1)), np.uint8), values.starts >= 0)
