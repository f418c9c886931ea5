"""Protobuf's wire format: tags, sizes and the ends of fields, for compiled code."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, byte_at, inlined, long_at, put_long, varint_at

GROUPS = 100
"""Limit on the nesting of groups, that of Protobuf's own parsers; deeper nesting is invalid."""
_SHORT = 5
"""Most bytes of a tag or a size."""
_LOW_32 = 0xFFFF_FFFF
_INVALID = np.int64(-1)


@inlined
def _short_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a number of 32 bits and its end, -1 if it is invalid."""
    value, at = varint_at(data, at, min(stop, at + _SHORT))
    return (value, at) if value <= _LOW_32 else (np.int64(0), _INVALID)


@inlined
def tag_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a tag and its end, -1 if it is invalid: field number 0 does not exist."""
    tag, at = _short_at(data, at, stop)
    return (tag, at) if tag >= 8 else (np.int64(0), _INVALID)


@inlined
def sized_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return where bytes that follow their size begin and end; -1 if they are truncated."""
    size, at = _short_at(data, at, stop)
    return (at, at + size) if at >= 0 and size <= stop - at else (_INVALID, _INVALID)


@inlined
def fixed_at(data: Word, at: Word, stop: Word, size: Word) -> tuple[Word, Word]:
    """Return a little-endian number of ``size`` bytes and its end; -1 if it is truncated."""
    if stop - at < size:
        return np.int64(0), _INVALID
    value = np.int64(0)
    for i in range(size):
        value |= byte_at(data, at + i) << (8 * i)
    return value, at + size


@inlined
def field_end(data: Word, at: Word, stop: Word, tag: Word, groups: Word) -> Word:
    """Return the end of a field whose tag was read, -1 if it is corrupt.

    ``groups`` is the address of ``GROUPS`` 64-bit integers, for the groups that are open.
    """
    depth = 0
    while True:
        wire = tag & 7
        if wire == 0:
            _, at = varint_at(data, at, stop)
        elif wire == 2:
            _, at = sized_at(data, at, stop)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            at = at + size if size <= stop - at else _INVALID
        elif wire == 3:
            if depth == GROUPS:
                return _INVALID
            put_long(groups, depth, tag >> 3)
            depth += 1
        elif wire == 4:
            if depth == 0 or long_at(groups, depth - 1) != tag >> 3:
                return _INVALID
            depth -= 1
        else:
            return _INVALID
        if at < 0 or depth == 0:
            return at
        # Protobuf's library checks only wire types within a group.
        tag, at = _short_at(data, at, stop)
        if at < 0:
            return _INVALID
