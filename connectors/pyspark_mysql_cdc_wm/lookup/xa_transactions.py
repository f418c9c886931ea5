"""XA transactions: their rows are logged when they are prepared, and count from where they are committed."""

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
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.errors import DataLossError

# Rows of XA transactions that were prepared and may be committed soon: kept, so that the log is not read again.


KEPT_BYTES: Final = 8 * 1024 * 1024
"""Of all that are kept together."""
_OF_ROWS = (
    EventType.QUERY,
    EventType.TABLE_MAP,
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.TRANSACTION_PAYLOAD,
)


class Stretch(NamedTuple):
    """Where a transaction lies in the binlog, whole."""

    start: int
    end: int


class PreparedRows:
    """Of transactions that lie in one block each; the oldest go first when there are too many."""

    def __init__(self) -> None:
        self._kept: dict[Stretch, PlacedBlock] = {}
        self._bytes = 0

    def keep(self, stretch: Stretch, transaction: PlacedBlock) -> None:
        """Keep the rows of a transaction, as far as there is room."""
        found = rows_of(transaction)
        if found is None or stretch in self._kept or found.memory_bytes > KEPT_BYTES:
            return
        own = in_own_memory(found)
        self._kept[stretch] = own
        self._bytes += own.memory_bytes
        while self._bytes > KEPT_BYTES:
            self.take(next(iter(self._kept)))

    def take(self, stretch: Stretch) -> PlacedBlock | None:
        """Return what is kept of a transaction, and keep it no longer."""
        found = self._kept.pop(stretch, None)
        if found is not None:
            self._bytes -= found.memory_bytes
        return found


def rows_of(block: PlacedBlock) -> PlacedBlock | None:
    """Return the events of rows of a block, ``None`` if it has none."""
    kept = np.isin(block.events[:, TYPE], _OF_ROWS)
    if not kept.any():
        return None
    return block._replace(events=np.ascontiguousarray(block.events[kept]), places=block.places[kept])


_log = logging.getLogger(__name__)

_SIZE = 9
"""Where in an event's header its size is."""


def with_prepared(
    blocks: Iterable[PlacedBlock],
    settings: ClientSettings,
    base: str,
    *,
    start: int | None = None,
    fail_on_data_loss: bool = True,
) -> Iterator[PlacedBlock]:
    """Yield blocks and, behind each statement that commits what was prepared before, the rows of that.

    Those may have been logged before the first block: then they are looked for from the beginning of the file on, and
    in the files before. What was prepared is kept as far as there is room (``PreparedRows``), and else read again from
    where it was logged. ``start``: where the blocks begin, if that is known.

    Raises:
        DataLossError: they are in no file any more, and ``fail_on_data_loss`` is set.
        SourceError: what ``dumped`` raises.
    """
    known = _Prepared(settings, base, start)
    for block in blocks:
        known.learn(block)
        done = 0
        for found in xa_ends(block.memory, block.events):
            place = int(block.places[found.number])
            if not found.commits:
                known.forget(found.transaction, place)
                continue
            rows = known.found(found.transaction, place)
            if rows is None:
                lost = (
                    f"{settings.where}: XA COMMIT {found.transaction} at {LogPosition.of(place).shown(base)} commits "
                    "what was prepared in a file of the binlog that was purged: its rows cannot be read"
                )
                if fail_on_data_loss:
                    raise DataLossError(f"{lost}. Begin a new query, or set failOnDataLoss to false to go on without")
                _log.warning("failOnDataLoss is false: %s", lost)
                continue
            yield block.between(done, found.number + 1)
            done = found.number + 1
            for logged in known.rows(rows):
                yield _at(place, logged)
        if done < len(block.events):
            yield block.without(done)


def _at(place: int, rows: PlacedBlock) -> PlacedBlock:
    """Return rows that were logged before as if they were at a place."""
    return rows._replace(places=np.full(len(rows.events), place), part=None, prepared=True)


class _Prepared:
    """Where transactions lie that were prepared, by their names, as far as the binlog was looked through."""

    def __init__(
        self, settings: ClientSettings, base: str, start: int | None, rows: PreparedRows | None = None
    ) -> None:
        self._settings = settings
        self._base = base
        self._found: dict[str, set[Stretch]] = {}
        self._rows = PreparedRows() if rows is None else rows
        self._begun = 0
        """Where the transaction begins that the last event was of."""
        self._first = self._last = start
        """Between these all was looked at, packed transactions too."""

    def take(self, name: str, place: int) -> Stretch | None:
        """Return what was prepared last by a name before a place, which ends it there; as far as it is known."""
        found = self._found.get(name, set())
        last = max((each for each in found if each.end < place), default=None)
        if last is not None:
            found.remove(last)
        return last

    def rows(self, stretch: Stretch) -> Iterator[PlacedBlock]:
        """Yield the rows that were logged in a stretch, which are kept no longer, or else read again."""
        kept = self._rows.take(stretch)
        if kept is not None:
            yield kept
            return
        for block in dumped(self._settings, self._base, stretch.start, stretch.end, check=True):
            if (found := rows_of(block)) is not None:
                yield found

    def forget(self, name: str, place: int) -> None:
        """Take what was prepared by a name before a place as over."""
        over = self.take(name, place)
        if over is not None:
            self._rows.take(over)

    def found(self, name: str, place: int) -> Stretch | None:
        """Return what ``take`` does, and look for it as far as there is a binlog."""
        while (known := self.take(name, place)) is None and self._look_further(place):
            pass
        return known

    def learn(self, block: PlacedBlock, unpacker: Unpacker | None = None) -> None:
        """Take in what is prepared in a block; what is packed there with an ``unpacker`` alone."""
        events, memory = block.events, block.memory
        begins = np.flatnonzero(begins_transaction(events))
        starts = block.places[begins] - _sizes(block, begins)
        at = [(i, _body(memory, events[i])) for i in np.flatnonzero(events[:, TYPE] == EventType.XA_PREPARE).tolist()]
        packed = np.flatnonzero(events[:, TYPE] == EventType.TRANSACTION_PAYLOAD)
        if unpacker is not None and packed.size:
            for unpacked, inside in unpacker.plain(memory, np.ascontiguousarray(events[packed]), block.file):
                for each in inside[inside[:, TYPE] == EventType.XA_PREPARE]:
                    by = packed[np.flatnonzero(events[packed, POSITION] == each[POSITION])[-1]]
                    at.append((int(by), _body(unpacked, each)))
        for i, body in at:
            number = int(np.searchsorted(begins, i, side="right")) - 1
            # Its first byte says whether it is committed at once.
            if not body[0]:
                start = self._begun if number < 0 else int(starts[number])
                stretch = Stretch(start, int(block.places[i]))
                self._found.setdefault(prepared_name(body), set()).add(stretch)
                if number >= 0:
                    self._rows.keep(stretch, block.between(int(begins[number]), i + 1))
        if begins.size:
            self._begun = int(starts[-1])

    def _look_further(self, place: int) -> bool:
        """Look through the binlog up to a place, then file by file before; return whether there was more."""
        if self._first is None or self._last is None:
            self._first = self._last = LogPosition(LogPosition.of(place).file).number
        if self._last < place:
            start, self._last = self._last, place
            # Not at what ends it there.
            self._look_through(start, place - 1)
            return True
        at = LogPosition.of(self._first)
        begin = LogPosition(at.file).number
        if begin == self._first:
            with closing(MySqlConnection(self._settings)) as connection:
                files = [file_number(file) for file in LogStatus(connection).files()]
            earlier = max((file for file in files if file < at.file), default=None)
            if earlier is None:
                return False
            begin = LogPosition(earlier).number
        self._look_through(begin, self._first)
        self._first = begin
        return True

    def _look_through(self, start: int, end: int) -> None:
        """Take in what is prepared between two places, and neither committed nor rolled back there."""
        assert self._last is not None
        looked = _Prepared(self._settings, self._base, start, self._rows)
        unpacker = Unpacker()
        for block in dumped(self._settings, self._base, start, self._last):
            count = int(np.searchsorted(block.places, end, side="right"))
            inside = block.between(0, count)
            looked.learn(inside, unpacker)
            for over in xa_ends(inside.memory, inside.events):
                looked.forget(over.transaction, int(inside.places[over.number]))
            if count < len(block.places):
                break
        for name, stretches in looked._found.items():
            self._found.setdefault(name, set()).update(stretches)


def _sizes(block: PlacedBlock, chosen: Longs) -> Longs:
    """Return how many bytes events of a block have in the binlog."""
    at = block.events[chosen, START] + _SIZE
    return np.ascontiguousarray(block.memory[at[:, None] + np.arange(4)]).view("<u4").ravel().astype(np.int64)


def _body(memory: Bytes, event: Longs) -> bytes:
    body: bytes = memory[event[START] + HEADER_SIZE : event[STOP]].tobytes()
    return body
