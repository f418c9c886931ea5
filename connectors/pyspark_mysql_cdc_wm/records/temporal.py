"""Columns of dates and times. What is no date (0000-00-00, 2024-00-00, 2023-02-31) is null.

Layouts (my_time.cc): DATE 3 bytes little-endian: day 5 bits, month 4, year 15. The others are big-endian, a fraction of
0 to 3 bytes (two digits each) after them. DATETIME 5 bytes, offset by 0x8000000000: year * 13 + month 17 bits, day 5,
hour 5, minute 6, second 6. TIMESTAMP 4 bytes of seconds since 1970, 0 for none. TIME 3 bytes, with the fraction one
number offset by its highest bit: hour 10 bits, minute 6, second 6. Before MySQL 5.6: digits of a decimal number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import Longs, uint32_at, uint_at
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, fixed
from pyspark_mysql_cdc_wm.records.arrow_types import (
    DATE,
    DATETIME,
    OLD_DATETIME,
    OLD_TIME,
    TEMPORAL,
    TIME,
    TIMESTAMP,
)
from pyspark_mysql_cdc_wm.records.key_column import check_zero_date
from pyspark_mysql_cdc_wm.records.table_definition import Column
from watermark_source.machine_code.iso_8601 import NO_MOMENT, day_of, moment_of
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

_SECOND = 1_000_000
_ZERO = "0000-00-00 00:00:00"


@inlined
def _big(data: Word, at: Word, width: Word) -> Word:
    value = np.int64(0)
    for i in range(width):
        value = value << 8 | byte_at(data, at + i)
    return value


@inlined
def _micros(fraction: Word, width: Word) -> Word:
    if width == 1:
        return fraction * 10_000
    if width == 2:
        return fraction * 100
    return fraction


@inlined
def _datetime(data: Word, at: Word, fraction: Word) -> Word:
    packed = _big(data, at, np.int64(5)) - 0x8000000000
    months = packed >> 22
    micros = _micros(_big(data, at + 5, fraction), fraction)
    day, hour = packed >> 17 & 31, packed >> 12 & 31
    return moment_of(months // 13, months % 13, day, hour, packed >> 6 & 63, packed & 63, micros)


@inlined
def _time(data: Word, at: Word, fraction: Word) -> Word:
    size = 3 + fraction
    packed = _big(data, at, size) - (np.int64(0x80) << (8 * (size - 1)))
    magnitude = abs(packed)
    whole = magnitude >> (8 * fraction)
    seconds = (whole >> 12 & 1023) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    micros = _micros(magnitude & ((np.int64(1) << (8 * fraction)) - 1), fraction)
    found = seconds * _SECOND + micros
    return -found if packed < 0 else found


@inlined
def _timestamp(data: Word, at: Word, fraction: Word) -> Word:
    seconds = _big(data, at, np.int64(4))
    micros = _micros(_big(data, at + 4, fraction), fraction)
    return NO_MOMENT if seconds == 0 and micros == 0 else seconds * _SECOND + micros


@inlined
def _old_datetime(data: Word, at: Word) -> Word:
    digits = uint_at(data, at, np.int64(8))
    day = digits // 1_000_000
    clock = digits % 1_000_000
    hour, minute, second = clock // 10_000, clock // 100 % 100, clock % 100
    return moment_of(day // 10_000, day // 100 % 100, day % 100, hour, minute, second, np.int64(0))


@inlined
def _old_time(data: Word, at: Word) -> Word:
    digits = uint_at(data, at, np.int64(3)) << 40 >> 40
    magnitude = abs(digits)
    found = (magnitude // 10_000 * 3600 + magnitude // 100 % 100 * 60 + magnitude % 100) * _SECOND
    return -found if digits < 0 else found


@compiled("void(uint8[::1], int32[::1], int64, int64, int64[::1])")
def _read(array: Word, starts: Word, layout: Word, fraction: Word, out: Word) -> None:
    """Days for dates, microseconds for all others; ``NO_MOMENT`` for null."""
    data = address_of(array)
    for row in range(starts.shape[0]):
        at = np.int64(starts[row])
        value = NO_MOMENT
        if at >= 0:
            if layout == DATE:
                packed = uint_at(data, at, np.int64(3))
                value = day_of(packed >> 9, packed >> 5 & 15, packed & 31)
            elif layout == DATETIME:
                value = _datetime(data, at, fraction)
            elif layout == TIMESTAMP:
                value = _timestamp(data, at, fraction)
            elif layout == TIME:
                value = _time(data, at, fraction)
            elif layout == OLD_DATETIME:
                value = _old_datetime(data, at)
            elif layout == OLD_TIME:
                value = _old_time(data, at)
            else:
                seconds = uint32_at(data, at)
                value = NO_MOMENT if seconds == 0 else seconds * _SECOND
        out[row] = value


def temporals(values: Values, column: Column, *, of_key: bool = False) -> pa.Array:
    """Return a column of dates or times.

    Raises:
        UnsupportedFormatError: a date ``of_key`` that is none and not zero throughout.
    """
    found = np.empty(values.rows, np.int64)
    layout, _, kind = TEMPORAL[column.type]
    _read(values.data, values.starts, layout, (column.precision + 1) // 2, found)
    return days_or_micros(kind, found, values, partial(_shown, layout) if of_key else None)


def days_or_micros(
    kind: pa.DataType, found: Longs, values: Values, shown: Callable[[bytes], str] | None = None
) -> pa.Array:
    """Return what was found of values as a column; ``shown`` makes the text of a key that is no date.

    Raises:
        UnsupportedFormatError: such a key is not zero throughout.
    """
    present = found != NO_MOMENT
    if shown is not None and not present.all():
        for row in np.flatnonzero(~present & (values.starts >= 0)):
            check_zero_date(shown(values.data[values.starts[row] :][: values.sizes[row]].tobytes()))
    return fixed(kind, found.astype(np.int32) if pa.types.is_date32(kind) else found, present)


def _shown(layout: int, stored: bytes) -> str:
    """Return the text of a value that is no date."""
    if layout == DATE:
        packed = int.from_bytes(stored[:3], "little")
        return f"{packed >> 9:04}-{packed >> 5 & 15:02}-{packed & 31:02}"
    if layout == OLD_DATETIME:
        digits = f"{int.from_bytes(stored[:8], 'little'):014}"
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:]}"
    if layout != DATETIME:
        return _ZERO
    packed = int.from_bytes(stored[:5], "big") - 0x8000000000
    months, day = packed >> 22, packed >> 17 & 31
    clock = f"{packed >> 12 & 31:02}:{packed >> 6 & 63:02}:{packed & 63:02}"
    fraction = int.from_bytes(stored[5:], "big")
    return f"{months // 13:04}-{months % 13:02}-{day:02} {clock}" + (f".{fraction}" if fraction else "")
