"""The axis of event time that a query's sources share in its picture: from where to where, and its ticks. Pure.

The page, the notebook and the terminal draw the same axis: left of it lies what is complete, at its right end the
present, and the watermark about a quarter from the left. ``Axis.share`` is the place of a moment, as a share of the
width, whatever the width is. Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from watermark_source.planning.watermark import LAST_MOMENT, saturating_add, watermark_text
from watermark_source.status_model.source_status import SourceStatus, SplitView, Status

_LEFT, _RIGHT, _PAST = 0.24, 0.06, 0.22
"""Shares of the gap left of the watermark, right of the present, and right of it where something is past it."""
_SHORTEST_GAP: Final = 10_000
_REPLAY, _SHORTEST_SPREAD = 20, 60_000
"""Partitions replay history where all are more than so many of their spreads, of at least a minute, behind the clock:
with the present on the axis they would be one point."""
_STEPS: Final = 60
"""Parts of the axis to which its ends are rounded: between two reloads it mostly stands still."""

_FIRST_MOMENT = -62_135_596_800_000
"""The beginning of the year 1."""
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_YEAR = 365 * _DAY
_NICE: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 366)),
)
"""Distances of ticks that people say."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Tick(NamedTuple):
    """A moment of the axis with a text."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``left`` to ``right``, which is later."""

    left: int
    right: int

    def share(self, moment: int) -> float:
        """Return where a moment is, from 0 to 1: one before the left end is there, one past the right end there."""
        return min(1.0, max(0.0, (moment - self.left) / (self.right - self.left)))

    def is_past(self, moment: int) -> bool:
        """Return whether a moment is right of the axis: it is marked at the edge, as the present of a replay."""
        return moment > self.right

    def ticks(self, most: int) -> tuple[Tick, ...]:
        """Return at most ``most`` moments, of two or more, within the axis and at distances that people say."""
        step = _nice((self.right - self.left) / (most - 1))
        first = -(-self.left // step) * step
        return tuple(Tick(at, _tick_text(at, step)) for at in range(first, self.right + 1, step))

    def time_text(self, moment: int, now: int | None = None) -> str:
        """Return a moment as UTC to the second, with its day unless that is the day of the axis and ``now``."""
        if not _moments([moment]):
            return watermark_text(moment)
        days = {at // _DAY for at in (self.left, self.right, moment, moment if now is None else now)}
        return (f"{_day_text(moment)} " if len(days) > 1 else "") + f"{_utc(moment):%H:%M:%S}"


def axis_of(sources: Sequence[SourceStatus], applied: int | None, now: int) -> Axis:
    """Return the axis on which a query's sources are drawn.

    It holds the lowest watermark that counts, of a source, of its partitions, or of another source of its alignment
    group; what Spark's operators have applied; the present, and the limit of the group where that lies near.

    Args:
        sources: the query's.
        applied: Spark's own watermark.
        now: the present, or when the query ended.
    """
    whole = _moments(source.watermark for source in sources)
    counted = [*whole, *_moments(mark for source in sources for mark in _that_count(source))]
    read = _moments(read_up_to(source, view) for source in sources for view in _counted_splits(source))
    lowest, highest = min(counted, default=now), max([*counted, *read], default=now)
    passed = _moments([applied])
    if now - highest > _REPLAY * max(_SHORTEST_SPREAD, highest - lowest):
        return _fitted(min([lowest, *passed]), highest, highest - lowest, _PAST)
    first = min(lowest, now)
    limits = _moments(None if source.group is None else source.group.limit for source in sources)
    near = [limit for limit in limits if limit <= highest or limit - now <= max(_SHORTEST_GAP, now - first)]
    last = max([now, *near, *whole])
    goes_on = highest > last or max(near, default=now) > now
    return _fitted(min([first, *passed]), last, last - first, _PAST if goes_on else _RIGHT)


def _fitted(first: int, last: int, gap: int, right: float) -> Axis:
    gap = max(_SHORTEST_GAP, gap)
    left, end = first - _LEFT * gap, last + right * gap
    step = _nice((end - left) / _STEPS)
    return Axis(max(_FIRST_MOMENT, math.floor(left / step) * step), min(LAST_MOMENT, math.ceil(end / step) * step))


def _moments(marks: Iterable[int | None]) -> list[int]:
    """Return those that are moments of the calendar: event times in a wrong unit are not."""
    return [mark for mark in marks if mark is not None and _FIRST_MOMENT < mark < LAST_MOMENT]


def _that_count(source: SourceStatus) -> Iterator[int | None]:
    """Yield the watermarks of partitions, and of other sources of the group, that are not left out."""
    yield from (view.watermark for view in _counted_splits(source))
    if source.group is not None:
        yield from (peer.watermark for peer in source.group.peers if peer.is_waited_for)


def _counted_splits(source: SourceStatus) -> Iterator[SplitView]:
    return (view for view in source.splits if view.status is not Status.IDLE)


def read_up_to(source: SourceStatus, view: SplitView) -> int | None:
    """Return the highest event time that was read of a partition; its watermark where that does not follow it."""
    if view.watermark is None or source.out_of_orderness is None:
        return view.watermark
    return saturating_add(view.watermark, source.out_of_orderness + 1)


def _nice(least: float) -> int:
    """Return the next distance that people say; of more than any, the longest times a whole number."""
    return next((step for step in _NICE if step >= least), math.ceil(least / _NICE[-1]) * _NICE[-1])


def _utc(moment: int) -> datetime:
    return datetime.fromtimestamp(moment / 1_000, UTC)


def _day_text(moment: int) -> str:
    at = _utc(moment)
    return f"{at.day} {_MONTHS[at.month - 1]}"


def _tick_text(moment: int, step: int) -> str:
    if step >= _DAY:
        return _day_text(moment) if step < _YEAR else str(_utc(moment).year)
    at = _utc(moment)
    if step >= _MINUTE:
        return f"{at:%H:%M}"
    return f"{at:%H:%M:%S}" if step >= _SECOND else f"{at:%H:%M:%S}.{moment % _SECOND:03d}"
