"""Min-max index: lowest and highest event time of each few rows of one split that were looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.look_ahead import Unread
from watermark_source.planning.split import SplitRange
from watermark_source.spark.driver.event_time_reads import Longs

PIECE_ROWS = 1_024
"""Rows of which only the lowest and the highest event time are kept, in 32 bytes, until a batch ends among them."""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class MinMaxIndex:
    """Event times in milliseconds. Positions before it count no more."""

    begins: int
    until: int
    """First position that was not looked at."""
    starts: Longs
    """Of each piece, its first position."""
    ends: Longs
    """Of each piece, first position after it."""
    lowest: Longs
    """``MAX`` of a piece in which nothing counts."""
    highest: Longs
    """``MIN`` of a piece in which nothing counts."""
    reached: int | None = None
    """Highest event time of all that was ever seen."""

    @classmethod
    def at(cls, position: int) -> MinMaxIndex:
        """Return one in which nothing was looked at."""
        return cls(position, position, _NONE, _NONE, _NONE, _NONE)

    def going_on(self, position: int, at_least: int) -> MinMaxIndex:
        """Return what is left of it at a position; begins anew if it does not reach from ``at_least`` on."""
        if not self.begins <= at_least <= self.until:
            return replace(MinMaxIndex.at(at_least), reached=self.reached)
        kept = int(np.searchsorted(self.ends, position, side="right"))
        begins = max(self.begins, position)
        return replace(
            self,
            begins=begins,
            starts=self.starts[kept:],
            ends=self.ends[kept:],
            lowest=self.lowest[kept:],
            highest=self.highest[kept:],
        )

    def with_rows(
        self, of: SplitRange, micros: Longs, late_at: Millis | None, future_cap: Millis | None
    ) -> MinMaxIndex:
        """Return the index with a range that follows it, of which these are the rows.

        Which position each row has is not known where some hold none: then it counts as unread for longer, not shorter.
        """
        if not len(micros):
            return replace(self, until=of.end)
        found = _pieces(of, micros, late_at, future_cap, PIECE_ROWS)
        return MinMaxIndex(
            self.begins,
            of.end,
            np.concatenate((self.starts, found.starts)),
            np.concatenate((self.ends, found.ends)),
            np.concatenate((self.lowest, found.lowest)),
            np.concatenate((self.highest, found.highest)),
            _later(self.reached, found.reached),
        )

    def blurred(self, position: int) -> tuple[int, int] | None:
        """Return from where to where the rows at a position are known as one piece that begins before it, if so."""
        at = int(np.searchsorted(self.ends, position, side="right"))
        if at == len(self.ends) or not self.starts[at] < position:
            return None
        return position, int(self.ends[at])

    def with_each_row(
        self, of: SplitRange, micros: Longs, late_at: Millis | None, future_cap: Millis | None
    ) -> MinMaxIndex:
        """Return the index with the rows of ``blurred`` known one by one; ``of`` is that range."""
        at = int(np.searchsorted(self.ends, of.start, side="right"))
        before, after = slice(None, at + 1), slice(at + 1, None)
        cut = self.ends[before].copy()
        cut[-1] = of.start
        if not len(micros):
            return replace(self, ends=np.concatenate((cut, self.ends[after])))
        found = _pieces(of, micros, late_at, future_cap, 1)
        return replace(
            self,
            starts=np.concatenate((self.starts[before], found.starts, self.starts[after])),
            ends=np.concatenate((cut, found.ends, self.ends[after])),
            lowest=np.concatenate((self.lowest[before], found.lowest, self.lowest[after])),
            highest=np.concatenate((self.highest[before], found.highest, self.highest[after])),
        )

    def unread(self, position: int) -> Unread:
        """Return what is known at a position."""
        lowest = _lowest(self.lowest[np.searchsorted(self.ends, position, side="right") :])
        return Unread(
            max(self.until, position),
            None if lowest is None else Millis(lowest),
            None if self.reached is None else Millis(self.reached),
        )

    def spans(self, position: int) -> int:
        """Return by how much the highest event time after a position is later than the highest one before it.

        Where no event time before it is known, than the lowest one after it; 0 where none after it is.
        """
        at = int(np.searchsorted(self.ends, position, side="right"))
        after = _highest(self.highest[at:])
        before = _highest(self.highest[:at])
        if before is None:
            before = _lowest(self.lowest[at:])
        return 0 if after is None or before is None else after - before


@dataclass(frozen=True, slots=True)
class _Pieces:
    starts: Longs
    ends: Longs
    lowest: Longs
    highest: Longs
    reached: int | None


def _pieces(
    of: SplitRange, micros: Longs, late_at: Millis | None, future_cap: Millis | None, piece_rows: int
) -> _Pieces:
    rows = len(micros)
    # A null holds the highest number there is.
    dated = micros != MAX
    times = micros // 1_000
    lowest = np.where(dated if late_at is None else dated & (times > late_at), times, MAX)
    highest = np.where(dated if future_cap is None else dated & (times <= future_cap), times, MIN)
    first = np.arange(0, rows, piece_rows)
    ends = of.end - rows + np.append(first[1:], rows)
    return _Pieces(
        starts=np.append(of.start, ends[:-1]),
        ends=ends,
        lowest=np.minimum.reduceat(lowest, first),
        highest=np.maximum.reduceat(highest, first),
        reached=_highest(highest),
    )


def _lowest(times: Longs) -> int | None:
    """Return the lowest of those that count."""
    counted = times[times != MAX]
    return int(counted.min()) if len(counted) else None


def _highest(times: Longs) -> int | None:
    counted = times[times != MIN]
    return int(counted.max()) if len(counted) else None


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)
