"""Compiled decoding of GTID events: number and commit time of the transaction that begins.

Plain (types 33, 34), little-endian: flags 1, source 16, number 8, then, where the byte 2 follows, two sequence
numbers of 8, commit time 7 (microseconds; with its highest bit the original time of 7 follows), and more. Tagged (42):
fields of a number and a value, both varints: as many bytes as the first has ones at its low end, plus one. MariaDB's
(162): number 8, domain 4, flags 1.
"""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, SECONDS, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Fault, Longs, fault_error, uint_at
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

_MICROS = 1_000_000
_TAGGED = int(EventType.GTID_TAGGED)
_MARIADB = int(EventType.MARIADB_GTID)
_TIME_MASK = (1 << 55) - 1
_HAS_SEQUENCE = 2
_PLAIN_SIZE = 1 + 16 + 8
_COMMIT = _PLAIN_SIZE + 1 + 16

_UUID, _NUMBER, _TAG, _TIME = 1, 2, 3, 6
_NONE = np.int64(-1)


@inlined
def _varint_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return an unsigned number and the offset after it; offset -1 if it does not fit."""
    if at >= stop:
        return np.int64(0), _NONE
    first = byte_at(data, at)
    ones = np.int64(0)
    while ones < 8 and (first >> ones) & 1:
        ones += 1
    if stop - at <= ones:
        return np.int64(0), _NONE
    if ones == 8:
        return uint_at(data, at + 1, np.int64(8)), at + 9
    value = np.uint64(uint_at(data, at, ones + 1)) >> np.uint64(ones + 1)
    return np.int64(value), at + ones + 1


@inlined
def _tagged(  # noqa: PLR0911, PLR0912 - compiled code has no exceptions
    data: Word, start: Word, stop: Word
) -> tuple[Word, Word]:
    """Return number and commit time of a tagged GTID; number -1 if it cannot be read."""
    number, time = _NONE, np.int64(0)
    at = start
    for _ in range(3):  # version, size, last field that must not be ignored
        _, at = _varint_at(data, at, stop)
        if at < 0:
            return _NONE, time
    while at < stop:
        field, at = _varint_at(data, at, stop)
        if at < 0:
            return _NONE, time
        if field == _UUID:
            for _ in range(16):
                _, at = _varint_at(data, at, stop)
                if at < 0:
                    return _NONE, time
        elif field == _TAG:
            size, at = _varint_at(data, at, stop)
            if at < 0 or size < 0 or size > stop - at:
                return _NONE, time
            at += size
        else:
            value, at = _varint_at(data, at, stop)
            if at < 0:
                return _NONE, time
            if field == _NUMBER:
                number = np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1)
            elif field == _TIME:
                return number, value
    return number, time


@inlined
def gtid_at(data: Word, kind: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    """Return number and commit time (microseconds since 1970, 0 if it is not logged) of the event with this body.

    The number is -1 if the event cannot be read, and 0 for a transaction without a GTID.
    """
    if kind == _TAGGED:
        number, time = _tagged(data, start, stop)
        return number, time
    if kind == _MARIADB:
        if stop - start < 13:
            return _NONE, np.int64(0)
        return uint_at(data, start, np.int64(8)), np.int64(0)
    if stop - start < _PLAIN_SIZE:
        return _NONE, np.int64(0)
    number = uint_at(data, start + 17, np.int64(8))
    if stop - start < _COMMIT + 7 or byte_at(data, start + _PLAIN_SIZE) != _HAS_SEQUENCE:
        return number, np.int64(0)
    return number, uint_at(data, start + _COMMIT, np.int64(7)) & _TIME_MASK


@inlined
def committed_at(data: Word, kind: Word, start: Word, stop: Word, seconds: Word) -> tuple[Word, Word]:
    """Return the number as ``gtid_at`` does, and the commit time in microseconds since 1970.

    Where no commit time is logged, it is the header's ``seconds``, at which the statement began.
    """
    number, micros = gtid_at(data, kind, start, stop)
    return number, micros if micros > 0 else seconds * _MICROS


@compiled("int64(uint8[::1], int64[:, ::1], int64[::1])")
def _times(array: Word, begins: Word, found: Word) -> Word:
    data = address_of(array)
    for i in range(begins.shape[0]):
        start, stop = begins[i, START] + HEADER_SIZE, begins[i, STOP]
        number, micros = committed_at(data, begins[i, TYPE], start, stop, begins[i, SECONDS])
        if number < 0:
            return np.int64(i)
        found[i] = micros
    return np.int64(-1)


def commit_times(memory: Bytes, begins: Longs, file: str) -> Longs:
    """Return the commit times (microseconds) of transactions by the events that they begin with.

    Raises:
        CorruptDataError: an event that cannot be read.
    """
    found = np.empty(len(begins), np.int64)
    fault = _times(memory, begins, found)
    if fault >= 0:
        raise fault_error(Fault.GTID, f"binlog {file}")
    return found
