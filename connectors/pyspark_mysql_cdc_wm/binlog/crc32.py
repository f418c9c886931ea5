"""CRC-32 (IEEE 802.3, as zlib's) of a stretch of bytes, callable from compiled code: sixteen bytes a step.

(Slicing by 16, after Stephan Brumme's crc32.)
"""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.crc_tables import byte_tables
from watermark_source.machine_code.native import Word, byte_at, inlined, word_at

_POLYNOMIAL = 0xEDB88320
_BYTE = np.uint64(0xFF)
_TABLE = byte_tables(_POLYNOMIAL, 16)


@inlined
def checksum(data: Word, start: Word, stop: Word) -> Word:
    """CRC-32 of the bytes ``start`` to ``stop`` behind the address ``data``, as an ``int64``."""
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
