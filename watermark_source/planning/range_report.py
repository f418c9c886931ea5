"""Progress reports: what a task observed in a range, and whether the reports cover a whole planned range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Final, NamedTuple

from watermark_source.planning.disorder import SEGMENT, DisorderSegment, RangeSummary
from watermark_source.planning.split import SplitRange
from watermark_source.planning.watermark import Millis

# Late rows: how many there were, and how far behind the watermark that their batch began with.


_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 21_600, 86_400)
BOUNDS_MS: Final = tuple(1_000 * seconds for seconds in _SECONDS)
"""Upper bounds of the histogram, inclusive; one more bucket has all that is beyond."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Late rows of a range, a split or a source; the sum of two is that of both."""

    histogram: tuple[int, ...] = ()
    """Rows in each bucket, as ``BOUNDS_MS`` has them; empty if there are none."""
    longest: int = 0
    """How far the latest of them was behind, in milliseconds."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTotals:
    """Row counts of a range, of one run of a query, or of a part of either. Totals of parts can be added."""

    read: int = 0
    future: int = 0
    """Rows whose event time was too far in the future to count (``maxFutureSkew``)."""
    undated: int = 0
    """Rows without an event time."""
    malformed: int = 0
    """Rows whose value or key does not have the form that the user declared."""
    late: LateRows = NONE_LATE
    """Rows at or before the watermark that their batch began with."""

    @property
    def late_share(self) -> float | None:
        """The share of late rows; ``None`` before the first row."""
        return self.late.rows / self.read if self.read else None

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(
            read=self.read + other.read,
            future=self.future + other.future,
            undated=self.undated + other.undated,
            malformed=self.malformed + other.malformed,
            late=self.late + other.late if other.late.rows else self.late,
        )


NO_ROWS: Final = RowTotals()


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What one task observed in one range. The same range always gives the same report: repeats do no harm."""

    range: SplitRange
    max_event_time: Millis | None
    """Highest event time not beyond the future cap; ``None`` if there was none."""
    rows: RowTotals
    marked: Millis | None = None
    """Highest watermark that a row carries, not beyond the future cap."""
    segments: tuple[DisorderSegment, ...] = ()
    """Disorder of the rows, where the strategy observes it; from the range's beginning on."""
    summary: str | None = None
    """What a user's class has summed up of the rows, as canonical JSON; ``None`` if nothing, or if there is none."""


class Coverage(NamedTuple):
    """The sum of the reports about a range, and the parts of it without a report."""

    seen: RangeSummary
    """What a strategy uses."""
    rows: RowTotals
    missing: tuple[SplitRange, ...] = ()
    """Parts of the range without a report, in order."""


def cover(wanted: SplitRange, reports: Iterable[RangeReport]) -> Coverage:
    """Return the sum of the reports that lie inside ``wanted``.

    A report that overlaps an earlier one is left out, and so is one that counts disorder in other segments than those
    of ``wanted``: their parts of the range are then missing.
    """
    own = (r for r in reports if r.range.split == wanted.split)
    inside = sorted(
        (r for r in own if wanted.start <= r.range.start < r.range.end <= wanted.end), key=lambda r: r.range
    )
    at, missing = wanted.start, list[SplitRange]()
    counted: list[RangeReport] = []
    for report in inside:
        if report.range.start < at or (report.segments and (report.range.start - wanted.start) % SEGMENT):
            continue
        if report.range.start > at:
            missing.append(SplitRange(wanted.split, at, report.range.start))
        at = report.range.end
        counted.append(report)
    if at < wanted.end:
        missing.append(SplitRange(wanted.split, at, wanted.end))
    seen = RangeSummary(
        max((r.max_event_time for r in counted if r.max_event_time is not None), default=None),
        max((r.marked for r in counted if r.marked is not None), default=None),
        tuple(segment for r in counted for segment in r.segments),
        tuple(r.summary for r in counted if r.summary is not None),
        is_whole=not missing,
    )
    return Coverage(seen, sum((r.rows for r in counted), NO_ROWS), tuple(missing))


def whole(r: RangeReport) -> Coverage:
    """Return the coverage of one report by itself: the same as ``cover``, but fast for thousands of reports."""
    summaries = () if r.summary is None else (r.summary,)
    return Coverage(RangeSummary(r.max_event_time, r.marked, r.segments, summaries), r.rows)
