"""Which table and which transaction each event belongs to, one compiled pass over a table of events.

A table's number in the binlog is good from its TABLE_MAP event to the end of the statement, and every statement
repeats the description. A description seen before, byte by byte, is known by comparing it; only a new one is read, in
Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    BEGINNINGS,
    FLAGS,
    HEADER_SIZE,
    IGNORABLE,
    POSITION,
    ROWS_V1,
    ROWS_V2,
    SECONDS,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.gtid import committed_at
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Fault, Ints, Longs, fault_error, uint_at
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from pyspark_mysql_cdc_wm.records.table_map import TABLE_ID_SIZE, WriterVersion, read_table_map, read_table_names
from watermark_source.machine_code.native import Word, address_of, compiled, same_bytes

NO_TABLE = -1
_UNKNOWN_MAP = -1
_LEAST_ROOM = 256
# The text of the server's version in a FORMAT_DESCRIPTION event.
_VERSION_BEGIN, _VERSION_END = HEADER_SIZE + 2, HEADER_SIZE + 52
# Columns of the table of descriptions: number in the binlog, where the description lies, its size, the table it is
# of, when it was last seen.
_ID, _PLACE, _SIZE, _TABLE, _SEEN = range(5)
# What is carried from event to event: the transaction's number among those seen, its commit time, a clock for _SEEN,
# and when that was the last rows': a statement describes all of its tables before its rows.
_TRANSACTION, _COMMITTED, _CLOCK, _ROWS_SEEN = range(4)

_NOTHING, _GTID, _MAP, _ROWS, _REFUSED = range(5)
_TABLE_ID = np.int64(TABLE_ID_SIZE)
_DUMMY_TABLE = 0xFFFFFF


def _meanings() -> npt.NDArray[np.uint8]:
    found = np.full(256, _REFUSED, np.uint8)
    found[[int(kind) for kind in EventType]] = _NOTHING
    # An INCIDENT, in which the server lost events, or a payload that is not decompressed yet.
    found[[EventType.INCIDENT, EventType.TRANSACTION_PAYLOAD]] = _REFUSED
    found[list(BEGINNINGS)] = _GTID
    found[EventType.TABLE_MAP] = _MAP
    found[[*ROWS_V1, *ROWS_V2, EventType.PARTIAL_UPDATE_ROWS]] = _ROWS
    return found


_MEANINGS = _meanings()


@compiled(
    "Tuple((int64, int64))"
    "(uint8[::1], int64[:, ::1], int64, uint8[::1], int64[:, ::1], int64,"
    " int64[::1], int32[::1], int64[::1], int64[::1])"
)
def _route(  # noqa: PLR0911, PLR0912, PLR0917 - arrays in, arrays out
    array: Word,
    events: Word,
    first: Word,
    arena: Word,
    known: Word,
    count: Word,
    carried: Word,
    tables: Word,
    transactions: Word,
    committed: Word,
) -> tuple[Word, Word]:
    """Fill the three arrays from event ``first`` on: ``(fault, event)``; stops at a description that is not known."""
    data = address_of(array)
    descriptions = address_of(arena)
    for i in range(first, events.shape[0]):
        kind = events[i, TYPE]
        start, stop = events[i, START] + HEADER_SIZE, events[i, STOP]
        meaning = _MEANINGS[kind]
        table = np.int64(NO_TABLE)
        if meaning == _REFUSED:
            if not events[i, FLAGS] & IGNORABLE:
                return np.int64(Fault.UNKNOWN_EVENT), i
        elif meaning == _GTID:
            number, micros = committed_at(data, kind, start, stop, events[i, SECONDS])
            if number < 0:
                return np.int64(Fault.GTID), i
            carried[_TRANSACTION] += 1
            carried[_COMMITTED] = micros
        elif meaning == _MAP:
            if stop - start < _TABLE_ID:
                return np.int64(Fault.ROWS_HEADER), i
            found = np.int64(_UNKNOWN_MAP)
            for k in range(count):
                if known[k, _SIZE] == stop - start and same_bytes(
                    data, start, descriptions, known[k, _PLACE], stop - start
                ):
                    found = np.int64(k)
                    break
            if found < 0:
                return np.int64(Fault.NONE), i
            carried[_CLOCK] += 1
            known[found, _SEEN] = carried[_CLOCK]
        elif meaning == _ROWS:
            if stop - start < _TABLE_ID:
                return np.int64(Fault.ROWS_HEADER), i
            number = uint_at(data, start, _TABLE_ID)
            latest = np.int64(-1)
            for k in range(count):
                if known[k, _ID] == number and known[k, _SEEN] > latest:
                    latest = known[k, _SEEN]
                    table = known[k, _TABLE]
            carried[_ROWS_SEEN] = carried[_CLOCK]
            # A last event of a statement without any row names no table.
            if latest < 0 and number != _DUMMY_TABLE:
                return np.int64(Fault.TABLE), i
        tables[i] = table
        transactions[i] = carried[_TRANSACTION]
        committed[i] = carried[_COMMITTED]
    return np.int64(Fault.NONE), np.int64(events.shape[0])


class Routes(NamedTuple):
    """What each event of a block belongs to."""

    tables: Ints
    """Index of the table a row event is of; ``NO_TABLE`` for other events and for tables that are not read."""
    transactions: Longs
    """A running number of the transaction, from 1; 0 before the first."""
    committed: Longs
    """When the transaction was committed, in microseconds since 1970 by the server's clock."""


def every_table(database: str, table: str) -> bool:
    """Return that it is one."""
    return True


class Router:
    """Routes one block of events after another, in the order of the binlog."""

    __slots__ = ("_arena", "_carried", "_count", "_known", "_numbers", "_reads", "_used", "_wanted", "_writer")

    def __init__(
        self, wanted: Callable[[TableMap], int | None], reads: Callable[[str, str], bool] = every_table
    ) -> None:
        """Ask ``wanted`` once about each table in each of its shapes: its index, or ``None`` to leave it out.

        Of a table that ``reads`` leaves out, given its database and name, no column is looked at.
        """
        self._wanted, self._reads = wanted, reads
        self._writer = WriterVersion()
        self._numbers: dict[bytes, int] = {}
        self._carried = np.zeros(4, np.int64)
        self._forget()

    @property
    def transactions(self) -> int:
        """How many have begun so far."""
        return int(self._carried[_TRANSACTION])

    def route(self, memory: Bytes, events: Longs, file: str) -> Routes:
        """Return the table and transaction of each event.

        Raises:
            UnsupportedFormatError: an event that is not known and must not be ignored.
            CorruptDataError: a row event without a description of its table, or what cannot be read.
        """
        rows = len(events)
        for event in events[events[:, TYPE] == EventType.FORMAT_DESCRIPTION]:
            version = memory[event[START] + _VERSION_BEGIN : event[START] + _VERSION_END].tobytes()
            writer = WriterVersion.of(version.rstrip(b"\0").decode("ascii", "replace"))
            if writer != self._writer:
                # The same bytes may describe another table.
                self._writer, self._numbers = writer, {}
                self._forget()
        routes = Routes(np.empty(rows, np.int32), np.empty(rows, np.int64), np.empty(rows, np.int64))
        at = 0
        while True:
            fault, at = _route(memory, events, at, self._arena, self._known, self._count, self._carried, *routes)
            if fault:
                where = f"binlog {file} position {events[at, POSITION]}"
                raise fault_error(Fault(fault), f"{where} (type {events[at, TYPE]})")
            if at == rows:
                return routes
            self._learn(memory[events[at, START] + HEADER_SIZE : events[at, STOP]].tobytes(), file, events[at])

    def _forget(self, room: int = _LEAST_ROOM) -> None:
        self._known = np.zeros((room, 5), np.int64)
        self._arena: Bytes = np.zeros(64 * 1024, np.uint8)
        self._count = self._used = 0

    def _learn(self, body: bytes, file: str, event: Longs) -> None:
        # The number changes with each opening of the table; the rest only with its shape.
        shape = body[TABLE_ID_SIZE:]
        if shape not in self._numbers:
            index = self._index(body, f"binlog {file} position {event[POSITION]}")
            self._numbers[shape] = NO_TABLE if index is None else index
        if self._count == len(self._known):
            self._make_room()
        if self._used + len(body) + PADDING > self._arena.size:
            grown = np.zeros(2 * (self._used + len(body) + PADDING), np.uint8)
            grown[: self._used] = self._arena[: self._used]
            self._arena = grown
        self._arena[self._used : self._used + len(body)] = np.frombuffer(body, np.uint8)
        number = int.from_bytes(body[:TABLE_ID_SIZE], "little")
        self._known[self._count] = (number, self._used, len(body), self._numbers[shape], 0)
        self._used += len(body)
        self._count += 1

    def _index(self, body: bytes, where: str) -> int | None:
        if not self._reads(*read_table_names(body, where)):
            return None
        return self._wanted(read_table_map(body, where, self._writer))

    def _make_room(self) -> None:
        """Keep the descriptions that were seen last, and all of a statement whose rows are still to come."""
        seen = self._known[:, _SEEN]
        count = max(_LEAST_ROOM // 2, int(np.count_nonzero(seen > self._carried[_ROWS_SEEN])))
        kept, arena = self._known[np.argsort(seen)[-count:]], self._arena
        self._forget(max(_LEAST_ROOM, 2 * count))
        self._arena = np.zeros_like(arena)
        for row in kept:
            place, size = int(row[_PLACE]), int(row[_SIZE])
            self._arena[self._used : self._used + size] = arena[place : place + size]
            row[_PLACE] = self._used
            self._known[self._count] = row
            self._used += size
            self._count += 1
