"""Counting disorder in a task: how far rows of a range are behind the highest event time before them, in columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from watermark_source.eventtime.disorder import BUCKETS, SEGMENT, DisorderSegment
from watermark_source.eventtime.watermark import Millis
from watermark_source.spark.exchange.read_tasks import Beginning

_Longs = npt.NDArray[np.int64]
_HALF: Final = SEGMENT // 2
# A double shows exponent and mantissa: of 2^9 and more, shifted so far, buckets with four to a doubling.
_SHIFT: Final = 50
_BELOW_FIRST: Final = ((1023 + 9) << 2) - 1


class DisorderCount:
    """Of one split, whose rows come in position order."""

    def __init__(self, start: int, beginning: Beginning | None) -> None:
        """Begin where the first of a task's ranges does.

        ``beginning``: what lies before it, if that is known: so of the range itself, not of a part of it.
        """
        self._start = start
        self._segments: list[DisorderSegment] = []
        self._half = -1
        self._highest: int | None = None
        self._before: int | None = None
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts_all = beginning is not None
        if beginning is not None:
            self._half = 0
            self._highest = self._before = None if beginning.highest is None else beginning.highest * 1_000

    def add(self, micros: _Longs, positions: _Longs) -> None:
        """Take in the event times of the rows that come next, in microseconds, and where they are."""
        first, last = (int(at - self._start) // _HALF for at in (positions[0], positions[-1]))
        if first == last:
            self._add(micros, first)
            return
        halves = (positions - self._start) // _HALF
        edges = np.flatnonzero(np.diff(halves)) + 1
        for at, part in zip([0, *edges.tolist()], np.split(micros, edges), strict=True):
            self._add(part, int(halves[at]))

    def segments(self) -> tuple[DisorderSegment, ...]:
        """Return all segments that rows were in."""
        return (*self._segments, self._segment()) if self._half >= 0 else ()

    def _add(self, micros: _Longs, half: int) -> None:
        if half // 2 != self._half // 2:
            self._begin_anew()
        if half != self._half and not self._counts_all:
            self._before = self._highest
        self._half = half
        if half % 2 or self._counts_all:
            self._count(micros)
        else:
            highest = int(micros.max())
            self._highest = highest if self._highest is None else max(highest, self._highest)

    def _begin_anew(self) -> None:
        if self._half >= 0:
            self._segments.append(self._segment())
        self._highest = self._before = None
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts_all = False

    def _count(self, micros: _Longs) -> None:
        highest = np.maximum.accumulate(micros)
        if self._highest is not None and self._highest > micros[0]:
            np.maximum(highest, self._highest, out=highest)
        behind = highest - micros
        buckets = (behind.astype(np.float64).view(np.int64) >> _SHIFT) - _BELOW_FIRST
        np.clip(buckets, 0, BUCKETS - 1, out=buckets)
        self._counts += np.bincount(buckets, minlength=BUCKETS)
        self._highest = int(highest[-1])

    def _segment(self) -> DisorderSegment:
        (found,) = self._counts.nonzero()
        counts = tuple(zip(found.tolist(), self._counts[found].tolist(), strict=True))
        return DisorderSegment(_millis(self._before), _millis(self._highest), counts)


def _millis(micros: int | None) -> Millis | None:
    return None if micros is None else Millis(micros // 1_000)
