"""Numbers of variable length, seven bits a byte, for compiled functions: Avro's and Protobuf's."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, byte_at, inlined

_BITS = 64
_REST = 0x7FFF_FFFF_FFFF_FFFF
"""What a shift to the right without the sign leaves of an int64."""


@inlined
def varint_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return the 64 bits of a number and where the next thing begins, -1 if it does not end within ten bytes."""
    value, shift = np.int64(0), np.int64(0)
    while at < stop and shift < _BITS:
        byte = byte_at(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return np.int64(0), np.int64(-1)


@inlined
def unfolded(value: Word) -> Word:
    """Return the number with a sign that is written as one without (zigzag)."""
    return ((value >> 1) & _REST) ^ -(value & 1)


@inlined
def signed_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a number that is written zigzag, as ``varint_at`` does one that is not."""
    value, at = varint_at(data, at, stop)
    return unfolded(value), at
