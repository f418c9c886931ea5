"""Records of a run of batches: where each one's fields lie, as arrays, one compiled pass.

A record: length, attributes 1, timestamp delta, offset delta, key length and key, value length and value, header count
and headers; lengths, deltas and counts are zigzag varints, length -1 is null.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pyspark_aligned_kafka.records.record_batches import (
    ATTRIBUTES,
    BASE,
    BASE_TIME,
    COUNT,
    LAST,
    LOG_APPEND_TIME,
    MAX_TIME,
    SMALLEST_RECORD,
    START,
    STOP,
    Bytes,
    Fault,
    Longs,
    fault_error,
    varint_at,
)
from watermark_source.machine_code.iso_8601 import NO_MOMENT
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined
from watermark_source.planning.split import Split, SplitRange

# A cursor: which batch, which record of it, where its bytes begin, the offset before it.
_FRAME, _RECORD, _AT, _BEFORE = range(4)
# Rows of the table of fields, one column a record; sizes are -1 for null.
KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, RECORD_END = range(6)

_LAST_MILLIS = 9_223_372_036_854_775


@inlined
def _fits(millis: Word) -> Word:
    return -_LAST_MILLIS <= millis <= _LAST_MILLIS


@inlined
def field_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word, Word]:
    """Return start, size and end of a key or value, of a record or a header; end -1 if it does not fit."""
    size, start = varint_at(data, at, stop)
    if start < 0 or size < -1 or size > stop - start:
        return start, size, np.int64(-1)
    return start, size, start + max(size, np.int64(0))


@inlined
def _record(data: Word, at: Word, stop: Word) -> tuple[Word, ...]:
    """Return fault, end, timestamp and offset delta, key start and size, value start and size, start of the headers."""
    none = np.int64(0)
    size, here = varint_at(data, at, stop)
    if here < 0 or size < SMALLEST_RECORD - 1 or size > stop - here:
        return np.int64(Fault.RECORD_LENGTH), none, none, none, none, none, none, none, none
    tail = here + size
    delta, here = varint_at(data, here + 1, tail)
    if here < 0:
        return np.int64(Fault.VARINT), none, none, none, none, none, none, none, none
    step, here = varint_at(data, here, tail)
    if here < 0:
        return np.int64(Fault.VARINT), none, none, none, none, none, none, none, none
    key_at, key_size, here = field_at(data, here, tail)
    if here < 0:
        return np.int64(Fault.FIELD), none, none, none, none, none, none, none, none
    value_at, value_size, here = field_at(data, here, tail)
    if here < 0 or here == tail:
        return np.int64(Fault.FIELD), none, none, none, none, none, none, none, none
    return np.int64(Fault.NONE), tail, delta, step, key_at, key_size, value_at, value_size, here


@inlined
def _millis(max_time: Word, base_time: Word, delta: Word, attributes: Word) -> tuple[Word, Word]:
    """Return the record's timestamp in milliseconds, and whether it fits 64 bits in microseconds."""
    if attributes & LOG_APPEND_TIME:
        return max_time, _fits(max_time)
    if not (_fits(base_time) and _fits(delta)):
        return base_time, False
    return base_time + delta, _fits(base_time + delta)


@compiled(
    "int64(uint8[::1], int64[:, ::1], int64[::1], int64, int64, int64, boolean, boolean, boolean, boolean,"
    " int64[::1], int64[::1], int64[:, ::1], int64[::1])"
)
def _locate(  # noqa: PLR0912, PLR0915, PLR0917 - one pass over the records is the point of it
    array: Word,
    frames: Word,
    cursor: Word,
    first: Word,
    end: Word,
    byte_limit: Word,
    with_key: Word,
    with_value: Word,
    with_headers: Word,
    with_timestamp: Word,
    offsets: Word,
    micros: Word,
    fields: Word,
    found: Word,
) -> Word:
    """Locate records from the cursor on until the arrays, the byte limit or the frames are used up."""
    data = address_of(array)
    rows = timeless = 0
    used: Word = 0
    key_bytes = key_nulls = value_bytes = value_nulls = header_records = 0
    frame, record, at, before = cursor[_FRAME], cursor[_RECORD], cursor[_AT], cursor[_BEFORE]
    fault = np.int64(Fault.NONE)
    full = False
    while frame < frames.shape[0] and not full and fault == 0:
        stop, base, last, count = frames[frame, STOP], frames[frame, BASE], frames[frame, LAST], frames[frame, COUNT]
        base_time, max_time = frames[frame, BASE_TIME], frames[frame, MAX_TIME]
        attributes = frames[frame, ATTRIBUTES]
        if record == 0:
            at = frames[frame, START]
            before = base - 1
            if count > (stop - at) // SMALLEST_RECORD:
                fault = np.int64(Fault.COUNT)
                break
        while record < count:
            fault, tail, delta, step, key_at, key_size, value_at, value_size, headers_at = _record(data, at, stop)
            if fault:
                break
            if step < 0 or step > last - base or base + step <= before:
                fault = np.int64(Fault.OFFSET)
                break
            offset = base + step
            if offset >= end:
                frame = frames.shape[0]
                full = True
                break
            if offset >= first:
                millis, tellable = _millis(max_time, base_time, delta, attributes)
                if with_timestamp and not tellable:
                    fault = np.int64(Fault.TIMESTAMP)
                    break
                weight = np.int64(0)
                if with_key:
                    weight += max(key_size, np.int64(0))
                if with_value:
                    weight += max(value_size, np.int64(0))
                if with_headers:
                    weight += tail - headers_at
                if rows == offsets.shape[0] or (rows > 0 and used + weight > byte_limit):
                    full = True
                    break
                used += weight
                offsets[rows] = offset
                micros[rows] = millis * 1000 if tellable else NO_MOMENT
                timeless += not tellable
                if with_key:
                    fields[KEY_AT, rows] = key_at
                    fields[KEY_SIZE, rows] = key_size
                    key_bytes += max(key_size, np.int64(0))
                    key_nulls += key_size < 0
                if with_value:
                    fields[VALUE_AT, rows] = value_at
                    fields[VALUE_SIZE, rows] = value_size
                    value_bytes += max(value_size, np.int64(0))
                    value_nulls += value_size < 0
                if with_headers:
                    fields[HEADERS_AT, rows] = headers_at
                    fields[RECORD_END, rows] = tail
                    header_records += tail - headers_at != 1 or byte_at(data, headers_at) != 0
                rows += 1
            before = offset
            record += 1
            at = tail
        if not full and fault == 0:
            if at != stop:
                fault = np.int64(Fault.REMAINDER)
                break
            frame += 1
            record = 0
    cursor[_FRAME], cursor[_RECORD], cursor[_AT], cursor[_BEFORE] = frame, record, at, before
    found[0], found[1], found[2], found[3], found[4], found[5], found[6] = (
        rows,
        key_bytes,
        key_nulls,
        value_bytes,
        value_nulls,
        header_records,
        timeless,
    )
    return fault


class Located(NamedTuple):
    """Fields of ``rows`` records in the bytes they were found in; the arrays are reused by the next call."""

    split: Split
    data: Bytes
    offsets: Longs
    rows: int
    fields: Longs
    """Rows ``KEY_AT`` to ``RECORD_END``; only those of the wanted columns are set."""
    key_bytes: int
    key_nulls: int
    value_bytes: int
    value_nulls: int
    with_headers: int
    """Records that have headers, or have them wrong."""
    timeless: int
    """Records whose timestamp does not fit 64 bits of microseconds, which is ``NO_MOMENT`` then."""

    def places(self, field: str) -> Longs:
        """Return where each ``key`` or ``value`` begins, and its size, below zero for a null."""
        at = KEY_AT if field == "key" else VALUE_AT
        return self.fields[at : at + 2, : self.rows]


class RowLocator:
    """Locates records, at most ``capacity`` a call, in one run of batches after another."""

    __slots__ = ("_fields", "_found", "_wanted", "byte_limit", "capacity")

    def __init__(self, columns: Collection[str], *, capacity: int, byte_limit: int) -> None:
        self.capacity = capacity
        self.byte_limit = byte_limit
        self._wanted = [name in columns for name in ("key", "value", "headers", "timestamp")]
        self._fields = np.empty((6, capacity), np.int64)
        self._found = np.zeros(7, np.int64)

    def locate(
        self, wanted: SplitRange, data: Bytes, frames: Longs, cursor: Longs, into: tuple[Longs, Longs]
    ) -> Located:
        """Write offsets and timestamps (microseconds) of the range's records, from the cursor on, ``into`` two arrays.

        It stops when the arrays (at most ``capacity``) are full, before the wanted fields exceed ``byte_limit`` bytes
        unless the first record does, or at the last frame, where the cursor is ``exhausted``.

        Raises:
            CorruptDataError: a record that cannot be.
            UnsupportedFormatError: a timestamp too large for microseconds in 64 bits, if it is among the columns.
        """
        start, end = wanted.start, wanted.end
        fault = _locate(
            data, frames, cursor, start, end, self.byte_limit, *self._wanted, *into, self._fields, self._found
        )
        if fault:
            raise fault_error(Fault(fault), wanted.split, int(cursor[_BEFORE]) + 1)
        rows, *counts = self._found.tolist()
        return Located(wanted.split, data, into[0][:rows], rows, self._fields, *counts)


def new_cursor() -> Longs:
    """Return a cursor at the first record of the first frame."""
    return np.zeros(4, np.int64)


def exhausted(cursor: Longs, frames: Longs) -> bool:
    """Whether nothing is left to locate."""
    return bool(cursor[_FRAME] >= frames.shape[0])
