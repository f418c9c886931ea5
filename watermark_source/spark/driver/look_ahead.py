"""Reading ahead: on the driver, at plan time, event times only, each of them once."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from watermark_source.arrow_columns import integers
from watermark_source.contract.lineage import ExpectedLogs, of_logs
from watermark_source.contract.stream import RangeReader
from watermark_source.errors import WatermarkSourceError
from watermark_source.planning.backlog import BLIND_STEP
from watermark_source.planning.observation import FirstLook, ObservedLogs
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import Unread
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import MAX, Millis

_log = logging.getLogger(__name__)

# Event times of ranges that the driver reads, all columns left out.


Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventTimesRead:
    """What was read of some ranges, one a split."""

    micros: Mapping[Split, Longs]
    """Event times in microseconds, in position order; no entry without rows. A null holds the highest number there
    is."""
    failed: Mapping[Split, WatermarkSourceError] = field(default_factory=dict)
    """Splits whose range could not be read, and why."""
    left_out: frozenset[Split] = frozenset()
    """Splits that there was no time for."""


def read_event_times(
    reader: RangeReader,
    wanted: Sequence[SplitRange],
    ids: Mapping[str, str],
    *,
    apart: Sequence[Split] = (),
    until: float,
) -> EventTimesRead:
    """Read the event times of ranges. What cannot be read of one split keeps nothing of the others back.

    Args:
        reader: reads several ranges at once, and raises an error of ``watermark_source.errors`` for all of them.
        wanted: one range a split.
        ids: those of the logs that are meant: another log of a name cannot be read.
        apart: splits that are read one by one, in this order, after the others: one of them could not be read before.
        until: by ``time.monotonic()``, after which no split is read by itself.
    """
    reader = of_logs(reader, ExpectedLogs(ids))
    turns = {split: turn for turn, split in enumerate(apart)}
    together = [each for each in wanted if each.split not in turns]
    one_by_one = sorted((each for each in wanted if each.split in turns), key=lambda each: turns[each.split])
    micros: dict[Split, Longs] = {}
    failed: dict[Split, WatermarkSourceError] = {}
    left_out: set[Split] = set()
    try:
        micros |= _read(reader, together)
    except WatermarkSourceError as error:
        if len(together) == 1:
            failed[together[0].split] = error
        else:
            one_by_one = [*together, *one_by_one]
    for each in one_by_one:
        if time.monotonic() >= until:
            left_out.add(each.split)
            continue
        try:
            micros |= _read(reader, [each])
        except WatermarkSourceError as error:
            failed[each.split] = error
    return EventTimesRead(micros, failed, frozenset(left_out))


def _read(reader: RangeReader, wanted: Sequence[SplitRange]) -> dict[Split, Longs]:
    if not wanted:
        return {}
    found: defaultdict[Split, list[Longs]] = defaultdict(list)
    for batch in reader.read(wanted):
        if batch.rows:
            found[batch.split].append(integers(batch.event_time))
    return {split: np.concatenate(parts) for split, parts in found.items()}


# Min index: the lowest event time of each few rows of one split that were looked at.


PIECE_ROWS = 1_024
"""Rows of which only the lowest event time is kept, in 24 bytes, until a batch ends among them."""
_NO_TIMES = np.empty(0, np.int64)
_STARTS, _ENDS, _LOWEST = range(3)
_NO_PIECES = np.empty((3, 0), np.int64)


@dataclass(frozen=True, slots=True)
class MinIndex:
    """Event times in milliseconds, of positions from ``begins`` on."""

    begins: int
    until: int
    """First position that was not looked at."""
    pieces: Longs
    """A column each: its first position, the first position after it, and its lowest event time, ``MAX`` where nothing
    in it counts."""
    reached: int | None = None
    """Highest event time of all that was ever seen."""

    @classmethod
    def at(cls, position: int) -> MinIndex:
        """Return an index in which nothing was looked at."""
        return cls(position, position, _NO_PIECES)

    def remaining(self, position: int, at_least: int) -> MinIndex:
        """Return the index from a position on; an empty one at ``at_least`` if it does not cover that."""
        if not self.begins <= at_least <= self.until:
            return replace(MinIndex.at(at_least), reached=self.reached)
        return replace(self, begins=max(self.begins, position), pieces=self.pieces[:, self._before(position) :])

    def with_rows(self, of: SplitRange, micros: Longs, late_at: Millis | None, future_cap: Millis | None) -> MinIndex:
        """Return the index with a range that follows it, of which these are the rows.

        Which position each row has is not known where some hold none: then it counts as unread for longer, not shorter.
        """
        if not len(micros):
            return replace(self, until=of.end)
        found, counted = _pieces(of, micros, late_at, PIECE_ROWS), _counted(micros, future_cap)
        highest = (self.reached, int(counted.max()) if len(counted) else None)
        reached = max((at for at in highest if at is not None), default=None)
        return MinIndex(self.begins, of.end, np.hstack((self.pieces, found)), reached)

    def blurred(self, position: int) -> tuple[int, int] | None:
        """Return from where to where the rows at a position are known as one piece that begins before it, if so."""
        at = self._before(position)
        if at == self.pieces.shape[1] or not self.pieces[_STARTS, at] < position:
            return None
        return position, int(self.pieces[_ENDS, at])

    def with_each_row(self, of: SplitRange, micros: Longs, late_at: Millis | None) -> MinIndex:
        """Return the index with the rows of ``blurred`` known one by one; ``of`` is that range."""
        at = self._before(of.start)
        before, after = self.pieces[:, : at + 1].copy(), self.pieces[:, at + 1 :]
        before[_ENDS, -1] = of.start
        found = _pieces(of, micros, late_at, 1) if len(micros) else _NO_PIECES
        return replace(self, pieces=np.hstack((before, found, after)))

    def unread(self, position: int) -> Unread:
        """Return the rows ahead that are known at a position."""
        lowest = int(self.pieces[_LOWEST, self._before(position) :].min(initial=MAX))
        return Unread(
            max(self.until, position),
            None if lowest == MAX else Millis(lowest),
            None if self.reached is None else Millis(self.reached),
        )

    def _before(self, position: int) -> int:
        """Return how many pieces end before a position."""
        return int(np.searchsorted(self.pieces[_ENDS], position, side="right"))


def _pieces(of: SplitRange, micros: Longs, late_at: Millis | None, piece_rows: int) -> Longs:
    """Return the pieces of a range with at least one row."""
    rows, times = len(micros), micros // 1_000
    # A null holds the highest number there is.
    dated = micros != MAX
    lowest = np.where(dated if late_at is None else dated & (times > late_at), times, MAX)
    first = np.arange(0, rows, piece_rows)
    ends = of.end - rows + np.append(first[1:], rows)
    return np.stack((np.append(of.start, ends[:-1]), ends, np.minimum.reduceat(lowest, first)))


def _counted(micros: Longs, future_cap: Millis | None) -> Longs:
    """Return the event times in milliseconds that may move a watermark."""
    times: Longs = micros[micros != MAX] // 1_000
    return times if future_cap is None else times[times <= future_cap]


_LONGEST = 1.0
"""Seconds after which a plan continues without the rest."""
_ONE_LOOK = 0.2
"""Seconds that one look should take, after which the time is checked: how many rows that are is learned."""
_AT_FIRST, _MOST = 50_000, 2_000_000
"""Positions of all splits together in one look."""
_LEAST = 1_000
"""Positions of one split in a look, at least."""


class ReadingAhead:
    """Implements ``RowsAhead``. Its indexes are in memory alone: the offset holds what was decided from them."""

    def __init__(self, reader: RangeReader, *, rows: int) -> None:
        """Look at so many rows behind each planned range."""
        self.ids: Mapping[str, str] = {}
        """The ids of the logs that are planned."""
        self._reader = reader
        self._rows = rows
        self._at_a_time = _AT_FIRST
        self._indexes: dict[Split, MinIndex] = {}
        self._failing: set[Split] = set()
        """Splits that could not be read when they were looked at last: they are read apart from the others."""
        self._suspects: set[Split] = set()
        """Splits of which one could not be read: there was no time to find out which."""

    def unread(
        self,
        planned: Mapping[Split, SplitRange],
        ends: Mapping[Split, int],
        *,
        late_at: Millis | None,
        future_cap: Millis | None,
    ) -> Mapping[Split, Unread]:
        """See ``RowsAhead``."""
        targets: dict[Split, int] = {}
        for split, batch in planned.items():
            targets[split] = min(batch.end + self._rows, ends[split])
            # Near the log's end also what the batch itself reads: nothing else shows how far it advances.
            begin = max(batch.start, targets[split] - self._rows)
            self._indexes[split] = self._indexes.get(split, MinIndex.at(begin)).remaining(batch.start, begin)
        until = time.monotonic() + _LONGEST
        hidden: set[Split] = set()
        while wanted := self._next(planned, {s: t for s, t in targets.items() if s not in hidden}):
            hidden |= self._look_at(wanted, late_at, future_cap, until)
            if time.monotonic() >= until:
                break
        hidden |= self._sharpen(planned, hidden, late_at, until)
        hidden |= (self._failing | self._suspects) & planned.keys()
        found = {split: self._indexes[split].unread(batch.end) for split, batch in planned.items()}
        return {s: each._replace(is_readable=s not in hidden) for s, each in found.items()}

    def forget(self, splits: Set[Split]) -> None:
        """See ``RowsAhead``."""
        self._indexes = {split: index for split, index in self._indexes.items() if split not in splits}

    def _next(self, planned: Mapping[Split, SplitRange], targets: Mapping[Split, int]) -> list[SplitRange]:
        short = [s for s, target in targets.items() if self._indexes[s].until < target]
        size = max(_LEAST, self._at_a_time // len(short)) if short else _LEAST
        # Very many splits are read in turns, so that the time limit is checked between them.
        now: list[SplitRange] = []
        room = self._at_a_time
        for split in short:
            begin = self._indexes[split].until
            now.append(SplitRange(split, begin, min(begin + size, max(targets[split], planned[split].end))))
            room -= now[-1].size
            if room <= 0:
                break
        return now

    def _look_at(
        self, wanted: list[SplitRange], late_at: Millis | None, future_cap: Millis | None, until: float
    ) -> set[Split]:
        """Look at ranges; return the splits that could not be read."""
        begun = time.monotonic()
        found = self._read(wanted, until)
        read = [each for each in wanted if each.split not in found.failed and each.split not in found.left_out]
        if len(read) == len(wanted):
            took = time.monotonic() - begun
            self._at_a_time = _learned(self._at_a_time, sum(each.size for each in wanted), took)
        for each in read:
            micros = found.micros.get(each.split, _NO_TIMES)
            self._indexes[each.split] = self._indexes[each.split].with_rows(each, micros, late_at, future_cap)
        return {*found.failed, *found.left_out}

    def _sharpen(
        self, planned: Mapping[Split, SplitRange], hidden: set[Split], late_at: Millis | None, until: float
    ) -> set[Split]:
        """Know the rows that follow each batch's end one by one, so that what the batch reads itself holds nothing up.

        Returns the splits that could not be read. Where there is no time for it a row that is read counts as unread for
        longer, not shorter.
        """
        blurred = [
            SplitRange(split, *piece)
            for split, batch in planned.items()
            if split not in hidden and (piece := self._indexes[split].blurred(batch.end)) is not None
        ]
        if not blurred or time.monotonic() >= until:
            return set()
        found = self._read(blurred, until)
        for each in blurred:
            if each.split not in found.failed and each.split not in found.left_out:
                micros = found.micros.get(each.split, _NO_TIMES)
                self._indexes[each.split] = self._indexes[each.split].with_each_row(each, micros, late_at)
        return set(found.failed)

    def _read(self, wanted: list[SplitRange], until: float) -> EventTimesRead:
        apart = [*sorted(self._suspects - self._failing), *sorted(self._failing)]
        found = read_event_times(self._reader, wanted, self.ids, apart=apart, until=until)
        for split, error in found.failed.items():
            if split not in self._failing:
                _log.warning(
                    "%s: the rows behind the batch cannot be read, and %s holds the watermark until they can, or are "
                    "part of a batch: %s", split, split, error,
                )  # fmt: skip
        answered = {each.split for each in wanted} - found.left_out
        self._failing = (self._failing - answered) | found.failed.keys()
        self._suspects = (self._suspects - answered) | found.left_out
        return found


def _learned(at_a_time: int, looked_at: int, took: float) -> int:
    """Return how many positions to look at next, after so many took so many seconds: four times as many at most.

    Fewer only where a plan has no time for it: a look at little may take long for other reasons than its rows.
    """
    if _ONE_LOOK < took <= _LONGEST:
        return at_a_time
    in_time = _MOST if took * _MOST <= looked_at * _ONE_LOOK else round(looked_at * _ONE_LOOK / took)
    return max(min(in_time, 4 * at_a_time), at_a_time if took <= _ONE_LOOK else _LEAST)


# A first look: how fast event time advances in splits of which no row has been planned.


_ROWS = 100
"""Positions read at the beginning of a split's backlog, and again ``_FURTHER`` behind it."""
_FURTHER = 100_000
"""Positions between the two: about what a batch reads of a split."""
_LONGEST_FIRST_LOOK = 5.0
"""Seconds after which splits that have to be read one by one are left out."""
_SPLITS = 64
"""The most splits that are looked at: of more, a step each makes a large batch, and looking takes as long."""


class FirstLooks:
    """Each split is looked at once in a process: the offset holds what was decided from it."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._looks: dict[Split, FirstLook | None] = {}

    def of(self, state: SourceState, logs: ObservedLogs, future_cap: Millis | None) -> Mapping[Split, FirstLook]:
        """Return what was seen of the splits that have a long backlog, and of which no range was reported."""
        positions = {s: t.position for s, t in state.splits.items() if t.step is None} | dict(logs.added)
        behind = {s: p for s, p in positions.items() if s in logs.ends and logs.ends[s] - p > BLIND_STEP}
        new = {s: p for s, p in behind.items() if s not in self._looks}
        if new and len(new) <= _SPLITS:
            self._looks |= {**dict.fromkeys(new), **self._seen(new, logs, future_cap)}
        return {s: look for s in behind if (look := self._looks.get(s)) is not None}

    def _seen(
        self, begins: Mapping[Split, int], logs: ObservedLogs, future_cap: Millis | None
    ) -> dict[Split, FirstLook]:
        further = {s: min(p + _FURTHER, logs.ends[s] - _ROWS) for s, p in begins.items()}
        here = self._times_at(begins, logs.ids, future_cap)
        there = self._times_at({s: p for s, p in further.items() if s in here}, logs.ids, future_cap)
        return {
            s: FirstLook(Millis(int(here[s][0])), further[s] - begins[s], int(there[s].max() - here[s][0]))
            for s in here.keys() & there.keys()
        }

    def _times_at(
        self, positions: Mapping[Split, int], ids: Mapping[str, str], future_cap: Millis | None
    ) -> dict[Split, Longs]:
        """Return event times in milliseconds that count, of the splits that have some there."""
        ranges = [SplitRange(s, p, p + _ROWS) for s, p in sorted(positions.items())]
        found = read_event_times(self._reader, ranges, ids, until=time.monotonic() + _LONGEST_FIRST_LOOK)
        for split, error in found.failed.items():
            # The batch that reads it reports that.
            _log.warning("%s cannot be looked at before its first batch: %s", split, error)
        counted = {s: _counted(micros, future_cap) for s, micros in found.micros.items()}
        return {s: millis for s, millis in counted.items() if len(millis)}
