"""Min-max index: lowest and highest event time of each few rows of one split that were looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from watermark_source.eventtime.watermark import MAX, Millis
from watermark_source.planning.look_ahead import Unread
from watermark_source.planning.split import SplitRange
from watermark_source.spark.driver.event_time_reads import Longs

PIECE_ROWS = 1_024
"""Rows of which only the lowest and the highest event time are kept: 24 bytes."""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class MinMaxIndex:
    """Event times in milliseconds. Positions before it count no more."""

    begins: int
    until: int
    """First position that was not looked at."""
    ends: Longs
    """Of each piece, first position after it."""
    lowest: Longs
    """``MAX`` of a piece in which nothing counts."""
    highest: Longs
    reached: int | None = None
    """Highest event time of all that was ever seen."""

    @classmethod
    def at(cls, position: int) -> MinMaxIndex:
        """Return one in which nothing was looked at."""
        return cls(position, position, _NONE, _NONE, _NONE)

    def going_on(self, position: int, at_least: int) -> MinMaxIndex:
        """Return what is left of it at a position; begins anew if it does not reach from ``at_least`` on."""
        if not self.begins <= at_least <= self.until:
            return replace(MinMaxIndex.at(at_least), reached=self.reached)
        kept = int(np.searchsorted(self.ends, position, side="right"))
        begins = max(self.begins, position)
        return replace(
            self, begins=begins, ends=self.ends[kept:], lowest=self.lowest[kept:], highest=self.highest[kept:]
        )

    def with_rows(
        self, of: SplitRange, micros: Longs, late_at: Millis | None, future_cap: Millis | None
    ) -> MinMaxIndex:
        """Return the index with a range that follows it, of which these are the rows.

        Which position each row has is not known where some hold none: then it counts as unread for longer, not shorter.
        """
        rows = len(micros)
        if not rows:
            return replace(self, until=of.end)
        # A null holds the highest number there is.
        dated = micros != MAX
        times = micros // 1_000
        lowest = np.where(dated if late_at is None else dated & (times > late_at), times, MAX)
        counts = dated if future_cap is None else dated & (times <= future_cap)
        highest = np.where(counts, times, -MAX)
        first = np.arange(0, rows, PIECE_ROWS)
        ends = of.end - rows + np.append(first[1:], rows)
        most = int(highest.max())
        reached = self.reached if most == -MAX else max(most, most if self.reached is None else self.reached)
        return MinMaxIndex(
            self.begins,
            of.end,
            np.concatenate((self.ends, ends)),
            np.concatenate((self.lowest, np.minimum.reduceat(lowest, first))),
            np.concatenate((self.highest, np.maximum.reduceat(highest, first))),
            reached,
        )

    def unread(self, position: int) -> Unread:
        """Return what is known at a position."""
        low = self.lowest[np.searchsorted(self.ends, position, side="right") :]
        lowest = int(low.min()) if len(low) else MAX
        return Unread(
            max(self.until, position),
            None if lowest == MAX else Millis(lowest),
            None if self.reached is None else Millis(self.reached),
        )

    def spans(self, position: int) -> int:
        """Return by how much the highest event time after a position is later than the highest one before it."""
        after = int(np.searchsorted(self.ends, position, side="right"))
        if after == len(self.ends):
            return 0
        before = self.highest[:after] if after else self.lowest[:1]
        return int(self.highest[after:].max()) - int(before.max())
