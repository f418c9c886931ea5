"""All events between two places of a binlog, from one dump or several: a server may show its end a little late."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    POSITION,
    START,
    STOP,
    TYPE,
    EventType,
    begins_transaction,
    begins_xa,
    next_file,
)
from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_name, file_number, position_number
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, Block, FilePosition, PayloadPart
from pyspark_mysql_cdc_wm.client.login_settings import ANSWER_SECONDS, ClientSettings
from watermark_source.errors import DataLossError, ResponseTimeoutError, UnreachableError

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.01
_ROTATE = int(EventType.ROTATE)
_WHOLE_BYTES = 8 * 1024 * 1024


class PlacedBlock(NamedTuple):
    """Events, and the place after each as a number; all valid until the next block is asked for."""

    memory: Bytes
    events: Longs
    file: str
    places: Longs
    part: PayloadPart | None = None
    prepared: bool = False
    """Whether these are the rows of a transaction that was prepared before (XA), now that it is committed."""

    @property
    def memory_bytes(self) -> int:
        """How many bytes its events take, and what lies between them."""
        return int(self.events[-1, STOP] - self.events[0, START])

    def without(self, events: int) -> PlacedBlock:
        """Return the block without its first events."""
        return self.between(events, len(self.events))

    def between(self, first: int, stop: int) -> PlacedBlock:
        """Return the block with some of its events alone."""
        return self._replace(events=self.events[first:stop], places=self.places[first:stop])


def dumped(settings: ClientSettings, base: str, start: int, end: int, *, check: bool = True) -> Iterator[PlacedBlock]:
    """Yield the events between two places, both between transactions; ``check`` their checksums.

    A position may be reported before a dump may send what lies before it (that is when the file is synchronised), so
    a dump that ends early is begun anew where it ended, within a transaction if need be; so is one that breaks off or
    falls silent. No transaction that its end may undo is in several blocks, if it is not long: of MariaDB any, of MySQL
    those of XA.

    Raises:
        DataLossError: the server no longer has the file.
        ResponseTimeoutError: nothing new for ``ANSWER_SECONDS``.
        SourceError: what ``BinlogDump`` raises.
    """

    def from_place(at: int) -> FilePosition:
        place = LogPosition.of(at)
        return FilePosition(file_name(base, place.file), place.offset)

    return _with_whole_transactions(_begun_again(settings, from_place, range(start, end), base, check=check))


def dumped_without(settings: ClientSettings, base: str, left_out: GtidSet, end: int) -> Iterator[PlacedBlock]:
    """Yield the events of all transactions up to a place but some, which the server leaves out.

    A dump that ends early is begun anew, as by ``dumped``: a server ends one that somebody has killed (``KILL QUERY``)
    like one that is complete. That it is, its last event or heartbeat says.

    Raises as ``dumped`` does.
    """
    encoded = left_out.encoded()
    return _with_whole_transactions(_begun_again(settings, lambda _: encoded, range(end), base, leaves_out=True))


def _begun_again(
    settings: ClientSettings,
    start: Callable[[int], FilePosition | bytes],
    places: range,
    base: str,
    *,
    check: bool = True,
    leaves_out: bool = False,
) -> Iterator[PlacedBlock]:
    """Yield the events of dumps, one after another, each once.

    A dump that breaks off, falls silent or ends early is followed by another. Where the server ``leaves_out`` some
    events, one may be complete that has none just before the last place.
    """
    done, late = _Yielded(places.start), time.monotonic() + ANSWER_SECONDS
    while done.at < places.stop:
        before = done.place
        try:
            passed = yield from _once(settings, start(done.at), places, done, check=check)
            if passed and leaves_out:
                return
        except (UnreachableError, ResponseTimeoutError) as lost:
            if done.place == before and time.monotonic() > late:
                raise
            _log.info("%s; going on after %s", lost, LogPosition.of(done.at))
        else:
            if done.place == before and time.monotonic() > late:
                raise ResponseTimeoutError(
                    f"{settings.where}: the binlog ends at {LogPosition.of(done.at).shown(base)}, and should go on to "
                    f"{LogPosition.of(places.stop).shown(base)}; it did not within {ANSWER_SECONDS:g} s. Was the "
                    "binlog reset (RESET BINARY LOGS AND GTIDS)?"
                )
        if done.at >= places.stop:
            return
        if done.place > before:
            late = time.monotonic() + ANSWER_SECONDS
        time.sleep(_PAUSE_SECONDS)


def _with_whole_transactions(blocks: Iterator[PlacedBlock]) -> Iterator[PlacedBlock]:
    """Yield transactions whole whose rows count only once their end is known, if they are not too long.

    MariaDB logs some, and rolls them back at their end; those of XA may be prepared there.
    """
    held: PlacedBlock | None = None
    try:
        for each in blocks:
            block = each if held is None else in_own_memory(held, each)
            begins = np.flatnonzero(begins_transaction(block.events))
            if begins.size and not _may_be_undone(block.without(int(begins[-1]))):
                begins = begins[:0]
            last = int(begins[-1]) if begins.size else len(block.events)
            if begins.size and block.events[-1, STOP] - block.events[last, START] > _WHOLE_BYTES:
                last = len(block.events)
            held = in_own_memory(block.without(last)) if last < len(block.events) else None
            if last:
                yield block.between(0, last)
    except DataLossError:
        if held is not None:
            yield held
        raise
    if held is not None:
        yield held


def _may_be_undone(transaction: PlacedBlock) -> bool:
    """Return whether the end of a transaction, of which events from the first on are given, may undo what it says."""
    events = transaction.events
    if events[0, TYPE] == EventType.MARIADB_GTID:
        return True
    # Of one whose second event is still to come nobody knows.
    return len(events) == 1 or (events[1, TYPE] == EventType.QUERY and begins_xa(transaction.memory, events[1]))


def in_own_memory(*blocks: PlacedBlock) -> PlacedBlock:
    """Return blocks as one, in memory of its own."""
    contents, tables, size = [], [], 0
    for each in blocks:
        begin, stop = int(each.events[0, START]), int(each.events[-1, STOP])
        moved = each.events.copy()
        moved[:, (START, STOP)] += size - begin
        tables.append(moved)
        contents.append(each.memory[begin:stop])
        size += stop - begin
    memory = np.concatenate((*contents, np.zeros(PADDING, np.uint8)))
    places = np.concatenate([each.places for each in blocks])
    return PlacedBlock(memory, np.concatenate(tables), blocks[-1].file, places)


def _after(block: PlacedBlock, at: int) -> PlacedBlock:
    """Return what of a block lies after a place."""
    return block.without(int(np.searchsorted(block.places, at, side="right")))


@dataclass(slots=True)
class _Yielded:
    """How far events were yielded. A dump that broke off within a transaction of several blocks begins before it."""

    at: int
    """Where the next dump can begin."""
    inside: int = 0
    """Events behind there."""

    @property
    def place(self) -> tuple[int, int]:
        """Grows with all that is yielded."""
        return self.at, self.inside

    def new(self, block: PlacedBlock) -> Iterator[PlacedBlock]:
        """Yield what of a block was not yielded yet, if anything."""
        if not len(block.places):
            return
        part = block.part
        if part is not None:
            seen = max(0, self.inside - part.before)
            self.inside = max(self.inside, part.before + len(block.places))
            block = block.without(seen)
        if len(block.places):
            reached = int(block.places[-1])
            if reached > self.at and (part is None or part.is_last):
                self.at, self.inside = reached, 0
            yield block


def _once(
    settings: ClientSettings, start: FilePosition | bytes, wanted: range, done: _Yielded, *, check: bool
) -> Generator[PlacedBlock, None, bool]:
    """Yield what is new of a dump up to the last place, and return whether it came there."""
    dump = BinlogDump(settings, start, check=check)
    file = file_number(start.file) if isinstance(start, FilePosition) else 0
    with closing(dump):
        for block in dump.blocks():
            places, file = _places(block, file)
            # Places only grow, so those within are the first.
            inside = int(np.searchsorted(places, wanted.stop, side="right"))
            if inside:
                found = PlacedBlock(block.memory, block.events[:inside], block.file, places[:inside], block.part)
                # Of what is sent again, a dump's own events included, nothing is given twice.
                yield from done.new(found if done.at == wanted.start else _after(found, done.at))
            goes_on = block.part is not None and not block.part.is_last
            if inside < len(places) or (inside and places[inside - 1] == wanted.stop and not goes_on):
                return True
    return False


def _places(block: Block, file: int) -> tuple[Longs, int]:
    """Return the place after each event of a block, and the file after it."""
    places = block.events[:, POSITION].copy()
    done = 0
    for i in np.flatnonzero(block.events[:, TYPE] == _ROTATE).tolist():
        places[done : i + 1] += position_number(file, 0)
        file, done = file_number(next_file(block.memory, block.events[i])), i + 1
    places[done:] += position_number(file, 0)
    return places, file
