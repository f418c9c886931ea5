"""Progress reports: what a task saw in a range, and whether the reports cover a whole planned range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

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


class Coverage(NamedTuple):
    """How far reports tell about a range."""

    max_event_time: Millis | None
    rows: int
    future_rows: int
    missing: tuple[SplitRange, ...]
    """Parts of the range no report tells about, in order."""
    late: LateRows = NONE_LATE
    undated_rows: int = 0


def cover(wanted: SplitRange, reports: Iterable[RangeReport]) -> Coverage:
    """Put together the reports that lie inside ``wanted``; what overlaps an earlier part is not counted twice."""
    own = (r for r in reports if r.range.split == wanted.split)
    inside = sorted(
        (r for r in own if wanted.start <= r.range.start < r.range.end <= wanted.end), key=lambda r: r.range
    )
    at, highest, rows, future, late, undated = wanted.start, None, 0, 0, NONE_LATE, 0
    missing: list[SplitRange] = []
    for report in inside:
        if report.range.start < at:
            continue
        if report.range.start > at:
            missing.append(SplitRange(wanted.split, at, report.range.start))
        at = report.range.end
        rows += report.rows
        future += report.future_rows
        late += report.late
        undated += report.undated_rows
        if report.max_event_time is not None and (highest is None or report.max_event_time > highest):
            highest = report.max_event_time
    if at < wanted.end:
        missing.append(SplitRange(wanted.split, at, wanted.end))
    return Coverage(highest, rows, future, tuple(missing), late, undated)
