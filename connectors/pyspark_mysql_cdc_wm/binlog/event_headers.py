"""Tables of a binlog's events: the bounds and the header fields of each event, as arrays.

An event's header, little-endian: timestamp 4 (seconds), type 1, server id 4, size 4 (header, body and checksum), end
position 4 (its low 32 bits), flags 2. If the file's FORMAT_DESCRIPTION event sets checksums, a CRC-32 of all bytes
before it ends each event.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Fault, Longs, checksum, uint16_at, uint32_at, uint_at
from watermark_source.machine_code.native import Word, byte_at, inlined

HEADER_SIZE = 19
CHECKSUM_SIZE = 4
ARTIFICIAL = 0x20
IGNORABLE = 0x80

# Columns of a table of events, which has one row for each event. STOP is the end of the body, before a checksum.
START, STOP, TYPE, SECONDS, POSITION, FLAGS = range(6)
EVENT_FIELDS = 6

_ROTATE_NAME = HEADER_SIZE + 8
_LOW = 0xFFFFFFFF
_FARTHEST = 0x7FFFFFFF


class EventType(IntEnum):
    """Types of events that the source knows; an event of any other type must be flagged as ignorable."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
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


ROWS_V1 = (EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1)
ROWS_V2 = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)
"""The types of events with inserted, updated and deleted rows, in their two versions."""
BEGINNINGS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
"""The types of events that begin transactions."""

_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_REPEATED = (_FORMAT_DESCRIPTION, 164)
"""Types of events at a file's beginning that each dump repeats: also MariaDB's START_ENCRYPTION, which is ignorable."""
_ROTATE = int(EventType.ROTATE)
_HEARTBEATS = (int(EventType.HEARTBEAT), int(EventType.HEARTBEAT_V2))


def begins_transaction(events: Longs) -> npt.NDArray[np.bool_]:
    """Return which events begin a transaction."""
    return np.isin(events[:, TYPE], BEGINNINGS)


def next_file(memory: Bytes, rotate: Longs) -> str:
    """Return the file that a ROTATE, a row of the table of events, names as the next."""
    return memory[rotate[START] + _ROTATE_NAME : rotate[STOP]].tobytes().decode(errors="replace")


@inlined
def put_row(events: Word, row: Word, data: Word, at: Word, body: Word, position: Word) -> None:  # noqa: PLR0917
    """Fill a row of the table of events from the header at ``at``; ``body`` is where the body ends."""
    events[row, START] = at
    events[row, STOP] = body
    events[row, TYPE] = byte_at(data, at + 4)
    events[row, SECONDS] = uint32_at(data, at)
    events[row, POSITION] = position
    events[row, FLAGS] = uint16_at(data, at + 17)


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
    """Tabulate the event that fills ``[at, stop)`` as a row; return fault, checksums, and the position after it.

    The row has the 64-bit position of the event's end; an event that is not in the file has the previous position.
    With ``gaps`` the server may have left out events, and a heartbeat has the position up to which it did.
    """
    kind = byte_at(data, at + 4)
    end = uint32_at(data, at + 13)
    flags = uint16_at(data, at + 17)
    if kind == _FORMAT_DESCRIPTION:
        if stop - at < HEADER_SIZE + 57 + 5:
            return np.int64(Fault.EVENT_SIZE), checksums, position
        # This event always has room for a checksum, and its algorithm byte holds for the events after it.
        checksums = byte_at(data, stop - CHECKSUM_SIZE - 1) == 1
        body = stop - CHECKSUM_SIZE
    else:
        body = stop - CHECKSUM_SIZE if checksums else stop
    if body < at + HEADER_SIZE:
        return np.int64(Fault.EVENT_SIZE), checksums, position
    if check and checksums and checksum(data, at, stop - CHECKSUM_SIZE) != uint32_at(data, stop - CHECKSUM_SIZE):
        return np.int64(Fault.CHECKSUM), checksums, position
    # A dump that begins within a file sends these events first, without a position.
    repeated = end == 0 and kind in _REPEATED
    if not repeated and not flags & ARTIFICIAL and kind != _HEARTBEATS[0] and kind != _HEARTBEATS[1]:
        position += stop - at
        # MariaDB sends position 0 for events within a transaction.
        skipped = (end - position) & _LOW if end else np.int64(0)
        if skipped and not gaps:
            return np.int64(Fault.POSITION), checksums, position
        position += skipped
    elif gaps and kind == _HEARTBEATS[0] and end:
        # Only a heartbeat has the end of the last transactions that were left out.
        skipped = (end - position) & _LOW
        position += skipped if skipped <= _FARTHEST else 0
    put_row(events, row, data, at, body, position)
    if kind == _ROTATE:
        if body < at + _ROTATE_NAME:
            return np.int64(Fault.EVENT_SIZE), checksums, position
        position = uint_at(data, at + HEADER_SIZE, np.int64(8))
    return np.int64(Fault.NONE), checksums, position
