"""The picture of event time: a row a partition on one axis, and what is true of all as vertical lines. Pure.

A place is a share of the width, and a size is one of the text, so that one drawing is right on a telephone and on a
wall. What it shows is in its rows as text, too: the drawing itself is hidden from screen readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.axis import Axis, axis_of
from watermark_source.monitor.lanes import Lane, Look, lanes_of, unread_text
from watermark_source.monitor.page.figure import figure
from watermark_source.monitor.page.flags import NARROW, WIDE, Flag
from watermark_source.monitor.page.lane_svg import key_of, row
from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.overlay import Overlay, Span
from watermark_source.monitor.page.window_row import window_row
from watermark_source.monitor.status_table import counts_text
from watermark_source.monitor.three_clocks import QueryClocks, behind_clock
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import subject
from watermark_source.status_model.source_status import SourceStatus

_APART: Final = 0.01
"""Share of the width from which what Spark has applied is a line beside the watermark's."""


def event_time_picture(of: QueryClocks, level: int, now: str = "now", *, error: str = "") -> Markup:
    """Return the picture of a query.

    Args:
        of: its clocks; without a source the picture is empty.
        level: of its heading, 2 for ``h2``.
        now: what the moment of the clocks is called.
        error: that ended it: the rows that it names are set off.
    """
    if not of.sources:
        return Markup("")
    axis = axis_of(of.sources, of.applied_watermark, of.at)
    shown = [(source, [_marked(lane, error) for lane in lanes_of(source, of.at)]) for source in of.sources]
    lanes = [lane for _, each in shown for lane in each]
    rows = [drawn for source, each in shown for drawn in _rows(source, each, of, axis)]
    return figure(
        tag(f"h{level}", _title(of, lanes)),
        _caption(of.sources),
        ("writer" if of.sources[0].is_announced else of.sources[0].words.split, "", "behind clock", "unread"),
        [_overlay(of, axis, now, width) for width in (WIDE, NARROW)],
        rows,
        window_row(of, axis),
        key_of(lanes),
    )


def _marked(lane: Lane, error: str) -> Lane:
    """Return a row; set off if an error names it as a whole: orders-1 is not named by orders-10 or eu.orders-1."""
    is_named = error and re.search(rf"(?<![\w.-]){re.escape(lane.name)}(?!\.?[\w-])", error)
    # What was unread of it may be what the error is about.
    return replace(lane, look=Look.FAILED, word="named by the error", unread=None) if is_named else lane


def _overlay(of: QueryClocks, axis: Axis, now: str, width: int) -> Overlay:
    limits, mark = _limits(of), of.input_watermark
    flags = tuple(_flags(of, axis, now, is_wide=width == WIDE))
    complete = None if mark is None or not is_moment(mark) else axis.share(mark)
    return Overlay(axis, width, flags, tuple(_spans(of, axis)), complete, axis.share(min(limits)) if limits else None)


def _title(of: QueryClocks, lanes: Sequence[Lane]) -> str:
    if len(of.sources) > 1:
        return f"How far the {len(of.sources)} sources have come, in event time"
    (source,) = of.sources
    if source.is_announced:
        return "How far each writer has come, in event time"
    if any(lane.look is Look.OTHERS for lane in lanes):
        return f"The slowest of {count_text(source.splits_total)} {source.words.split}s, and all others, in event time"
    return f"How far each {source.words.split} has come, in event time"


def _caption(of: Sequence[SourceStatus]) -> str:
    about = [f"{source.source_name} · {counts_text(source)}" for source in of] if len(of) == 1 else []
    return " · ".join([*about, "times in UTC"])


def _rows(source: SourceStatus, lanes: Sequence[Lane], of: QueryClocks, axis: Axis) -> Iterator[Markup]:
    if len(of.sources) > 1:
        yield tag("li", tag("b", source.source_name), " ", tag("span", counts_text(source)), class_="source")
    complete = axis.share(of.input_watermark or axis.left)
    yield from (row(lane, axis, of.at, unread_text(lane), "unread", complete=complete) for lane in lanes)


def _limits(of: QueryClocks) -> dict[int, SourceStatus]:
    """Return the limits of the sources' alignment groups, each with a source."""
    return {
        limit: source
        for source in of.sources
        if source.group is not None and (limit := source.group.limit) is not None and is_moment(limit)
    }


def _flags(of: QueryClocks, axis: Axis, now: str, *, is_wide: bool) -> Iterator[Flag]:
    mark, applied, held = of.input_watermark, of.applied_watermark, of.held
    if mark is not None and is_moment(mark):
        yield Flag("watermark", axis.share(mark), f"watermark {short_time(mark, of.at)}", not axis.is_past(mark))
    elif held is not None and (then := held[0].without_holder) is not None and is_moment(then):
        without = f" without {subject(held[1])}" if is_wide else ""
        yield Flag("would", axis.share(then), f"would be {axis.time_text(then)}{without}")
    past = " ›" if axis.is_past(of.at) else ""
    yield Flag("now", axis.share(of.at), f"{now} {axis.time_text(of.at)}{past}", not past)
    for limit, source in _limits(of).items():
        if not axis.is_past(limit):
            yield Flag("limit", axis.share(limit), _limit_text(source) if is_wide else "limit")
    if applied is not None and abs(axis.share(applied) - axis.share(mark or 0)) > _APART:
        who = "applied by Spark" if is_wide else "applied"
        yield Flag("applied", axis.share(applied), f"{who} {axis.time_text(applied)}")


def _limit_text(of: SourceStatus) -> str:
    group = of.group
    if group is None or group.max_drift is None or group.holder is None:
        return "limit of the group"
    return f"limit: {age_text(group.max_drift)} ahead of {group.holder}"


def _spans(of: QueryClocks, axis: Axis) -> Iterator[Span]:
    """Yield how far the watermark is behind the clock, and how much of that is due to what holds it."""
    mark, late = of.input_watermark, behind_clock(of.at, of.input_watermark)
    if mark is None or late is None or late <= 0:
        return
    text = f"{age_text(late)} behind the clock"
    yield Span("late", axis.share(mark), axis.share(of.at), (text, age_text(late)))
    held = of.held
    then = None if held is None else held[0].without_holder
    if held is None or then is None or not mark < then or not is_moment(then):
        return
    name, part = subject(held[1]), age_text(then - mark)
    yield Span("held", axis.share(mark), axis.share(then), (f"{part} of it because of {name}", f"{part}: {name}", part))
