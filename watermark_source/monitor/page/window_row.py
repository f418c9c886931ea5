"""The windows under the picture, on its axis: closed ones filled, the next to close outlined, later ones open. Pure.

Of windows that overlap each has the part by which it ends after the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from watermark_source.durations import age_text, unbroken
from watermark_source.monitor.axis import Axis
from watermark_source.monitor.page.markup import Markup, percent, tag
from watermark_source.monitor.three_clocks import QueryClocks
from watermark_source.planning.watermark import is_moment
from watermark_source.spark.query_windows import Windows

_MOST: Final = 60
"""Windows on the axis; more would be lines, and are one bar."""


def window_row(of: QueryClocks, axis: Axis) -> Markup:
    """Return the row; empty for a query without windows, and before any has closed."""
    applied, windows = of.applied_watermark, of.windows
    if not of.has_windows or applied is None or not is_moment(applied):
        return Markup("")
    if windows is None or axis.right - axis.left > _MOST * windows.slide:
        cells = [_cell("closed", axis, axis.left, applied)]
        long, about = "closed", f"closed: those that end by {axis.time_text(applied)}"
    else:
        cells = list(_cells(windows, applied, axis, of.at))
        long = age_text(windows.size) + (f" every {age_text(windows.slide)}" if windows.slide < windows.size else "")
        end = windows.next_end(applied)
        about = f"outlined, the next to close: ends {axis.time_text(end)}"
    who = tag("div", tag("b", "windows"), " ", tag("span", long, class_="word"), class_="who")
    drawn = tag("svg", *cells, class_="cells", aria_hidden="true")
    return tag("div", who, drawn, tag("div", unbroken(about), class_="soft"), class_="windows")


def _cells(of: Windows, applied: int, axis: Axis, now: int) -> Iterator[Markup]:
    """Yield the windows of the axis that have begun by the clock."""
    following = of.next_end(applied)
    first = following - (following - axis.left - 1) // of.slide * of.slide
    for end in range(first, min(axis.right + of.slide, now + of.size), of.slide):
        kind = "closed" if end < following else "next" if end == following else "open"
        yield _cell(kind, axis, end - of.slide, end)


def _cell(kind: str, axis: Axis, begin: int, end: int) -> Markup:
    # The style sheet cuts what is past an edge, so that a window that goes on has no end there.
    x, width = ((of - begin_at) / (axis.right - axis.left) for of, begin_at in ((begin, axis.left), (end, begin)))
    return tag("rect", class_=kind, x=percent(x), y="15%", width=percent(width), height="70%", rx="2")
