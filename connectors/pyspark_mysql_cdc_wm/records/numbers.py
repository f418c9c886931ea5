"""Columns of numbers: integers, decimals, floating point numbers, years and bits; and of vectors and geometries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Fault, Longs, uint_at
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, array_of, binary, fixed, gathered
from pyspark_mysql_cdc_wm.records.arrow_types import (
    GEOMETRY_TYPE,
    GROUP_BYTES,
    LONGEST_DECIMAL,
    VECTOR_TYPE,
    decimal_type,
    integer_type,
)
from watermark_source.arrow_columns import allocated, bitmap
from watermark_source.errors import CorruptDataError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined


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
    """Return a column of integers of 1, 2, 3, 4 or 8 bytes; unsigned ones of 8 bytes are decimals."""
    kind = integer_type(width, unsigned=unsigned)
    found, present = words(values, width, signed=not unsigned), values.starts >= 0
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


# Columns of DECIMAL: up to 38 digits as decimals, more as text.
#
# Layout (decimal.c): digits of the integer and of the fraction in groups of nine, four bytes each, the groups that
# are not full (the first and the last) in as few bytes as hold them; big-endian. The highest bit of all is inverted;
# below zero, all bits are.


_GROUP = 9
_POWERS = 10 ** np.arange(_GROUP + 1, dtype=np.int64)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def _digits(left: Word, scale: Word) -> Word:
    """Return the number of digits of the next group, given the remaining digits."""
    # Groups begin at the point: the first of the integer and the last of the fraction may be short.
    if left <= scale:
        return min(left, np.int64(_GROUP))
    digits = (left - scale) % _GROUP
    return np.int64(_GROUP) if digits == 0 else digits


@inlined
def _group(data: Word, at: Word, width: Word, first: Word, mask: Word) -> Word:
    """One group of digits: its bytes, the highest bit of the number's first byte put right, inverted below zero."""
    value = np.int64(0)
    for i in range(width):
        byte = byte_at(data, at + i) ^ mask
        if first and i == 0:
            byte ^= 0x80
        value = value << 8 | byte
    return value


@inlined
def _with_digits(low: Word, high: Word, digits: Word, group: Word) -> tuple[Word, Word]:
    """128 bits, low half first, with at most nine more decimal digits at their end."""
    power = np.uint64(_POWERS[digits])
    bottom = (low & _LOW) * power + np.uint64(group)
    top = (low >> np.uint64(32)) * power + (bottom >> np.uint64(32))
    return (top << np.uint64(32)) | (bottom & _LOW), high * power + (top >> np.uint64(32))


@inlined
def _negated(low: Word, high: Word) -> tuple[Word, Word]:
    """The two's complement of 128 bits, low half first."""
    low = ~low + np.uint64(1)
    return low, ~high + np.uint64(1) if low == 0 else ~high


@compiled("int64(uint8[::1], int32[::1], int64, int64, uint64[:, ::1])")
def _fill(array: Word, starts: Word, precision: Word, scale: Word, out: Word) -> Word:
    """128 bits for each value, in two's complement, low half first; a fault if a group has too many digits."""
    data = address_of(array)
    for row in range(starts.shape[0]):
        low, high = np.uint64(0), np.uint64(0)
        at = np.int64(starts[row])
        if at >= 0:
            negative = byte_at(data, at) & 0x80 == 0
            mask = np.int64(0xFF) if negative else np.int64(0)
            first = True
            left = precision
            while left > 0:
                digits = _digits(left, scale)
                group = _group(data, at, GROUP_BYTES[digits], first, mask)
                if group >= _POWERS[digits]:
                    return np.int64(Fault.DECIMAL)
                at += GROUP_BYTES[digits]
                first = False
                left -= digits
                low, high = _with_digits(low, high, digits, group)
            if negative:
                low, high = _negated(low, high)
        out[row, 0] = low
        out[row, 1] = high
    return np.int64(Fault.NONE)


@inlined
def decimal_text(  # noqa: PLR0917 - compiled
    data: Word, start: Word, precision: Word, scale: Word, out: Word, end: Word
) -> Word:
    """Write a number the way the server shows it, at most ``precision + 3`` bytes; where it ends, or -1 for a fault."""
    at = start
    negative = byte_at(data, at) & 0x80 == 0
    mask = np.int64(0xFF) if negative else np.int64(0)
    if negative:
        out[end] = ord("-")
        end += 1
    begun = False
    left = precision
    while left > 0:
        digits = _digits(left, scale)
        group = _group(data, at, GROUP_BYTES[digits], at == start, mask)
        if group >= _POWERS[digits]:
            return np.int64(-1)
        at += GROUP_BYTES[digits]
        for i in range(digits):
            if left == scale:
                if not begun:
                    out[end] = ord("0")
                    end += 1
                    begun = True
                out[end] = ord(".")
                end += 1
            digit = group // _POWERS[digits - 1 - i] % 10
            if begun or digit != 0:
                out[end] = ord("0") + digit
                end += 1
                begun = True
            left -= 1
    if not begun:
        out[end] = ord("0")
        end += 1
    return end


@compiled("int64(uint8[::1], int32[::1], int64, int64, int32[::1], uint8[::1])")
def _write(array: Word, starts: Word, precision: Word, scale: Word, offsets: Word, out: Word) -> Word:  # noqa: PLR0917
    data = address_of(array)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(starts.shape[0]):
        if starts[row] >= 0:
            end = decimal_text(data, np.int64(starts[row]), precision, scale, out, end)
            if end < 0:
                return np.int64(Fault.DECIMAL)
        offsets[row + 1] = end
    return np.int64(Fault.NONE)


def decimals(values: Values, precision: int, scale: int) -> pa.Array:
    """Return a column of DECIMAL(``precision``, ``scale``).

    Raises:
        CorruptDataError: a value that is none.
    """
    present = values.starts >= 0
    if precision <= LONGEST_DECIMAL:
        out = np.empty((values.rows, 2), np.uint64)
        fault = _fill(values.data, values.starts, precision, scale, out)
        made = fixed(decimal_type(precision, scale), out, present)
    else:
        offsets, offsets_view = allocated(values.rows + 1, np.int32)
        content, content_view = allocated((precision + 3) * values.rows + PADDING, np.uint8)
        fault = _write(values.data, values.starts, precision, scale, offsets_view, content_view)
        made = array_of(pa.string(), present, offsets, content)
    if fault:
        raise CorruptDataError("a DECIMAL that has digits above nine")
    return made


_SRID_SIZE = 4
_FLOAT_SIZE = 4


def geometries(values: Values) -> pa.Array:
    """Return a column of the reference system's number and the shape as well-known binary.

    Raises:
        CorruptDataError: a value without a number.
    """
    present = values.starts >= 0
    if (values.sizes[present] < _SRID_SIZE).any():
        raise CorruptDataError("a geometry of less than four bytes")
    srid = fixed(pa.int32(), words(values, _SRID_SIZE).astype(np.int32), np.ones(values.rows, np.bool_))
    wkb = binary(pa.binary(), values, skip=_SRID_SIZE)
    return array_of(GEOMETRY_TYPE, present, children=[srid, wkb])


def vectors(values: Values) -> pa.Array:
    """Return a column of lists of floating point numbers of four bytes.

    Raises:
        CorruptDataError: a part of a number.
    """
    if (values.sizes % _FLOAT_SIZE).any():
        raise CorruptDataError("a vector with a part of a number")
    offsets, content = gathered(values)
    counts = np.frombuffer(offsets, np.int32)[: values.rows + 1] // _FLOAT_SIZE
    items = pa.Array.from_buffers(pa.float32(), int(counts[-1]), [None, content])
    return array_of(VECTOR_TYPE, values.starts >= 0, pa.py_buffer(counts), children=[items])
