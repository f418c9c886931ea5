"""Range summaries: what the rows of one range of a split say about event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from watermark_source.eventtime.disorder import DisorderSegment
from watermark_source.eventtime.watermark import Millis


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """The same range always has the same summary, however many tasks read it, so a replay says the same."""

    highest: Millis | None = None
    """Highest event time not beyond the future cap; ``None`` if there was none."""
    marked: Millis | None = None
    """Highest watermark that a row carries, not beyond the future cap; ``None`` if none carries one."""
    segments: tuple[DisorderSegment, ...] = ()
    """How disordered the rows are, in position order; empty where nobody learns from it."""
    is_whole: bool = True
    """Whether all of the range was seen: what is gone, or no longer readable, may have had any event time."""

    @property
    def is_undated(self) -> bool:
        """Return whether no row has an event time that counts, nor a watermark."""
        return self.is_whole and self.highest is None and self.marked is None


NOTHING_SEEN: Final = RangeSummary()
