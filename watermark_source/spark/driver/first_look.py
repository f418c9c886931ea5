"""A first look: how fast event time goes in splits that nothing is known of, before a row of them is planned."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic

from watermark_source.eventtime.watermark import MAX, Millis
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.step_sizes import BLIND_STEP, FirstLook
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.driver.event_time_reads import Longs, read_event_times

_log = logging.getLogger(__name__)

_ROWS = 100
"""That are looked at, at the beginning of a split and further on."""
_FURTHER = 100_000
"""How many positions further: about what a batch reads of a split."""
_LONGEST = 5.0
"""Seconds after which splits that have to be read one by one are left out."""
_SPLITS = 64
"""At most: of more a step each is no small batch, and looking takes as long."""


class FirstLooks:
    """Each split is looked at once in a process: the offset holds what was decided from it."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._looks: dict[Split, FirstLook | None] = {}

    def of(
        self, state: SourceState, added: Mapping[Split, int], ends: Mapping[Split, int], future_cap: Millis | None
    ) -> Mapping[Split, FirstLook]:
        """Return what was seen of the splits that have a long backlog, and of which no range told anything."""
        positions = {s: t.position for s, t in state.splits.items() if t.step is None} | dict(added)
        behind = {s: p for s, p in positions.items() if s in ends and ends[s] - p > BLIND_STEP}
        new = {s: p for s, p in behind.items() if s not in self._looks}
        if len(new) <= _SPLITS:
            self._looks |= {**dict.fromkeys(new), **self._seen(new, ends, future_cap)}
        return {s: look for s in behind if (look := self._looks.get(s)) is not None}

    def _seen(
        self, begins: Mapping[Split, int], ends: Mapping[Split, int], future_cap: Millis | None
    ) -> dict[Split, FirstLook]:
        if not begins:
            return {}
        further = {s: min(p + _FURTHER, ends[s] - _ROWS) for s, p in begins.items()}
        here = self._times_at(begins, future_cap)
        there = self._times_at({s: p for s, p in further.items() if s in here}, future_cap)
        return {
            s: FirstLook(Millis(int(here[s][0])), further[s] - begins[s], int(there[s].max() - here[s][0]))
            for s in here.keys() & there.keys()
        }

    def _times_at(self, positions: Mapping[Split, int], future_cap: Millis | None) -> dict[Split, Longs]:
        """Return event times in milliseconds that count, of the splits that have some there."""
        ranges = [SplitRange(s, p, p + _ROWS) for s, p in sorted(positions.items())]
        found = read_event_times(self._reader, ranges, until=monotonic() + _LONGEST)
        for split, error in found.failed.items():
            # The batch that comes there says so.
            _log.warning("%s cannot be looked at before its first batch: %s", split, error)
        latest = MAX if future_cap is None else future_cap
        times = {s: micros[micros != MAX] // 1_000 for s, micros in found.micros.items()}
        counted = {s: millis[millis <= latest] for s, millis in times.items()}
        return {s: millis for s, millis in counted.items() if len(millis)}
