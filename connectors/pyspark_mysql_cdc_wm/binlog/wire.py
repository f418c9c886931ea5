"""Compiled reading of numbers of MySQL's protocol: little-endian integers, length-encoded integers, and CRC-32.

A packet: size 3 (little-endian), number 1, content. A content of 0xFFFFFF bytes continues in the next packet.

All decoded memory ends with ``PADDING`` unused bytes, so that one eight-byte load reads a number of any width. The
caller checks that the number itself is inside its event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watermark_source.machine_code.native import Word, byte_at, byte_tables, inlined, word_at

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

PADDING = 8
PACKET_HEAD = 4
LONGEST_PACKET = 0xFFFFFF


@inlined
def uint16_at(data: Word, at: Word) -> Word:
    """Return the integer of two bytes."""
    return byte_at(data, at) | byte_at(data, at + 1) << 8


@inlined
def uint32_at(data: Word, at: Word) -> Word:
    """Return the integer of four bytes."""
    return np.int64(word_at(data, at) & np.uint64(0xFFFFFFFF))


@inlined
def uint_at(data: Word, at: Word, width: Word) -> Word:
    """Return the integer of 1 to 8 bytes; an eight-byte number above the largest ``int64`` is negative."""
    return np.int64(word_at(data, at) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * width)))


@inlined
def lenenc_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a length-encoded integer and the offset after it; offset -1 if it is invalid or does not fit."""
    if at >= stop:
        return np.int64(0), np.int64(-1)
    first = byte_at(data, at)
    if first < 0xFB:
        return first, at + 1
    width = np.int64(0)
    if first == 0xFC:
        width = np.int64(2)
    elif first == 0xFD:
        width = np.int64(3)
    elif first == 0xFE:
        width = np.int64(8)
    if width == 0 or stop - at <= width:
        return np.int64(0), np.int64(-1)
    return uint_at(data, at + 1, width), at + 1 + width


def padded(content: bytes) -> Bytes:
    """Return a copy with ``PADDING`` bytes behind it."""
    return np.frombuffer(bytearray(content) + bytes(PADDING), np.uint8)


_POLYNOMIAL = 0xEDB88320
_BYTE = np.uint64(0xFF)
_TABLE = byte_tables(_POLYNOMIAL, 16)


@inlined
def checksum(data: Word, start: Word, stop: Word) -> Word:
    """Return the CRC-32 (IEEE 802.3, as zlib's) of the bytes ``start`` to ``stop`` behind the address ``data``.

    It reads sixteen bytes a step (slicing by 16, after Stephan Brumme's crc32).
    """
    crc = np.uint64(0xFFFFFFFF)
    at = start
    while stop - at >= 16:
        low = word_at(data, at) ^ crc
        high = word_at(data, at + 8)
        folded = np.uint32(0)
        for k in range(8):
            shift = np.uint64(8 * k)
            folded ^= _TABLE[15 - k, (low >> shift) & _BYTE] ^ _TABLE[7 - k, (high >> shift) & _BYTE]
        crc = np.uint64(folded)
        at += 16
    while at < stop:
        crc = np.uint64(_TABLE[0, (crc ^ np.uint64(byte_at(data, at))) & _BYTE]) ^ (crc >> np.uint64(8))
        at += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))
