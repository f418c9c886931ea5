"""Reading ahead: on the driver, at plan time, event times only, each of them once."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import numpy as np

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.look_ahead import Unread
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.driver.event_time_reads import EventTimesRead, read_event_times
from watermark_source.spark.driver.min_max_index import MinMaxIndex

_log = logging.getLogger(__name__)
_LONGEST = 1.0
"""Seconds after which a plan goes on with what is known."""
_ONE_LOOK = 0.2
"""Seconds that reading ahead should take before the clock is looked at: how many rows that are is learned."""
_AT_FIRST, _MOST = 50_000, 2_000_000
"""Positions of all splits together in one look."""
_LEAST = 1_000
"""Positions of one split, if there are very many."""
_STEP = 10_000
"""Positions of one split where it is looked at as far as event time goes, which may be less far."""


class ReadingAhead:
    """``LookAhead`` of planning. What it knows it keeps in memory: the offset holds what was decided."""

    def __init__(self, reader: RangeReader, *, rows: int, span: int | None) -> None:
        """Look at so many rows behind each planned range, or as far as event time goes on by ``span`` ms."""
        self._reader = reader
        self._rows = rows
        self._span = span
        self._at_a_time = _AT_FIRST
        self._indexes: dict[Split, MinMaxIndex] = {}
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
        """See ``LookAhead``."""
        targets: dict[Split, int] = {}
        for split, batch in planned.items():
            targets[split] = min(batch.end + self._rows, ends[split])
            # Near the log's end also what the batch itself reads: nothing else tells how far it leads.
            begin = max(batch.start, targets[split] - self._rows)
            self._indexes[split] = self._indexes.get(split, MinMaxIndex.at(begin)).going_on(batch.start, begin)
        until = time.monotonic() + _LONGEST
        hidden: set[Split] = set()
        while wanted := self._next(planned, {s: t for s, t in targets.items() if s not in hidden}):
            hidden |= self._look_at(wanted, late_at, future_cap, until)
            if time.monotonic() >= until:
                break
        hidden |= self._sharpen(planned, hidden, late_at, future_cap, until)
        hidden |= (self._failing | self._suspects) & planned.keys()
        found = {split: self._indexes[split].unread(batch.end) for split, batch in planned.items()}
        return {s: each._replace(is_readable=s not in hidden) for s, each in found.items()}

    def _next(self, planned: Mapping[Split, SplitRange], targets: Mapping[Split, int]) -> list[SplitRange]:
        short = [
            s
            for s, target in targets.items()
            if self._indexes[s].until < target
            and (self._span is None or self._indexes[s].spans(planned[s].end) < self._span)
        ]
        size = max(_LEAST, self._at_a_time // len(short)) if short else _LEAST
        if self._span is not None:
            size = min(size, _STEP)
        # Of very many some now and the others with the next look: the clock is looked at in between.
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
            micros = found.micros.get(each.split, _EMPTY)
            self._indexes[each.split] = self._indexes[each.split].with_rows(each, micros, late_at, future_cap)
        return {*found.failed, *found.left_out}

    def _sharpen(
        self,
        planned: Mapping[Split, SplitRange],
        hidden: set[Split],
        late_at: Millis | None,
        future_cap: Millis | None,
        until: float,
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
                micros = found.micros.get(each.split, _EMPTY)
                self._indexes[each.split] = self._indexes[each.split].with_each_row(each, micros, late_at, future_cap)
        return set(found.failed)

    def _read(self, wanted: list[SplitRange], until: float) -> EventTimesRead:
        apart = [*sorted(self._suspects - self._failing), *sorted(self._failing)]
        found = read_event_times(self._reader, wanted, apart=apart, until=until)
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


_EMPTY = np.empty(0, np.int64)
