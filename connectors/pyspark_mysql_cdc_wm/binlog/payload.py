"""Compressed transactions (``binlog_transaction_compression``): their events in place of the one that packs them.

A TRANSACTION_PAYLOAD event's body: fields of type, size and value (all length-encoded; 1 payload size, 2 compression,
0 zstd or 255 none, 3 size unpacked) until type 0, then the payload: events with headers and without checksums.
"""

from __future__ import annotations

import numpy as np
import zstandard

from pyspark_mysql_cdc_wm.binlog.events import (
    EVENT_FIELDS,
    FLAGS,
    HEADER_SIZE,
    POSITION,
    SECONDS,
    SERVER,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.scan import Scan
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs, uint16_at, uint32_at
from pyspark_mysql_cdc_wm.errors.faults import Fault, fault_error
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled

_SIZE, _COMPRESSION, _UNPACKED = 1, 2, 3
_ZSTD, _PLAIN = 0, 255
_LONGEST_HEAD = 64


@compiled("Tuple((int64, int64))(uint8[::1], int64, int64, int64, int64[:, ::1])")
def _walk(array: Word, start: Word, stop: Word, position: Word, events: Word) -> tuple[Word, Word]:
    """Tabulate events without checksums that fill ``[start, stop)``: ``(fault, events)``."""
    data = address_of(array)
    at = start
    row = 0
    while at < stop:
        if row == events.shape[0] or stop - at < HEADER_SIZE:
            return np.int64(Fault.EVENT_SIZE), row
        size = uint32_at(data, at + 9)
        if size < HEADER_SIZE or size > stop - at:
            return np.int64(Fault.EVENT_SIZE), row
        events[row, START] = at
        events[row, STOP] = at + size
        events[row, TYPE] = byte_at(data, at + 4)
        events[row, SECONDS] = uint32_at(data, at)
        events[row, SERVER] = uint32_at(data, at + 5)
        events[row, POSITION] = position
        events[row, FLAGS] = uint16_at(data, at + 17)
        row += 1
        at += size
    return np.int64(Fault.NONE), row


class Unpacker:
    """Unpacks the compressed transactions of one block of events after another, into reused memory."""

    __slots__ = ("_context", "_limit", "_memory", "_used")

    def __init__(self, *, limit: int = 1 << 30) -> None:
        """Refuse transactions of more than ``limit`` bytes unpacked."""
        self._limit = limit
        self._context = zstandard.ZstdDecompressor()
        self._memory: Bytes = np.empty(0, np.uint8)
        self._used = 0

    def plain(self, memory: Bytes, events: Longs, file: str) -> tuple[Bytes, Longs]:
        """Return memory and events without compressed transactions, valid until the next call.

        Events that were packed have the position of the one that packed them. A block without any is returned as it is.

        Raises:
            CorruptDataError: a payload that cannot be.
            UnsupportedFormatError: a compression that this version does not know, or more than the limit.
        """
        packed = np.flatnonzero(events[:, TYPE] == EventType.TRANSACTION_PAYLOAD)
        if not packed.size:
            return memory, events
        self._used = 0
        parts = []
        done = 0
        for i in packed.tolist():
            parts.append(self._copied(memory, events[done:i]))
            parts.append(self._unpacked(memory, events[i], file))
            done = i + 1
        parts.append(self._copied(memory, events[done:]))
        return self._memory, np.concatenate(parts)

    def _room(self, size: int) -> int:
        """Make room for ``size`` bytes and return where."""
        needed = self._used + size + PADDING
        if needed > self._memory.size:
            grown = np.empty(max(needed, 2 * self._memory.size), np.uint8)
            grown[: self._used] = self._memory[: self._used]
            self._memory = grown
        start = self._used
        self._used += size
        return start

    def _copied(self, memory: Bytes, events: Longs) -> Longs:
        if not len(events):
            return events
        first, last = int(events[0, START]), int(events[-1, STOP])
        start = self._room(last - first)
        self._memory[start : self._used] = memory[first:last]
        moved = events.copy()
        moved[:, (START, STOP)] += start - first
        return moved

    def _unpacked(self, memory: Bytes, event: Longs, file: str) -> Longs:
        where = f"binlog {file} position {event[POSITION]}"
        begin, stop = int(event[START]) + HEADER_SIZE, int(event[STOP])
        try:
            head = Scan(memory[begin : min(stop, begin + _LONGEST_HEAD)].tobytes())
            fields = {}
            while kind := head.lenenc():
                fields[kind] = Scan(head.take(head.lenenc())).lenenc()
            content = memory[begin + head.at : stop]
            size = fields.get(_UNPACKED, content.size)
        except (IndexError, ValueError) as problem:
            raise CorruptDataError(
                f"{where}: a compressed transaction whose head cannot be read: {problem}"
            ) from problem
        if size > self._limit:
            raise UnsupportedFormatError(f"{where}: a transaction of {size} bytes; the limit is {self._limit}")
        if content.size != fields.get(_SIZE, content.size):
            raise CorruptDataError(
                f"{where}: a compressed transaction of {content.size} bytes that says {fields[_SIZE]}"
            )
        start = self._room(size)
        target = self._memory[start : self._used]
        compression = fields.get(_COMPRESSION, _PLAIN)
        if compression == _PLAIN:
            target[:] = content
        elif compression == _ZSTD:
            self._decompress(content, target, where)
        else:
            raise UnsupportedFormatError(
                f"{where}: a transaction of compression {compression}; known are 0 zstd, 255 none"
            )
        rows = np.empty((size // HEADER_SIZE, EVENT_FIELDS), np.int64)
        fault, count = _walk(self._memory, start, self._used, int(event[POSITION]), rows)
        if fault:
            raise fault_error(Fault(fault), f"{where}, in a compressed transaction")
        return rows[:count]

    def _decompress(self, content: Bytes, target: Bytes, where: str) -> None:
        try:
            # A large transaction is several frames.
            reader = self._context.stream_reader(content.data, read_across_frames=True)
            done = 0
            while done < target.size:
                size = reader.readinto(target[done:].data)
                if not size:
                    break
                done += size
            more = reader.read(1)
        except zstandard.ZstdError as problem:
            raise CorruptDataError(f"{where}: a transaction that cannot be decompressed ({problem})") from problem
        if done < target.size or more:
            raise CorruptDataError(
                f"{where}: a compressed transaction of another size than it says, {target.size} bytes"
            )
