"""Variable-length integers of Avro and Protobuf, seven bits a byte, for compiled functions."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, byte_at, inlined

_BITS = 64
_REST = 0x7FFF_FFFF_FFFF_FFFF
"""The bits of an int64 that a logical shift to the right by one keeps."""


@inlined
def varint_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return the 64 bits of a number and its end, -1 if it does not end within ten bytes."""
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
    """Return the signed number of a zigzag-encoded one."""
    return ((value >> 1) & _REST) ^ -(value & 1)


@inlined
def signed_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a zigzag-encoded number and its end, as ``varint_at``."""
    value, at = varint_at(data, at, stop)
    return unfolded(value), at
