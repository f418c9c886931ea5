"""Progress reports: what a task saw in a range, and whether the reports cover a whole planned range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watermark_source.eventtime.disorder import SEGMENT, DisorderSegment
from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.late_rows import NONE_LATE, LateRows
from watermark_source.planning.split import SplitRange


@dataclass(frozen=True, slots=True)
class RangeReport:
    """What one task saw in one range. The same range always gives the same report, so repeats do no harm."""

    range: SplitRange
    max_event_time: Millis | None
    """Highest event time not beyond the future cap; ``None`` if there was none."""
    rows: int
    future_rows: int
    """Rows whose event time was beyond the future cap."""
    late: LateRows = NONE_LATE
    """Rows at or before the watermark that their batch began with."""
    undated_rows: int = 0
    """Rows in which no event time was found."""
    marked: Millis | None = None
    """Highest watermark that a row carries, not beyond the future cap."""
    segments: tuple[DisorderSegment, ...] = ()
    """How disordered the rows are, where somebody learns from it; from the range's beginning on."""


class Coverage(NamedTuple):
    """How far reports tell about a range."""

    max_event_time: Millis | None
    rows: int
    future_rows: int
    missing: tuple[SplitRange, ...]
    """Parts of the range no report tells about, in order."""
    late: LateRows = NONE_LATE
    undated_rows: int = 0
    marked: Millis | None = None
    segments: tuple[DisorderSegment, ...] = ()

    @property
    def summary(self) -> RangeSummary:
        """Return what a strategy goes by."""
        return RangeSummary(self.max_event_time, self.marked, self.segments, is_whole=not self.missing)


def cover(wanted: SplitRange, reports: Iterable[RangeReport]) -> Coverage:
    """Put together the reports that lie inside ``wanted``; what overlaps an earlier part is not counted twice.

    Nor does a report that counts disorder in other segments than those of ``wanted``.
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
    return _together(counted, tuple(missing))


def whole(r: RangeReport) -> Coverage:
    """Return what a report tells of all of its range: as ``cover`` does, thousands of which take their time."""
    return Coverage(r.max_event_time, r.rows, r.future_rows, (), r.late, r.undated_rows, r.marked, r.segments)


def _together(reports: Sequence[RangeReport], missing: tuple[SplitRange, ...]) -> Coverage:
    return Coverage(
        max((r.max_event_time for r in reports if r.max_event_time is not None), default=None),
        sum(r.rows for r in reports),
        sum(r.future_rows for r in reports),
        missing,
        sum((r.late for r in reports), NONE_LATE),
        sum(r.undated_rows for r in reports),
        max((r.marked for r in reports if r.marked is not None), default=None),
        tuple(segment for r in reports for segment in r.segments),
    )
