"""Late rows: how many there were, and how far behind the watermark that their batch began with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Final

_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 21_600, 86_400)
BOUNDS_MS: Final = tuple(1_000 * seconds for seconds in _SECONDS)
"""Upper bounds of the histogram, inclusive; one more bucket has all that is beyond."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Of a range, a split or a source; the sum of two is that of both."""

    histogram: tuple[int, ...] = ()
    """Rows in each bucket, as ``BOUNDS_MS`` has them; empty if there are none."""
    longest: int = 0
    """How far the last of them was behind, in milliseconds."""
    total: int = 0
    """How far all of them together were behind, in milliseconds."""

    @property
    def rows(self) -> int:
        """Return how many there were."""
        return sum(self.histogram)

    @property
    def up_to(self) -> tuple[int, ...]:
        """Return how many were behind by at most each of ``BOUNDS_MS``, and at last how many there were."""
        return tuple(accumulate(self.histogram or (0,) * (len(BOUNDS_MS) + 1)))

    def behind_at_most(self, share: float) -> int:
        """Return by how many milliseconds this share of the rows was behind at most: a bound of the histogram."""
        wanted = share * self.rows
        within = (bound for bound, rows in zip(BOUNDS_MS, self.up_to, strict=False) if rows >= wanted)
        return min(next(within, self.longest), self.longest)

    def __add__(self, other: LateRows) -> LateRows:
        summed = tuple(a + b for a, b in zip_longest(self.histogram, other.histogram, fillvalue=0))
        return LateRows(summed, max(self.longest, other.longest), self.total + other.total)


NONE_LATE: Final = LateRows()
