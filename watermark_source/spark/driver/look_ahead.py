"""Reading ahead: on the driver, at plan time, event times only, each of them once."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import numpy as np

from watermark_source.errors import WatermarkSourceError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.look_ahead import Unread
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.driver.event_times import event_times_of
from watermark_source.spark.driver.min_max_index import MinMaxIndex

_log = logging.getLogger(__name__)
_AT_A_TIME = 2_000_000
"""Positions of all splits together that are looked at before the clock is looked at."""
_LEAST = 10_000
"""Of one split, if there are very many."""
_LONGEST = 1.0
"""Seconds after which a plan goes on with what is known."""


class ReadingAhead:
    """``LookAhead`` of planning. What it knows it keeps in memory: the offset holds what was decided."""

    def __init__(self, reader: RangeReader, *, rows: int, span: int | None) -> None:
        """Look at so many rows behind each planned range, or as far as event time goes on by ``span`` ms."""
        self._reader = reader
        self._rows = rows
        self._span = span
        self._indexes: dict[Split, MinMaxIndex] = {}

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
        while wanted := self._next(planned, targets):
            if not self._look_at(wanted, late_at, future_cap) or time.monotonic() >= until:
                break
        return {split: self._indexes[split].unread(batch.end) for split, batch in planned.items()}

    def _next(self, planned: Mapping[Split, SplitRange], targets: Mapping[Split, int]) -> list[SplitRange]:
        short = [
            s
            for s, target in targets.items()
            if self._indexes[s].until < target
            and (self._span is None or self._indexes[s].spans(planned[s].end) < self._span)
        ]
        size = max(_LEAST, _AT_A_TIME // len(short)) if short else 0
        if self._span is not None:
            size = _LEAST
        # Of very many some now and the others with the next look: the clock is looked at in between.
        now = short[: max(1, _AT_A_TIME // max(1, size))]
        return [
            SplitRange(s, (at := self._indexes[s].until), min(at + size, max(targets[s], planned[s].end))) for s in now
        ]

    def _look_at(self, wanted: list[SplitRange], late_at: Millis | None, future_cap: Millis | None) -> bool:
        try:
            found = event_times_of(self._reader, wanted)
        except WatermarkSourceError as error:
            # The batch that comes there says so. Until then the watermark goes by what is known.
            _log.warning("nothing can be looked at ahead of the batch for the moment: %s", error)
            return False
        for each in wanted:
            micros = found.get(each.split, _EMPTY)
            self._indexes[each.split] = self._indexes[each.split].with_rows(each, micros, late_at, future_cap)
        return True


_EMPTY = np.empty(0, np.int64)
