"""How far events come behind later ones: what a bound on out-of-orderness would make late."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_EXACT = 128
"""Milliseconds below this are counted one by one."""
_PARTS = 64
"""Buckets for each doubling above: a bucket is at most 1/64 of its beginning wide."""
_DOUBLINGS = 63 - 7
_BUCKETS = _EXACT + _DOUBLINGS * _PARTS


@dataclass(slots=True)
class Disorder:
    """Of one split, row by row: how far each event time is behind the highest one before it.

    Quantiles are those of a histogram with buckets of at most 1.6 % of their beginning, so of any number of rows.
    """

    rows: int = 0
    highest: int | None = None
    """Event time, milliseconds."""
    lowest: int | None = None
    longest: int = 0
    """Milliseconds."""
    _counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))

    def add(self, millis: npt.NDArray[np.int64]) -> None:
        """Take in the event times of the rows that come next, in milliseconds."""
        if not len(millis):
            return
        before = np.maximum.accumulate(millis)
        if self.highest is not None:
            np.maximum(before, self.highest, out=before)
        behind = before - millis
        self._counts += np.bincount(_bucket_of(behind), minlength=_BUCKETS)
        self.rows += len(millis)
        self.highest = int(before[-1])
        first = int(millis.min())
        self.lowest = first if self.lowest is None else min(self.lowest, first)
        self.longest = max(self.longest, int(behind.max()))

    def late_with(self, bound: int) -> float:
        """Return the share of rows that are late with a bound in milliseconds, if the watermark follows each row."""
        return 0.0 if not self.rows else self._beyond(bound) / self.rows

    def bound_for(self, late: float) -> int:
        """Return the bound in milliseconds with which at most this share of the rows is late; 0 is none."""
        if late <= 0 or not self.rows:
            return self.longest
        allowed = math.floor(late * self.rows)
        # Those beyond each bucket.
        beyond = self.rows - np.cumsum(self._counts)
        return min(_end_of(int(np.argmax(beyond <= allowed))), self.longest)

    def shares(self, edges: list[int]) -> list[float]:
        """Return the share of rows behind by more than each of these milliseconds and not more than the next."""
        beyond = [self._beyond(edge) for edge in edges] + [0]
        return [(here - there) / max(self.rows, 1) for here, there in pairwise(beyond)]

    def _beyond(self, bound: int) -> int:
        return 0 if bound >= self.longest else int(self._counts[int(_bucket_of(np.array([bound]))[0]) + 1 :].sum())


def _bucket_of(behind: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    large = behind >= _EXACT
    if not large.any():
        return behind
    found = behind.copy()
    above = behind[large]
    # Of a number of 53 bits this is exact; beyond, a bucket is wider than the error.
    _, exponents = np.frexp(above.astype(np.float64))
    doublings = exponents.astype(np.int64) - 8
    found[large] = _EXACT + doublings * _PARTS + (above >> (doublings + 1)) - _PARTS
    return found


def _end_of(bucket: int) -> int:
    """Return the last number of a bucket."""
    if bucket < _EXACT:
        return bucket
    doublings, part = divmod(bucket - _EXACT, _PARTS)
    return ((part + _PARTS + 1) << (doublings + 1)) - 1
