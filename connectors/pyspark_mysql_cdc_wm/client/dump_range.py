"""All events between two positions of a binlog, from one dump or several.

A position here is the number of a ``LogPosition``, which orders the positions of all files.
"""

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
    next_file,
)
from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition, file_name, file_number, position_number
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs
from pyspark_mysql_cdc_wm.binlog.xa import begins_xa
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, Block, FilePosition, PayloadPart
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from watermark_source.errors import DataLossError, ResponseTimeoutError, UnreachableError

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.01
_ROTATE = int(EventType.ROTATE)
_WHOLE_BYTES = 8 * 1024 * 1024


class PlacedBlock(NamedTuple):
    """Events, and the position after each; all are valid until the next block is requested."""

    memory: Bytes
    events: Longs
    file: str
    places: Longs
    """The position after each event."""
    part: PayloadPart | None = None
    prepared: bool = False
    """Whether these are the rows of an XA transaction that was prepared earlier and is committed at this position."""

    @property
    def memory_bytes(self) -> int:
        """Bytes from the first event's start to the last one's end."""
        return int(self.events[-1, STOP] - self.events[0, START])

    def without(self, events: int) -> PlacedBlock:
        """Return the block without its first ``events`` events."""
        return self.between(events, len(self.events))

    def between(self, first: int, stop: int) -> PlacedBlock:
        """Return the block with the events from ``first`` to before ``stop``."""
        return self._replace(events=self.events[first:stop], places=self.places[first:stop])


class TransactionStarts:
    """The positions before transactions, at which a range may end, collected while the binlog is read.

    It reads the blocks of a dump in order; the dump began between two transactions.
    """

    __slots__ = ("_after",)

    def __init__(self, start: int) -> None:
        """Begin at the dump's first position."""
        self._after = start

    def of(self, block: PlacedBlock) -> tuple[Longs, Longs]:
        """Return the indices of events of a block that begin a transaction, and the position before each of these."""
        begins = np.flatnonzero(begins_transaction(block.events))
        before = np.concatenate((np.array([self._after], np.int64), block.places[:-1]))
        if len(block.places):
            self._after = int(block.places[-1])
        return begins, before[begins]


def dumped(settings: LoginSettings, base: str, start: int, end: int, *, check: bool = True) -> Iterator[PlacedBlock]:
    """Yield the events between two positions, both between transactions; ``check`` their checksums.

    A server may report a position before dumps send the events up to it, which they do once the file is synchronised.
    A dump that ends early, breaks off or falls silent is therefore followed by another from where it ended, within a
    transaction if necessary. A transaction whose end may undo its rows is in one block unless it is long. With MariaDB
    that is any transaction, with MySQL only an XA transaction.

    Raises:
        DataLossError: the server no longer has the file.
        ResponseTimeoutError: no new event arrived for ``LoginSettings.answer_seconds``.
        SourceError: what ``BinlogDump`` raises.
    """

    def file_position(number: int) -> FilePosition:
        position = LogPosition.of(number)
        return FilePosition(file_name(base, position.file), position.offset)

    return _with_whole_transactions(_repeated_dumps(settings, file_position, range(start, end), base, check=check))


def dumped_without(settings: LoginSettings, base: str, left_out: GtidSet, end: int) -> Iterator[PlacedBlock]:
    """Yield the events of all transactions up to a position, except those of ``left_out``.

    A dump that ends early is repeated, as in ``dumped``: the server ends a killed dump (``KILL QUERY``) like a complete
    one. The position of its last event or heartbeat shows whether it is complete.

    Raises as ``dumped`` does.
    """
    encoded = left_out.encoded()
    return _with_whole_transactions(_repeated_dumps(settings, lambda _: encoded, range(end), base, leaves_out=True))


def _repeated_dumps(
    settings: LoginSettings,
    start: Callable[[int], FilePosition | bytes],
    places: range,
    base: str,
    *,
    check: bool = True,
    leaves_out: bool = False,
) -> Iterator[PlacedBlock]:
    """Yield the events of one dump after another, each event once, until the last position is reached.

    Where the server ``leaves_out`` transactions, a dump is complete once it has passed the last position: no event may
    end just there.
    """
    progress, deadline = _Progress(places.start), time.monotonic() + settings.answer_seconds
    while progress.position < places.stop:
        before = progress.order
        try:
            complete = yield from _one_dump(settings, start(progress.position), places, progress, check=check)
            if complete and leaves_out:
                return
        except (UnreachableError, ResponseTimeoutError) as lost:
            if progress.order == before and time.monotonic() > deadline:
                raise
            _log.info("%s; resuming after %s", lost, LogPosition.of(progress.position))
        else:
            if progress.order == before and time.monotonic() > deadline:
                raise ResponseTimeoutError(
                    f"{settings.where}: the binlog ends at {LogPosition.of(progress.position).shown(base)}, and did "
                    f"not reach {LogPosition.of(places.stop).shown(base)} within {settings.answer_seconds:g} s. Was "
                    "the binlog reset (RESET BINARY LOGS AND GTIDS)?"
                )
        if progress.position >= places.stop:
            return
        if progress.order > before:
            deadline = time.monotonic() + settings.answer_seconds
        time.sleep(_PAUSE_SECONDS)


def _with_whole_transactions(blocks: Iterator[PlacedBlock]) -> Iterator[PlacedBlock]:
    """Yield a transaction whose end may undo its rows in one block, unless it has more than ``_WHOLE_BYTES``.

    MariaDB logs transactions that a ROLLBACK ends, and an XA transaction may end prepared.
    """
    unfinished: PlacedBlock | None = None
    try:
        for received in blocks:
            block = received if unfinished is None else in_own_memory(unfinished, received)
            begins = np.flatnonzero(begins_transaction(block.events))
            if begins.size and not _may_be_undone(block.without(int(begins[-1]))):
                begins = begins[:0]
            last = int(begins[-1]) if begins.size else len(block.events)
            if begins.size and block.events[-1, STOP] - block.events[last, START] > _WHOLE_BYTES:
                last = len(block.events)
            unfinished = in_own_memory(block.without(last)) if last < len(block.events) else None
            if last:
                yield block.between(0, last)
    except DataLossError:
        if unfinished is not None:
            yield unfinished
        raise
    if unfinished is not None:
        yield unfinished


def _may_be_undone(transaction: PlacedBlock) -> bool:
    """Return whether the end of a transaction, given by its first events, may undo its rows."""
    events = transaction.events
    if events[0, TYPE] == EventType.MARIADB_GTID:
        return True
    # The second event shows an XA transaction; until it arrives, assume one.
    return len(events) == 1 or (events[1, TYPE] == EventType.QUERY and begins_xa(transaction.memory, events[1]))


def in_own_memory(*blocks: PlacedBlock) -> PlacedBlock:
    """Return the events of blocks as one block, in memory of its own."""
    contents, tables, size = [], [], 0
    for block in blocks:
        begin, stop = int(block.events[0, START]), int(block.events[-1, STOP])
        moved = block.events.copy()
        moved[:, (START, STOP)] += size - begin
        tables.append(moved)
        contents.append(block.memory[begin:stop])
        size += stop - begin
    memory = np.concatenate((*contents, np.zeros(PADDING, np.uint8)))
    places = np.concatenate([block.places for block in blocks])
    return PlacedBlock(memory, np.concatenate(tables), blocks[-1].file, places)


def _after(block: PlacedBlock, position: int) -> PlacedBlock:
    """Return the events of a block that lie after a position."""
    return block.without(int(np.searchsorted(block.places, position, side="right")))


@dataclass(slots=True)
class _Progress:
    """How far events were yielded. A dump that broke off within a transaction of several blocks begins before it."""

    position: int
    """Where the next dump can begin."""
    events: int = 0
    """Number of events yielded after that position."""

    @property
    def order(self) -> tuple[int, int]:
        """A value that grows with each yielded event."""
        return self.position, self.events

    def unseen(self, block: PlacedBlock) -> Iterator[PlacedBlock]:
        """Yield the events of a block that were not yielded yet, if there are any."""
        if not len(block.places):
            return
        part = block.part
        if part is not None:
            repeated = max(0, self.events - part.before)
            self.events = max(self.events, part.before + len(block.places))
            block = block.without(repeated)
        if len(block.places):
            reached = int(block.places[-1])
            if reached > self.position and (part is None or part.is_last):
                self.position, self.events = reached, 0
            yield block


def _one_dump(
    settings: LoginSettings, start: FilePosition | bytes, wanted: range, progress: _Progress, *, check: bool
) -> Generator[PlacedBlock, None, bool]:
    """Yield the unseen events of a dump up to the last position, and return whether the dump reached it."""
    dump = BinlogDump(settings, start, check=check)
    file = file_number(start.file) if isinstance(start, FilePosition) else 0
    with closing(dump):
        for block in dump.blocks():
            places, file = _places(block, file)
            # Positions only grow, so the events within the range come first.
            inside = int(np.searchsorted(places, wanted.stop, side="right"))
            if inside:
                wanted_block = PlacedBlock(block.memory, block.events[:inside], block.file, places[:inside], block.part)
                # A repeated dump sends events again, and its own FORMAT_DESCRIPTION and ROTATE; they are dropped.
                is_first = progress.position == wanted.start
                yield from progress.unseen(wanted_block if is_first else _after(wanted_block, progress.position))
            continues = block.part is not None and not block.part.is_last
            if inside < len(places) or (inside and places[inside - 1] == wanted.stop and not continues):
                return True
    return False


def _places(block: Block, file: int) -> tuple[Longs, int]:
    """Return the position after each event of a block, and the number of the file after it."""
    places = block.events[:, POSITION].copy()
    done = 0
    for i in np.flatnonzero(block.events[:, TYPE] == _ROTATE).tolist():
        places[done : i + 1] += position_number(file, 0)
        file, done = file_number(next_file(block.memory, block.events[i])), i + 1
    places[done:] += position_number(file, 0)
    return places, file
