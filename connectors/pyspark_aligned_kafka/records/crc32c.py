"""CRC-32C (Castagnoli, RFC 3720 B.4) of a stretch of bytes, callable from compiled code.

With SSE 4.2 three streams are folded at once and joined by tables of what trailing zeros do to a CRC, because one
stream waits for the instruction's latency; elsewhere eight tables take eight bytes a step. (Both after Mark Adler's
crc32c.c.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watermark_source.machine_code.native import HAS_CRC32C, Word, byte_at, byte_tables, crc32c_u64, inlined, word_at

_POLYNOMIAL = 0x82F63B78
_LONG, _SHORT = 2048, 256
_TABLE = byte_tables(_POLYNOMIAL, 8)


def _zeros_tables(size: int) -> npt.NDArray[np.uint32]:
    """Row k: what ``size`` (a power of two) zero bytes make of a CRC whose byte k has that value."""
    values = np.arange(256, dtype=np.uint32)
    rows = np.stack([values << np.uint32(8 * k) for k in range(4)])
    rows = (rows >> 8) ^ _TABLE[0][rows & 0xFF]
    for _ in range(size.bit_length() - 1):
        rows = rows[0][rows & 0xFF] ^ rows[1][rows >> 8 & 0xFF] ^ rows[2][rows >> 16 & 0xFF] ^ rows[3][rows >> 24]
    return np.asarray(rows, np.uint32)


_LONG_ZEROS = _zeros_tables(_LONG)
_SHORT_ZEROS = _zeros_tables(_SHORT)


@inlined
def _shift(zeros: Word, crc: Word) -> Word:
    return np.uint64(
        zeros[0, crc & 0xFF] ^ zeros[1, (crc >> 8) & 0xFF] ^ zeros[2, (crc >> 16) & 0xFF] ^ zeros[3, (crc >> 24) & 0xFF]
    )


@inlined
def _three_streams(  # noqa: PLR0917 - a loop's variables
    crc: Word, data: Word, start: Word, stop: Word, size: Word, zeros: Word
) -> tuple[Word, Word]:
    at = start
    while stop - at >= 3 * size:
        second = np.uint64(0)
        third = np.uint64(0)
        until = at + size
        while at < until:
            crc = crc32c_u64(crc, word_at(data, at))
            second = crc32c_u64(second, word_at(data, at + size))
            third = crc32c_u64(third, word_at(data, at + 2 * size))
            at += 8
        crc = _shift(zeros, crc) ^ second
        crc = _shift(zeros, crc) ^ third
        at += 2 * size
    return crc, at


@inlined
def _by_instruction(data: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    crc, at = _three_streams(np.uint64(0xFFFFFFFF), data, start, stop, _LONG, _LONG_ZEROS)
    crc, at = _three_streams(crc, data, at, stop, _SHORT, _SHORT_ZEROS)
    while stop - at >= 8:
        crc = crc32c_u64(crc, word_at(data, at))
        at += 8
    return crc, at


@inlined
def by_tables(data: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    """CRC so far (inverted) and position, of whole eights of bytes, on any processor."""
    crc = np.uint64(0xFFFFFFFF)
    at = start
    while stop - at >= 8:
        word = word_at(data, at) ^ crc
        folded = np.uint32(0)
        for k in range(8):
            folded ^= _TABLE[7 - k, (word >> np.uint64(8 * k)) & np.uint64(0xFF)]
        crc = np.uint64(folded)
        at += 8
    return crc, at


@inlined
def finish(crc: Word, data: Word, at: Word, stop: Word) -> Word:
    """Take the last bytes, one by one, and return the sum as an ``int64``."""
    while at < stop:
        crc = np.uint64(_TABLE[0, (crc ^ np.uint64(byte_at(data, at))) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        at += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@inlined
def checksum(data: Word, start: Word, stop: Word) -> Word:
    """CRC-32C of the bytes ``start`` to ``stop`` behind the address ``data``, as an ``int64``."""
    if HAS_CRC32C:
        crc, at = _by_instruction(data, start, stop)
    else:
        crc, at = by_tables(data, start, stop)
    return finish(crc, data, at, stop)
