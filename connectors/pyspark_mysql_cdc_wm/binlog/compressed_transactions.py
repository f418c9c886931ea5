"""Decompression of compressed transactions (``binlog_transaction_compression``), a few megabytes at once.

A TRANSACTION_PAYLOAD event's body: fields of type, size and value (all length-encoded; 1 payload size, 2 compression,
0 zstd or 255 none, 3 size unpacked) until type 0, then the payload: events with headers and without checksums.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import zstandard

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    EVENT_FIELDS,
    HEADER_SIZE,
    POSITION,
    ROWS_V1,
    ROWS_V2,
    START,
    STOP,
    TYPE,
    EventType,
    put_row,
)
from pyspark_mysql_cdc_wm.binlog.wire import (
    PADDING,
    Bytes,
    Fault,
    Longs,
    Scan,
    fault_error,
    padded,
    uint32_at,
)
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.machine_code.native import Word, address_of, compiled

_COMPRESSION, _UNPACKED = 2, 3
_ZSTD, _PLAIN = 0, 255
_LARGEST = 2**62
_PIECE_BYTES = 4 * 1024 * 1024
_STEP_BYTES = 256 * 1024
_FIRST_ROOM = 1024 * 1024


@compiled("Tuple((int64, int64, int64))(uint8[::1], int64, int64, int64, int64, int64[:, ::1])")
def _walk(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, start: Word, stop: Word, more: Word, position: Word, events: Word
) -> tuple[Word, Word, Word]:
    """Tabulate the complete events without checksums in ``[start, stop)``; return fault, events, and where it stopped.

    ``more`` bytes of the payload follow later.
    """
    data = address_of(array)
    at = start
    row = 0
    while stop - at >= HEADER_SIZE and row < events.shape[0]:
        size = uint32_at(data, at + 9)
        if size < HEADER_SIZE or size > stop - at + more:
            return np.int64(Fault.EVENT_SIZE), row, at
        if size > stop - at:
            break
        put_row(events, row, data, at, at + size, position)
        row += 1
        at += size
    return np.int64(Fault.NONE), row, at


class _Head(Scan):
    """The fields before a payload, read from the body as they are needed."""

    __slots__ = ("_body",)

    def __init__(self, body: BinaryIO) -> None:
        super().__init__(b"")
        self._body = body

    def take(self, size: int) -> bytes:
        """Read bytes."""
        content = self._body.read(size)
        if len(content) < size:
            raise IndexError(f"{size} bytes wanted, {len(content)} left")
        return content


class Unpacker:
    """Decompresses the transactions in one block of events after another, into reused memory."""

    __slots__ = ("_begin", "_context", "_largest", "_memory", "_parts", "_piece", "_table", "_used")

    def __init__(self, *, piece_bytes: int = _PIECE_BYTES, largest_event: int = 1 << 30) -> None:
        """Yield about ``piece_bytes`` at once, and refuse an event of more than ``largest_event`` bytes."""
        self._piece = piece_bytes
        self._largest = largest_event
        self._context = zstandard.ZstdDecompressor()
        self._memory: Bytes = np.empty(0, np.uint8)
        self._table: Longs = np.empty((_STEP_BYTES // HEADER_SIZE + 2, EVENT_FIELDS), np.int64)

    def plain(self, memory: Bytes, events: Longs, file: str) -> Iterator[tuple[Bytes, Longs]]:
        """Yield memory and events with transactions decompressed; they are valid until the next are requested.

        Decompressed events have the position of their TRANSACTION_PAYLOAD event. A block without any is yielded
        unchanged.

        Raises:
            CorruptDataError: a payload cannot be decompressed.
            UnsupportedFormatError: the compression is not known, or an event is too large.
        """
        packed = np.flatnonzero(events[:, TYPE] == EventType.TRANSACTION_PAYLOAD)
        if not packed.size:
            yield memory, events
            return
        self._reset()
        done = 0
        for i in packed.tolist():
            self._copy(memory, events[done:i])
            event = events[i]
            body = memory[event[START] + HEADER_SIZE : event[STOP]].tobytes()
            yield from self._unpacked(io.BytesIO(body), int(event[POSITION]), file)
            done = i + 1
        self._copy(memory, events[done:])
        if self._parts:
            yield self._complete_events()

    def of_one(self, body: io.RawIOBase, position: int, file: str) -> Iterator[tuple[Bytes, Longs, bool]]:
        """Yield, as ``plain`` does, the events of one payload that may still arrive, and whether they are the last."""
        self._reset()
        for memory, events in self._unpacked(io.BufferedReader(body), position, file):
            yield memory, events, False
        if self._parts:
            yield *self._complete_events(), True

    def _reset(self) -> None:
        self._parts: list[Longs] = []
        self._begin = self._used = 0

    def _complete_events(self) -> tuple[Bytes, Longs]:
        """Return the complete events that were not returned yet."""
        events = np.concatenate(self._parts)
        self._parts = []
        return self._memory, events

    def _room(self, size: int) -> Bytes:
        """Return ``size`` free bytes of the memory, which grows if necessary."""
        needed = self._used + size + PADDING
        if needed > self._memory.size:
            grown = np.empty(max(needed, 2 * self._memory.size, _FIRST_ROOM), np.uint8)
            grown[: self._used] = self._memory[: self._used]
            self._memory = grown
        return self._memory[self._used : self._used + size]

    def _copy(self, memory: Bytes, events: Longs) -> None:
        if not len(events):
            return
        first, last = int(events[0, START]), int(events[-1, STOP])
        self._room(last - first)[:] = memory[first:last]
        moved = events.copy()
        moved[:, (START, STOP)] += self._used - first
        self._parts.append(moved)
        self._used += last - first
        self._begin = self._used

    def _unpacked(self, body: BinaryIO, position: int, file: str) -> Iterator[tuple[Bytes, Longs]]:
        """Decompress a payload behind the events in memory; yield events in pieces, and leave the last ones there."""
        where = f"binlog {file} position {position}"
        content, left = self._opened(body, where)
        try:
            while left:
                room = self._room(min(left, _STEP_BYTES))
                size = content.readinto(room.data)
                if not size:
                    break
                left -= size
                self._used += size
                self._tabulate(left, position, where)
                if self._begin >= self._piece and left:
                    yield self._complete_events()
                    rest = self._used - self._begin
                    self._memory[:rest] = self._memory[self._begin : self._used]
                    self._begin, self._used = 0, rest
            more = content.readinto(bytearray(1))  # to the end of the body
        except zstandard.ZstdError as problem:
            raise CorruptDataError(f"{where}: a transaction that cannot be decompressed ({problem})") from problem
        if left or more:
            raise CorruptDataError(f"{where}: a compressed transaction whose size differs from its header")
        if self._begin < self._used:
            raise fault_error(Fault.EVENT_SIZE, f"{where}, in a compressed transaction")

    def _tabulate(self, left: int, position: int, where: str) -> None:
        fault, rows, self._begin = _walk(self._memory, self._begin, self._used, left, position, self._table)
        if fault:
            raise fault_error(Fault(fault), f"{where}, in a compressed transaction")
        if rows:
            self._parts.append(self._table[:rows].copy())
        if self._used - self._begin >= HEADER_SIZE:
            size = int.from_bytes(self._memory[self._begin + 9 : self._begin + 13].tobytes(), "little")
            if size > self._largest:
                raise UnsupportedFormatError(f"{where}: an event of {size} bytes; the limit is {self._largest}")

    def _opened(self, body: BinaryIO, where: str) -> tuple[Any, int]:
        """Return a reader of the decompressed payload, and its size in bytes."""
        head = _Head(body)
        fields = {}
        try:
            while kind := head.lenenc():
                fields[kind] = Scan(head.take(head.lenenc())).lenenc()
            size = fields[_UNPACKED]
            if size > _LARGEST:
                raise ValueError(f"{size} bytes")
        except (IndexError, KeyError, ValueError) as problem:
            raise CorruptDataError(
                f"{where}: a compressed transaction whose head cannot be read: {problem}"
            ) from problem
        compression = fields.get(_COMPRESSION, _PLAIN)
        if compression == _PLAIN:
            return body, size
        if compression == _ZSTD:
            # A large transaction is several frames.
            return self._context.stream_reader(body, read_across_frames=True), size
        raise UnsupportedFormatError(
            f"{where}: a transaction of compression {compression}; accepted are 0, zstd, and 255, none"
        )


# Decompression of events that MariaDB compresses one by one (``log_bin_compress``).
#
# A compressed row event (types 166 to 171) has compressed rows behind plain fields about columns; a compressed QUERY
# (165) has a compressed statement. Compressed data is a byte of 0x80 plus the width of the size, the uncompressed
# size (big-endian), then zlib data (log_event.cc, ``binlog_buf_uncompress``).


_FIRST = 165
_STAND_FOR = (EventType.QUERY, *ROWS_V1, *ROWS_V2)
"""The uncompressed types, by the number of the compressed type minus ``_FIRST``."""
_UPDATES = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS)
_FIRST_V2 = EventType.WRITE_ROWS
# Of QUERY: thread 4, seconds 4, then the size of the database's name, error 2, size of the variables 2.
_NAME_SIZE, _VARIABLES_SIZE, _QUERY_HEAD = 8, 11, 13
_TABLE_AND_FLAGS = 8
_SIZED, _ALGORITHM, _WIDTH = 0x80, 0x70, 0x07


def uncompressed(
    memory: Bytes, events: Longs, file: str, *, piece_bytes: int = _PIECE_BYTES, largest_event: int = 1 << 30
) -> Iterator[tuple[Bytes, Longs]]:
    """Yield memory and events with compressed events decompressed, about ``piece_bytes`` at once.

    A block without compressed events is yielded unchanged.

    Raises:
        CorruptDataError: an event cannot be decompressed.
        UnsupportedFormatError: the compression is not known, or an event is too large.
    """
    kinds = events[:, TYPE]
    if not ((kinds >= _FIRST) & (kinds < _FIRST + len(_STAND_FOR))).any():
        yield memory, events
        return
    made, parts, size, first = events.copy(), [], 0, 0
    for i, kind in enumerate(kinds.tolist()):
        content = memory[events[i, START] : events[i, STOP]].tobytes()
        if _FIRST <= kind < _FIRST + len(_STAND_FOR):
            stands_for = _STAND_FOR[kind - _FIRST]
            content = _event(content, stands_for, largest_event, f"binlog {file} position {events[i, POSITION]}")
            made[i, TYPE] = stands_for
        made[i, START], made[i, STOP] = size, size + len(content)
        parts.append(content)
        size += len(content)
        if size >= piece_bytes:
            yield padded(b"".join(parts)), made[first : i + 1]
            parts, size, first = [], 0, i + 1
    if parts:
        yield padded(b"".join(parts)), np.ascontiguousarray(made[first:])


def _event(content: bytes, stands_for: EventType, largest: int, where: str) -> bytes:
    try:
        begin = _query_head(content) if stands_for is EventType.QUERY else _rows_head(content, stands_for)
        form = content[begin]
        width = form & _WIDTH
        if not form & _SIZED or not 1 <= width <= 4:
            raise ValueError(f"its size has the form {form}")
        size = int.from_bytes(content[begin + 1 : begin + 1 + width], "big")
    except (IndexError, ValueError) as problem:
        raise CorruptDataError(f"{where}: a compressed event that cannot be read: {problem}") from problem
    if form & _ALGORITHM:
        raise UnsupportedFormatError(
            f"{where}: an event of compression {(form & _ALGORITHM) >> 4}; accepted is 0, zlib"
        )
    if size > largest:
        raise UnsupportedFormatError(f"{where}: an event of {size} bytes; the limit is {largest}")
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(content[begin + 1 + width :], size + 1)
    except zlib.error as problem:
        raise CorruptDataError(f"{where}: an event that cannot be decompressed ({problem})") from problem
    if len(unpacked) != size or not unpacker.eof:
        raise CorruptDataError(f"{where}: a compressed event whose size differs from its header")
    return content[:4] + bytes((stands_for,)) + content[5:begin] + unpacked


def _query_head(content: bytes) -> int:
    variables = int.from_bytes(content[HEADER_SIZE + _VARIABLES_SIZE : HEADER_SIZE + _QUERY_HEAD], "little")
    return HEADER_SIZE + _QUERY_HEAD + variables + content[HEADER_SIZE + _NAME_SIZE] + 1


def _rows_head(content: bytes, stands_for: EventType) -> int:
    scan = Scan(content)
    scan.skip(HEADER_SIZE + _TABLE_AND_FLAGS)
    if stands_for >= _FIRST_V2:
        extra = scan.uint(2)
        if extra < 2:
            raise ValueError(f"extra data of {extra} bytes")
        scan.skip(extra - 2)
    bitmap = (scan.lenenc() + 7) // 8
    scan.skip(2 * bitmap if stands_for in _UPDATES else bitmap)
    return scan.at
