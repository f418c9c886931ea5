"""Locating events in the packets of a dump connection, without a copy.

The content of a dump's packet begins with a zero byte before an event, with 0xFF for an error, or with 0xFE at the end.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import EVENT_FIELDS, HEADER_SIZE, read_event
from pyspark_mysql_cdc_wm.binlog.wire import (
    LONGEST_PACKET,
    PACKET_HEAD,
    Bytes,
    Fault,
    Longs,
    fault_error,
    uint32_at,
    uint_at,
)
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled

_LAST_END = 9


class Stopped(IntEnum):
    """Why the walk over packets stopped."""

    SHORT = 0
    """At a packet that is not complete."""
    FULL = 1
    """The table of events is full."""
    END = 2
    """At the packet that ends the dump."""
    ERROR = 3
    """At a packet with an error."""
    LONG = 4
    """At an event of several packets."""
    FAULT = 5


@compiled(
    "Tuple((int64, int64, int64, int64, boolean, int64))"
    "(uint8[::1], int64, int64, boolean, boolean, boolean, int64, int64[:, ::1])"
)
def _walk(  # noqa: PLR0911, PLR0917 - arrays in, arrays out
    array: Word, start: Word, stop: Word, checksums: Word, check: Word, gaps: Word, position: Word, events: Word
) -> tuple[Word, Word, Word, Word, Word, Word]:
    """Tabulate the events; return why it stopped, fault, events, where it stopped, checksums, and position."""
    data = address_of(array)
    none = np.int64(Fault.NONE)
    at = start
    row = 0
    while stop - at > PACKET_HEAD:
        size = uint_at(data, at, np.int64(3))
        begin = at + PACKET_HEAD
        first = byte_at(data, begin)
        if size == LONGEST_PACKET:
            return np.int64(Stopped.LONG), none, row, at, checksums, position
        if size > stop - begin:
            break
        if first == 0xFF:
            return np.int64(Stopped.ERROR), none, row, at, checksums, position
        if first == 0xFE and size < _LAST_END:
            return np.int64(Stopped.END), none, row, at, checksums, position
        if row == events.shape[0]:
            return np.int64(Stopped.FULL), none, row, at, checksums, position
        if first != 0 or size < HEADER_SIZE + 1 or uint32_at(data, begin + 10) != size - 1:
            return np.int64(Stopped.FAULT), np.int64(Fault.EVENT_SIZE), row, at, checksums, position
        fault, checksums, position = read_event(
            data, begin + 1, begin + size, checksums, check, gaps, position, events, row
        )
        if fault:
            return np.int64(Stopped.FAULT), fault, row, at, checksums, position
        row += 1
        at = begin + size
    return np.int64(Stopped.SHORT), none, row, at, checksums, position


class PacketWalk:
    """Walks over the packets of one dump, as they are received."""

    __slots__ = ("_events", "_gaps", "checks", "checksums", "position")

    def __init__(
        self, *, position: int, checksums: bool, check: bool = True, gaps: bool = False, capacity: int = 65536
    ) -> None:
        """Begin at ``position``; with ``gaps`` the server leaves events out, as for a GTID set."""
        self._gaps = gaps
        self.position = position
        self.checksums = checksums
        self.checks = check
        self._events = np.empty((capacity, EVENT_FIELDS), np.int64)

    def walk(self, data: Bytes, start: int, stop: int, file: str, *, held: int = 0) -> tuple[Stopped, Longs, int]:
        """Return why it stopped, the events before, and where it stopped.

        The events are a view that the next walk overwrites, except the first ``held`` events, which previous walks
        found and this walk returns again.

        Raises:
            CorruptDataError: an event's checksum, size or position does not match.
        """
        why, fault, rows, at, self.checksums, self.position = _walk(
            data, start, stop, self.checksums, self.checks, self._gaps, self.position, self._events[held:]
        )
        if why == Stopped.FAULT:
            raise fault_error(Fault(fault), f"binlog {file} after position {self.position}")
        return Stopped(why), self._events[: held + rows], at

    def one_event(self, data: Bytes, start: int, stop: int, file: str, *, body_follows: bool = False) -> Longs:
        """Tabulate one event that fills ``data[start:stop]``, joined from several packets.

        With ``body_follows`` only its header has arrived, and the caller must check the checksum.
        """
        rows = np.empty((1, EVENT_FIELDS), np.int64)
        check = self.checks and not body_follows
        fault, self.checksums, self.position = _one(
            data, start, stop, self.checksums, check, self._gaps, self.position, rows
        )
        if fault:
            raise fault_error(Fault(fault), f"binlog {file} after position {self.position}")
        return rows


@compiled("Tuple((int64, boolean, int64))(uint8[::1], int64, int64, boolean, boolean, boolean, int64, int64[:, ::1])")
def _one(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, start: Word, stop: Word, checksums: Word, check: Word, gaps: Word, position: Word, events: Word
) -> tuple[Word, Word, Word]:
    data = address_of(array)
    if stop - start < HEADER_SIZE or uint32_at(data, start + 9) != stop - start:
        return np.int64(Fault.EVENT_SIZE), checksums, position
    fault, checksums, position = read_event(data, start, stop, checksums, check, gaps, position, events, np.int64(0))
    return fault, checksums, position
