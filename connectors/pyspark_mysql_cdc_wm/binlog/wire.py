"""Bytes of MySQL's protocol: compiled reading of integers and CRC-32, small fields in Python, and the errors of both.

A packet: size 3 (little-endian), number 1, content. A content of 0xFFFFFF bytes continues in the next packet.

All decoded memory ends with ``PADDING`` unused bytes, so that one eight-byte load reads a number of any width. The
caller checks that the number itself is inside its event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError
from watermark_source.machine_code.native import Word, byte_at, byte_tables, inlined, word_at
from watermark_source.machine_code.worded import Worded

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


# A reader of small fields in Python, for data that occurs once for a table, never for rows.


class Scan:
    """A reading position in bytes; reading past their end raises ``IndexError``."""

    __slots__ = ("_at", "_content")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def at(self) -> int:
        """Bytes read so far."""
        return self._at

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._content) - self._at

    def skip(self, size: int) -> None:
        """Skip bytes."""
        self.take(size)

    def take(self, size: int) -> bytes:
        """Read bytes."""
        if size > self.left:
            raise IndexError(f"{size} bytes wanted, {self.left} left")
        self._at += size
        return self._content[self._at - size : self._at]

    def byte(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def uint(self, size: int) -> int:
        """Read a little-endian number."""
        return int.from_bytes(self.take(size), "little")

    def lenenc(self) -> int:
        """Read a length-encoded integer."""
        first = self.byte()
        if first < 0xFB:
            return first
        if first not in _WIDTHS:
            raise ValueError(f"{first:#x} begins no length")
        return self.uint(_WIDTHS[first])


_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


# The faults of a binlog's bytes, and the error for each.


class Fault(Worded):
    """The faults that compiled code returns; ``NONE`` if there is none."""

    NONE = 0
    EVENT_SIZE = 1, "an impossible event size"
    CHECKSUM = 2, "a checksum (CRC-32) that does not fit the event"
    POSITION = 3, "an event whose end is not where the events before it lead"
    ROWS_HEADER = 4, "a row event whose head does not fit in it"
    WIDTH = 5, "a row event with another number of columns than its table map"
    VALUE = 6, "a value longer than its row event"
    ROW_OPTIONS = 7, "a row with options that this version does not read (binlog_row_value_options)"
    NO_COLUMN = 8, "a row without any column; set binlog_row_image to FULL, in sessions too, and begin a new query"
    TABLE = 9, "a row event without a table map"
    GTID = 10, "a transaction's identifier (GTID event) that cannot be read"
    UNKNOWN_EVENT = 11, "an event that is not read and must not be ignored (26: lost changes); begin a new query"
    DECIMAL = 12, "a decimal number that has digits above nine"
    JSON = 13, "a JSON document that does not fit its value"
    JSON_DEPTH = 14, "a JSON document nested deeper than the server allows (100)"
    TEXT = 15, "text that is not of its column's character set"


_UNSUPPORTED = (Fault.ROW_OPTIONS, Fault.NO_COLUMN, Fault.UNKNOWN_EVENT)


def absent_error(columns: Sequence[str], where: str) -> SourceError:
    """Return the error for rows at ``where`` that lack columns."""
    names = ", ".join(columns)
    return UnsupportedFormatError(
        f"{where}: a row without all of its columns, here {names}; set binlog_row_image to FULL, on the server and in "
        "sessions that set it for themselves, and begin a new query. Of generated columns MariaDB logs no updates and "
        f"deletions whatever the setting: leave them out by the option excludeColumns={','.join(columns)}"
    )


def fault_error(fault: Fault, where: str) -> SourceError:
    """Return the error for a fault at ``where``, a file and position, or a table."""
    if fault in _UNSUPPORTED:
        return UnsupportedFormatError(f"{where}: {fault.text}")
    return CorruptDataError(
        f"{where}: {fault.text}; the binlog on the server or on its way is damaged. Check it with mysqlbinlog"
    )
