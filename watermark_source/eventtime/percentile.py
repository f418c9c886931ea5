"""The percentile strategy: a bound on out-of-orderness that follows the disorder of the rows read last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watermark_source.eventtime.disorder import Counts, bound_of, rows_of, summed

MILLION: Final = 1_000_000
_ENOUGH_BEYOND: Final = 10
"""A share is known well enough once so many rows are expected beyond it."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of a source's disorder: of all its splits together, so a quiet one need not learn by itself."""

    bound: int
    """Milliseconds: the bound in force."""
    recent: Counts = ()
    earlier: Counts = ()
    """Rows before ``recent``: at least half of those that are learned from, once there were so many."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """What the user wished."""

    on_time: int
    """So many rows of a million are to be on time."""
    rows: int
    """Learned from the last so many rows, at least half of them; of a batch with more, from all that it counted."""
    most: int
    """Milliseconds: the bound never exceeds it, and it is the bound until enough is known."""

    @property
    def enough(self) -> int:
        """Return how many rows must have been seen before the bound follows them."""
        return -(-_ENOUGH_BEYOND * MILLION // (MILLION - self.on_time))

    def after(self, learned: Learned | None, seen: Iterable[Counts]) -> Learned:
        """Return what is known after rows, each of which was counted by how far it was behind."""
        recent, earlier = ((), ()) if learned is None else (learned.recent, learned.earlier)
        recent = summed([recent, *seen])
        bound = self._bound(summed([recent, earlier]))
        # Whole halves are forgotten: shrinking each counter a little with each small batch would lose rare rows.
        return Learned(bound, (), recent) if rows_of(recent) * 2 >= self.rows else Learned(bound, recent, earlier)

    def _bound(self, counts: Counts) -> int:
        total = rows_of(counts)
        if total < self.enough:
            return self.most
        beyond, allowed = 0, total * (MILLION - self.on_time) // MILLION
        for bucket, rows in reversed(counts):
            beyond += rows
            if beyond > allowed:
                bound = bound_of(bucket)
                return self.most if bound is None else min(bound, self.most)
        return self.most
