"""Events of a binlog: where each begins and ends, and what its header says, as arrays.

An event's header, little-endian: timestamp 4 (seconds), type 1, server id 4, size 4 (header, body and checksum), end
position 4 (its low 32 bits), flags 2. A CRC-32 of all before it ends the event when the file's FORMAT_DESCRIPTION
event says so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.crc32 import checksum
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs, uint16_at, uint32_at, uint_at
from pyspark_mysql_cdc_wm.errors.faults import Fault, fault_error
from watermark_source.errors import InternalError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

HEADER_SIZE = 19
CHECKSUM_SIZE = 4
ARTIFICIAL = 0x20
IGNORABLE = 0x80

# Columns of a table of events, one row an event. STOP is the end of the body, where a checksum may follow.
START, STOP, TYPE, SECONDS, SERVER, POSITION, FLAGS = range(7)
EVENT_FIELDS = 7

_ROTATE_NAME = HEADER_SIZE + 8
_LOW = 0xFFFFFFFF


class EventType(IntEnum):
    """Types of events that have a meaning here; every other one must be flagged as ignorable."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163


_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_ROTATE = int(EventType.ROTATE)
_HEARTBEATS = (int(EventType.HEARTBEAT), int(EventType.HEARTBEAT_V2))


def next_file(memory: Bytes, rotate: Longs) -> str:
    """Return the file that a ROTATE, a row of the table of events, names as the next."""
    return memory[rotate[START] + _ROTATE_NAME : rotate[STOP]].tobytes().decode()


class Survey(NamedTuple):
    """Complete events of a stretch of bytes."""

    events: Longs
    """One row an event; a view into memory that the next survey overwrites."""
    stop: int
    """Where the bytes begin that belong to no complete event yet."""
    position: int
    """Position in the file after the last event that is in the file."""
    checksums: bool
    """Whether events from here on carry checksums."""


@inlined
def read_event(  # noqa: PLR0917 - a loop's variables
    data: Word,
    at: Word,
    stop: Word,
    checksums: Word,
    check: Word,
    gaps: Word,
    position: Word,
    events: Word,
    row: Word,
) -> tuple[Word, Word, Word]:
    """Put the event that fills ``[at, stop)`` into a row of the table: ``(fault, checksums, position after it)``.

    The table's position is that of the event's end, 64 bits wide; that of one that is not in the file is the last's.
    With ``gaps`` the server may have left events out.
    """
    kind = byte_at(data, at + 4)
    end = uint32_at(data, at + 13)
    flags = uint16_at(data, at + 17)
    if kind == _FORMAT_DESCRIPTION:
        if stop - at < HEADER_SIZE + 57 + 5:
            return np.int64(Fault.EVENT_SIZE), checksums, position
        # This one carries the field of a checksum in any case, and tells for those after it.
        checksums = byte_at(data, stop - CHECKSUM_SIZE - 1) == 1
        body = stop - CHECKSUM_SIZE
    else:
        body = stop - CHECKSUM_SIZE if checksums else stop
    if body < at + HEADER_SIZE:
        return np.int64(Fault.EVENT_SIZE), checksums, position
    if check and checksums and checksum(data, at, stop - CHECKSUM_SIZE) != uint32_at(data, stop - CHECKSUM_SIZE):
        return np.int64(Fault.CHECKSUM), checksums, position
    repeated = kind == _FORMAT_DESCRIPTION and end == 0
    if not repeated and not flags & ARTIFICIAL and kind != _HEARTBEATS[0] and kind != _HEARTBEATS[1]:
        position += stop - at
        # MariaDB leaves the position out inside a transaction.
        skipped = (end - position) & _LOW if end else np.int64(0)
        if skipped and not gaps:
            return np.int64(Fault.POSITION), checksums, position
        position += skipped
    events[row, START] = at
    events[row, STOP] = body
    events[row, TYPE] = kind
    events[row, SECONDS] = uint32_at(data, at)
    events[row, SERVER] = uint32_at(data, at + 5)
    events[row, POSITION] = position
    events[row, FLAGS] = flags
    if kind == _ROTATE:
        if body < at + _ROTATE_NAME:
            return np.int64(Fault.EVENT_SIZE), checksums, position
        position = uint_at(data, at + HEADER_SIZE, np.int64(8))
    return np.int64(Fault.NONE), checksums, position


@compiled(
    "Tuple((int64, int64, int64, boolean, int64))(uint8[::1], int64, int64, boolean, boolean, int64, int64[:, ::1])"
)
def _survey(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, start: Word, stop: Word, checksums: Word, check: Word, position: Word, events: Word
) -> tuple[Word, Word, Word, Word, Word]:
    """Walk events that lie back to back: ``(fault, rows, stop, checksums, position)``."""
    data = address_of(array)
    at = start
    row = 0
    while row < events.shape[0] and stop - at >= HEADER_SIZE:
        size = uint32_at(data, at + 9)
        if size < HEADER_SIZE:
            return np.int64(Fault.EVENT_SIZE), row, at, checksums, position
        if size > stop - at:
            break
        fault, checksums, position = read_event(data, at, at + size, checksums, check, False, position, events, row)
        if fault:
            return fault, row, at, checksums, position
        row += 1
        at += size
    return np.int64(Fault.NONE), row, at, checksums, position


class EventSurvey:
    """Surveys stretches of one binlog, one after another."""

    __slots__ = ("_check", "_events", "checksums", "file", "position")

    def __init__(
        self, *, file: str = "", position: int = 0, checksums: bool, check: bool = True, capacity: int = 16384
    ) -> None:
        self.file = file
        self.position = position
        self.checksums = checksums
        self._check = check
        self._events = np.empty((capacity, EVENT_FIELDS), np.int64)

    def survey(self, data: Bytes, start: int, stop: int) -> Survey:
        """Tabulate the complete events that lie back to back in ``data[start:stop]``, at most ``capacity``.

        Raises:
            CorruptDataError: an event that fails its own checks.
        """
        if data.size < stop + PADDING:
            raise InternalError(f"{data.size} bytes, of which {stop} are to be decoded, have no padding")
        fault, rows, at, checksums, position = _survey(
            data, start, stop, self.checksums, self._check, self.position, self._events
        )
        if fault:
            raise fault_error(Fault(fault), f"binlog {self.file} position {position}")
        self.checksums, self.position = checksums, position
        return Survey(self._events[:rows], at, position, checksums)
