"""PURE. Row totals: how many rows a source has read, and of how many of them the event time does not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from watermark_source.planning.late_rows import NONE_LATE, LateRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTotals:
    """Of one run of a query, or a part of it; the sum of two is that of both."""

    read: int = 0
    future: int = 0
    """Those whose event time was too far in the future to count (``maxFutureSkew``)."""
    undated: int = 0
    """Those in which no event time was found."""
    late: LateRows = NONE_LATE
    """Those at or before the watermark that their batch began with."""

    @property
    def late_share(self) -> float | None:
        """Return which share was late; ``None`` before the first row."""
        return self.late.rows / self.read if self.read else None

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(
            read=self.read + other.read,
            future=self.future + other.future,
            undated=self.undated + other.undated,
            late=self.late + other.late if other.late.rows else self.late,
        )


NO_ROWS: Final = RowTotals()
