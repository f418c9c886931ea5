"""A set of keys of any number of columns, compiled: of many keys, which are in it, without looking at it as a whole.

A key is kept as words of eight bytes: of a column of one width its value, of another its size and its value, each
filled up with zeros; then, where a column is null, a word of their bits. It is found by its hash (open addressing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Ints, Longs
from pyspark_mysql_cdc_wm.records.key_column import comparable
from pyspark_mysql_cdc_wm.records.layout import Mask
from watermark_source.machine_code.native import Word, address_of, compiled, copy_bytes, inlined, same_bytes, word_at

_Numbers = TypeVar("_Numbers", Bytes, Longs)

_WORD = 8
_EMPTY = -1
_FIRST_SLOTS = 1024
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@compiled("void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], boolean, int64[::1], uint8[::1])")
def _put(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, sizes: Word, sized: Word, places: Word, target: Word
) -> None:
    """Put a value of each row at its place, behind its size if it is ``sized``, and move the place behind it."""
    data, words = address_of(array), address_of(target)
    for row in range(starts.shape[0]):
        at = places[row]
        if sized:
            for i in range(_WORD):
                target[at + i] = (sizes[row] >> (8 * i)) & 0xFF
            at += _WORD
        copy_bytes(words + at, data + starts[row], sizes[row])
        places[row] = at + ((sizes[row] + 7) & ~7)


@inlined
def _hash(data: Word, start: Word, stop: Word) -> Word:
    found = np.uint64(0)
    at = start
    while at < stop:
        found = (found ^ word_at(data, at)) * _MIX
        found ^= found >> _HALF
        at += _WORD
    return found


@compiled("int64(uint8[::1], int64[::1], int32[::1], uint8[::1], int64[::1], int64, boolean, boolean[::1])")
def _look(  # noqa: PLR0917 - arrays in, arrays out
    keys: Word, bounds: Word, slots: Word, kept: Word, kept_bounds: Word, count: Word, add: Word, there: Word
) -> Word:
    """Mark the keys that are in the table, ``add`` the others, and return the number of keys in it."""
    data, own = address_of(keys), address_of(kept)
    last = np.int64(slots.shape[0] - 1)
    for row in range(there.shape[0]):
        start, stop = bounds[row], bounds[row + 1]
        slot = np.int64(_hash(data, start, stop) & np.uint64(last))
        found = False
        while slots[slot] != _EMPTY:
            place = kept_bounds[slots[slot]]
            if kept_bounds[slots[slot] + 1] - place == stop - start and same_bytes(
                data, start, own, place, stop - start
            ):
                found = True
                break
            slot = (slot + 1) & last
        there[row] = found
        if add and not found:
            slots[slot] = count
            copy_bytes(own + kept_bounds[count], data + start, stop - start)
            kept_bounds[count + 1] = kept_bounds[count] + stop - start
            count += 1
    return count


class KeySet:
    """Keys, each a value a column; two are the same if their bytes are. Columns must always be of the same types."""

    __slots__ = ("_bounds", "_count", "_kept", "_slots")

    def __init__(self) -> None:
        self._slots: Ints = np.full(_FIRST_SLOTS, _EMPTY, np.int32)
        self._kept: Bytes = np.empty(0, np.uint8)
        self._bounds: Longs = np.zeros(1, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, columns: Sequence[pa.Array]) -> Mask:
        """Add keys one after another and return which were not there yet."""
        keys, bounds = _words(columns)
        self._make_room(len(bounds) - 1, keys.size)
        return ~self._look(keys, bounds, add=True)

    def has(self, columns: Sequence[pa.Array]) -> Mask:
        """Return which keys are there."""
        return self._look(*_words(columns), add=False)

    def _look(self, keys: Bytes, bounds: Longs, *, add: bool) -> Mask:
        there = np.empty(len(bounds) - 1, np.bool_)
        self._count = _look(keys, bounds, self._slots, self._kept, self._bounds, self._count, add, there)
        return there

    def _make_room(self, rows: int, size: int) -> None:
        used = int(self._bounds[self._count])
        self._kept = _grown(self._kept, used, used + size)
        self._bounds = _grown(self._bounds, self._count + 1, self._count + rows + 1)
        slots = len(self._slots)
        while slots < 2 * (self._count + rows):
            slots *= 2
        if slots > len(self._slots):
            self._slots = np.full(slots, _EMPTY, np.int32)
            keys, bounds = self._kept[:used], self._bounds[: self._count + 1]
            there = np.empty(self._count, np.bool_)
            # Each is put where it lies already.
            self._count = _look(keys, bounds, self._slots, self._kept, self._bounds, 0, True, there)


def _grown(array: _Numbers, used: int, needed: int) -> _Numbers:
    if needed <= len(array):
        return array
    grown = np.empty_like(array, shape=max(needed, len(array) + len(array) // 2))
    grown[:used] = array[:used]
    return grown


def _words(columns: Sequence[pa.Array]) -> tuple[Bytes, Longs]:
    """Return keys as words, and where each begins and the last ends."""
    rows = len(columns[0])
    values = [_lying(column) for column in columns]
    is_null = np.zeros(rows, np.int64)
    lengths = np.zeros(rows, np.int64)
    for number, (column, (_, _, sizes, sized)) in enumerate(zip(columns, values, strict=True)):
        if column.null_count:
            is_null |= np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.int64) << number
        lengths += (sizes + 7 & ~7) + (_WORD if sized else 0)
    with_nulls = np.flatnonzero(is_null)
    lengths[with_nulls] += _WORD
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    keys = np.zeros(int(bounds[-1]), np.uint8)
    places = bounds[:-1].copy()
    for data, starts, sizes, sized in values:
        _put(data, starts, sizes, sized, places, keys)
    keys.view(np.int64)[places[with_nulls] // _WORD] = is_null[with_nulls]
    return keys, bounds


def _lying(column: pa.Array) -> tuple[Bytes, Longs, Longs, bool]:
    """Return bytes, where in them each value lies, its size, and whether sizes differ. Of nulls nothing."""
    column = comparable(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    rows = len(column)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        _, offsets, content = column.buffers()
        bounds = np.frombuffer(offsets, np.int32, rows + 1, 4 * column.offset).astype(np.int64)
        starts, sizes, sized = bounds[:-1], np.diff(bounds), True
    else:
        content = column.buffers()[1]
        width = column.type.byte_width
        starts = (np.arange(rows) + column.offset) * width
        sizes, sized = np.full(rows, width, np.int64), False
    data = np.frombuffer(content if content is not None and content.size else b"\0", np.uint8)
    if column.null_count:
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        if sized:
            sizes = sizes * present
        else:
            # The content of these bytes is unused.
            data, starts = np.concatenate((data, np.zeros(width, np.uint8))), np.where(present, starts, data.size)
    return data, np.ascontiguousarray(starts), sizes, sized
