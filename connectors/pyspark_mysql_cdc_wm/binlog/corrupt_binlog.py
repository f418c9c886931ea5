"""The faults of a binlog's bytes, and the error for each."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError


class Fault(IntEnum):
    """The faults that compiled code returns; ``NONE`` if there is none."""

    NONE = 0
    EVENT_SIZE = 1
    CHECKSUM = 2
    POSITION = 3
    ROWS_HEADER = 4
    WIDTH = 5
    VALUE = 6
    ROW_OPTIONS = 7
    ABSENT = 8
    TABLE = 9
    GTID = 10
    UNKNOWN_EVENT = 11
    DECIMAL = 12
    JSON = 13
    JSON_DEPTH = 14
    TEXT = 15
    TIME = 16


_TEXT = {
    Fault.EVENT_SIZE: "an impossible event size",
    Fault.CHECKSUM: "a checksum (CRC-32) that does not fit the event",
    Fault.POSITION: "an event whose end is not where the events before it lead",
    Fault.ROWS_HEADER: "a row event whose head does not fit in it",
    Fault.WIDTH: "a row event with another number of columns than its table map",
    Fault.VALUE: "a value longer than its row event",
    Fault.TABLE: "a row event without a table map",
    Fault.GTID: "a transaction's identifier (GTID event) that cannot be read",
    Fault.DECIMAL: "a decimal number that has digits above nine",
    Fault.JSON: "a JSON document that does not fit its value",
    Fault.JSON_DEPTH: "a JSON document nested deeper than the server allows (100)",
    Fault.TEXT: "text that is not of its column's character set",
    Fault.TIME: "a date or time with an impossible part",
}
_UNSUPPORTED = {
    Fault.ROW_OPTIONS: "a row with options that this version does not read (binlog_row_value_options)",
    Fault.UNKNOWN_EVENT: "an event of a type that this version does not read and that must not be ignored",
}


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
        return UnsupportedFormatError(f"{where}: {_UNSUPPORTED[fault]}")
    return CorruptDataError(
        f"{where}: {_TEXT[fault]}; the binlog on the server or on its way is damaged. Check it with mysqlbinlog"
    )
