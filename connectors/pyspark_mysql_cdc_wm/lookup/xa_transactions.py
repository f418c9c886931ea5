"""XA transactions, whose rows are logged when they are prepared, and are delivered where they are committed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import Unpacker
from pyspark_mysql_cdc_wm.binlog.event_headers import (
    HEADER_SIZE,
    POSITION,
    ROWS_V1,
    ROWS_V2,
    START,
    STOP,
    TYPE,
    EventType,
    begins_transaction,
)
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.binlog.xa import prepared_name, xa_ends
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped, in_own_memory
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.errors import DataLossError

_log = logging.getLogger(__name__)

KEPT_BYTES: Final = 8 * 1024 * 1024
"""Limit for the bytes of all kept rows together."""
_SIZE_OFFSET = 9
"""Offset of the size in an event's header."""
_ROW_EVENTS = (
    EventType.QUERY,
    EventType.TABLE_MAP,
    *ROWS_V1,
    *ROWS_V2,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.TRANSACTION_PAYLOAD,
)


def with_prepared(
    blocks: Iterable[PlacedBlock],
    settings: LoginSettings,
    base: str,
    *,
    start: int | None = None,
    fail_on_data_loss: bool = True,
) -> Iterator[PlacedBlock]:
    """Yield blocks and, behind each statement that commits a prepared transaction, that transaction's rows.

    The transaction may have been prepared before the first block. It is then searched from the beginning of the file
    on, and in previous files. Rows are kept in memory up to ``KEPT_BYTES``; others are read again from where they were
    logged. ``start`` is the position of the first block, if it is known.

    Raises:
        DataLossError: the file with the rows was purged, and ``fail_on_data_loss`` is set.
        SourceError: what ``dumped`` raises.
    """
    prepared = _Prepared(settings, base, start)
    for block in blocks:
        prepared.scan(block)
        done = 0
        for end in xa_ends(block.memory, block.events):
            place = int(block.places[end.number])
            if not end.commits:
                prepared.discard(end.transaction, place)
                continue
            logged = prepared.find(end.transaction, place)
            if logged is None:
                lost = (
                    f"{settings.where}: XA COMMIT {end.transaction} at {LogPosition.of(place).shown(base)} commits "
                    "what was prepared in a file of the binlog that was purged: its rows cannot be read"
                )
                if fail_on_data_loss:
                    raise DataLossError(f"{lost}. Set failOnDataLoss to false to continue without them")
                _log.warning("failOnDataLoss=false: skipping these rows. %s", lost)
                continue
            yield block.between(done, end.number + 1)
            done = end.number + 1
            for rows in prepared.rows(logged):
                yield _moved_to(place, rows)
        if done < len(block.events):
            yield block.without(done)


class LoggedRange(NamedTuple):
    """The positions before and after a prepared transaction in the binlog."""

    start: int
    end: int


class PreparedRows:
    """The rows of prepared transactions that lie in one block each; the oldest are dropped beyond ``KEPT_BYTES``."""

    def __init__(self) -> None:
        self._kept: dict[LoggedRange, PlacedBlock] = {}
        self._bytes = 0

    def keep(self, logged: LoggedRange, transaction: PlacedBlock) -> None:
        """Keep the rows of a transaction, unless they alone exceed the limit."""
        rows = rows_of(transaction)
        if rows is None or logged in self._kept or rows.memory_bytes > KEPT_BYTES:
            return
        own = in_own_memory(rows)
        self._kept[logged] = own
        self._bytes += own.memory_bytes
        while self._bytes > KEPT_BYTES:
            self.pop(next(iter(self._kept)))

    def pop(self, logged: LoggedRange) -> PlacedBlock | None:
        """Remove and return the rows of a transaction, ``None`` if they are not kept."""
        rows = self._kept.pop(logged, None)
        if rows is not None:
            self._bytes -= rows.memory_bytes
        return rows


def rows_of(block: PlacedBlock) -> PlacedBlock | None:
    """Return a block's row events with their table maps and statements, ``None`` if it has none."""
    kept = np.isin(block.events[:, TYPE], _ROW_EVENTS)
    if not kept.any():
        return None
    return block._replace(events=np.ascontiguousarray(block.events[kept]), places=block.places[kept])


def _moved_to(place: int, rows: PlacedBlock) -> PlacedBlock:
    """Return rows that were logged earlier with the position of their commit."""
    return rows._replace(places=np.full(len(rows.events), place), part=None, prepared=True)


class _Prepared:
    """The prepared transactions by name, in the part of the binlog that was scanned so far."""

    def __init__(self, settings: LoginSettings, base: str, start: int | None, rows: PreparedRows | None = None) -> None:
        self._settings = settings
        self._base = base
        self._logged: dict[str, set[LoggedRange]] = {}
        self._rows = PreparedRows() if rows is None else rows
        self._begin = 0
        """Position at which the last event's transaction begins."""
        self._first = self._last = start
        """The range that was scanned completely, compressed transactions included."""

    def pop(self, name: str, place: int) -> LoggedRange | None:
        """Remove and return the last transaction of a name that was prepared before a position, if it is known."""
        ranges = self._logged.get(name, set())
        last = max((logged for logged in ranges if logged.end < place), default=None)
        if last is not None:
            ranges.remove(last)
        return last

    def rows(self, logged: LoggedRange) -> Iterator[PlacedBlock]:
        """Yield the rows of a prepared transaction: those that are kept, which are dropped, or else read again."""
        kept = self._rows.pop(logged)
        if kept is not None:
            yield kept
            return
        for block in dumped(self._settings, self._base, logged.start, logged.end, check=True):
            if (rows := rows_of(block)) is not None:
                yield rows

    def discard(self, name: str, place: int) -> None:
        """Forget the last transaction of a name that was prepared before a position, where it was rolled back."""
        rolled_back = self.pop(name, place)
        if rolled_back is not None:
            self._rows.pop(rolled_back)

    def find(self, name: str, place: int) -> LoggedRange | None:
        """Return what ``pop`` does, and scan as much of the binlog as necessary for it."""
        while (logged := self.pop(name, place)) is None and self._scan_further(place):
            pass
        return logged

    def scan(self, block: PlacedBlock, unpacker: Unpacker | None = None) -> None:
        """Record the transactions that are prepared in a block, with an ``unpacker`` also in compressed ones."""
        events, memory = block.events, block.memory
        begins = np.flatnonzero(begins_transaction(events))
        starts = block.places[begins] - _sizes(block, begins)
        prepares = [
            (i, _body(memory, events[i])) for i in np.flatnonzero(events[:, TYPE] == EventType.XA_PREPARE).tolist()
        ]
        packed = np.flatnonzero(events[:, TYPE] == EventType.TRANSACTION_PAYLOAD)
        if unpacker is not None and packed.size:
            for unpacked, inside in unpacker.plain(memory, np.ascontiguousarray(events[packed]), block.file):
                for event in inside[inside[:, TYPE] == EventType.XA_PREPARE]:
                    payload = packed[np.flatnonzero(events[packed, POSITION] == event[POSITION])[-1]]
                    prepares.append((int(payload), _body(unpacked, event)))
        for i, body in prepares:
            number = int(np.searchsorted(begins, i, side="right")) - 1
            # The first byte of the body is 1 if the transaction commits at once (ONE PHASE).
            if not body[0]:
                start = self._begin if number < 0 else int(starts[number])
                logged = LoggedRange(start, int(block.places[i]))
                self._logged.setdefault(prepared_name(body), set()).add(logged)
                if number >= 0:
                    self._rows.keep(logged, block.between(int(begins[number]), i + 1))
        if begins.size:
            self._begin = int(starts[-1])

    def _scan_further(self, place: int) -> bool:
        """Scan the binlog up to a position, or the file before what was scanned; return whether there was more."""
        if self._first is None or self._last is None:
            self._first = self._last = LogPosition(LogPosition.of(place).file).number
        if self._last < place:
            start, self._last = self._last, place
            # The event that ends at the position commits the transaction, so it is not scanned.
            self._scan_range(start, place - 1)
            return True
        first = LogPosition.of(self._first)
        begin = LogPosition(first.file).number
        if begin == self._first:
            with closing(MySqlConnection(self._settings)) as connection:
                files = [file_number(file) for file in LogStatus(connection).files()]
            earlier = max((file for file in files if file < first.file), default=None)
            if earlier is None:
                return False
            begin = LogPosition(earlier).number
        self._scan_range(begin, self._first)
        self._first = begin
        return True

    def _scan_range(self, start: int, end: int) -> None:
        """Record transactions that are prepared, and neither committed nor rolled back, between two positions."""
        assert self._last is not None
        inner = _Prepared(self._settings, self._base, start, self._rows)
        unpacker = Unpacker()
        for block in dumped(self._settings, self._base, start, self._last):
            count = int(np.searchsorted(block.places, end, side="right"))
            inside = block.between(0, count)
            inner.scan(inside, unpacker)
            for over in xa_ends(inside.memory, inside.events):
                inner.discard(over.transaction, int(inside.places[over.number]))
            if count < len(block.places):
                break
        for name, ranges in inner._logged.items():
            self._logged.setdefault(name, set()).update(ranges)


def _sizes(block: PlacedBlock, chosen: Longs) -> Longs:
    """Return the sizes in bytes of events of a block."""
    offsets = block.events[chosen, START] + _SIZE_OFFSET
    return np.ascontiguousarray(block.memory[offsets[:, None] + np.arange(4)]).view("<u4").ravel().astype(np.int64)


def _body(memory: Bytes, event: Longs) -> bytes:
    body: bytes = memory[event[START] + HEADER_SIZE : event[STOP]].tobytes()
    return body
