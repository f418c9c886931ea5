"""Events that lie back to back, as in a file: found by the code that finds them in packets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import EVENT_FIELDS, HEADER_SIZE, read_event
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Fault, Longs, fault_error, uint32_at
from tests.unit.mysql.compiled_late import compiled_late
from watermark_source.errors import InternalError
from watermark_source.machine_code.native import Word, address_of


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


@compiled_late(
    "Tuple((int64, int64, int64, boolean, int64))(uint8[::1], int64, int64, boolean, boolean, int64, int64[:, ::1])"
)
def _survey(
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
