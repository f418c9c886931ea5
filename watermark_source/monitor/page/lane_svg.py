"""One row of a picture as HTML and SVG: its name, its bar on the axis, and its numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from watermark_source.monitor.axis import Axis
from watermark_source.monitor.lanes import Lane, Look, behind_text
from watermark_source.monitor.page.flags import WIDE, text_width
from watermark_source.monitor.page.markup import Markup, percent, tag
from watermark_source.monitor.three_clocks import behind_clock
from watermark_source.status_model.source_status import Quantiles

_NOTE_GAP: Final = 10
_PAST: Final = "›››"


def row(lane: Lane, axis: Axis, now: int, number: str, unit: str, *, complete: float = 0.0) -> Markup:
    """Return a row.

    Args:
        lane: what it shows.
        axis: of the picture.
        now: the clock, milliseconds since 1970-01-01 UTC.
        number: its last column.
        unit: of the number.
        complete: where the watermark of all rows is, as a share of the width.
    """
    late = behind_clock(now, lane.watermark)
    is_behind = late is not None and late >= 0
    who = tag("div", tag("b", lane.name), " ", tag("span", lane.word, class_="word"), class_="who")
    behind = tag("div", behind_text(late), tag("span", " behind", class_="unit") if is_behind else "", class_="behind")
    last = tag("div", number, tag("span", f" {unit}", class_="unit") if number else "", class_="number")
    why = tag("div", tag("span", lane.note), class_="why") if lane.note else ""
    return tag("li", who, _bar(lane, axis, complete), behind, last, why, class_=f"row {lane.look.value}")


def _bar(lane: Lane, axis: Axis, complete: float) -> Markup:
    """Return what is drawn of a row; ``complete``: where the watermark of all is."""
    parts: list[Markup] = [tag("title", lane.exact)] if lane.exact else []
    if lane.watermark is None or lane.look is Look.LEFT_OUT:
        parts.append(tag("line", class_="none", x1="0", x2="100%", y1="80%", y2="80%"))
        if lane.watermark is not None and not axis.is_past(lane.watermark):
            parts.append(tag("rect", class_="end", x=percent(axis.share(lane.watermark)), y="62%", height="36%"))
        text = tag("text", lane.note, class_="note", x=percent(complete), dx=str(_NOTE_GAP), y="38%")
        return tag("svg", *parts, text if lane.note else "", class_="lane", aria_hidden="true")
    if lane.spread is not None:
        return tag("svg", *_band(lane.spread, axis), class_="lane", aria_hidden="true")
    x, read = axis.share(lane.watermark), lane.watermark if lane.read is None else lane.read
    last = max(read, read if lane.newest is None else lane.newest)
    parts.append(_box("done", 0, x))
    parts.append(_box("read", x, axis.share(read)))
    parts.append(_box("left", axis.share(read), axis.share(last)))
    if not axis.is_past(lane.watermark):
        parts.append(tag("rect", class_="end", x=percent(x), y="6%", height="88%"))
    return tag("svg", *parts, _note(lane, x, axis.share(read), axis.share(last)), class_="lane", aria_hidden="true")


def _band(of: Quantiles, axis: Axis) -> Iterator[Markup]:
    """Yield where many watermarks are: all of them, 90 %, half of them, and the median."""
    yield _box("done", 0, axis.share(of.lowest))
    for kind, begin, end, top in (
        ("most", of.lowest, of.highest, 44), ("more", of.p5, of.p95, 30), ("half", of.p25, of.p75, 18),
    ):  # fmt: skip
        x, width = axis.share(begin), axis.share(end) - axis.share(begin)
        yield tag("rect", class_=kind, x=percent(x), y=f"{top}%", width=percent(width), height=f"{100 - 2 * top}%")
    yield tag("rect", class_="end", x=percent(axis.share(of.median)), y="6%", height="88%")


def _box(kind: str, begin: float, end: float) -> Markup:
    if end <= begin:
        return Markup("")
    return tag("rect", class_=kind, x=percent(begin), y="18%", width=percent(end - begin), height="64%")


def _note(lane: Lane, x: float, read: float, last: float) -> Markup:
    """Return the text of a row where it has room: in the unread box, behind the bar, within it, or over all."""
    text = f"{lane.note} {_PAST if x >= 1 else ''}".strip()
    if not text:
        return Markup("")
    room = (text_width(text) + 2 * _NOTE_GAP) / WIDE
    is_in_box = last - read > room
    if is_in_box or last + room < 1:
        return tag("text", text, class_="note", x=percent(read if is_in_box else last), dx=str(_NOTE_GAP), y="50%")
    if x > room:
        return tag("text", text, class_="note within", x=percent(x), dx=str(-_NOTE_GAP), y="50%", text_anchor="end")
    return tag("text", text, class_="note within", x="0", dx=str(_NOTE_GAP), y="50%")


def key_of(lanes: Iterable[Lane]) -> Markup:
    """Return what the looks of these rows mean."""
    every = list(lanes)
    looks = {Look.COUNTS, *(lane.look for lane in every)}
    samples = [_sample(look, text, *drawn) for look, (text, *drawn) in _KEY.items() if look in looks]
    if any(lane.newest is not None for lane in every):
        samples.insert(1, _sample(Look.COUNTS, "unread", _LEFT))
    return tag("ul", *samples, class_="key", aria_label="Key")


def _sample(look: Look, text: str, *drawn: str) -> Markup:
    return tag("li", tag("svg", *drawn, class_="sample", aria_hidden="true"), text, class_=look.value)


_LINE: Final = tag("line", class_="none", x2="100%", y1="50%", y2="50%")
_DONE: Final = tag("rect", class_="done", width="80%", height="100%")
_ALL_DONE: Final = tag("rect", class_="done", width="100%", height="100%")
_READ: Final = tag("rect", class_="read", x="80%", width="20%", height="100%")
_END: Final = tag("rect", class_="end", x="80%", height="100%")
_LEFT: Final = tag("rect", class_="left", width="100%", height="100%")
_KEY: Final = {
    Look.COUNTS: ("complete, then read but possibly out of order", _DONE, _READ, _END),
    Look.HOLDS: ("holds back", _DONE, _END),
    Look.PAUSED: ("paused", _ALL_DONE),
    Look.SILENT: ("does not answer", _ALL_DONE),
    Look.FAILED: ("named by the error", _ALL_DONE),
    Look.LEFT_OUT: ("idle, left out", _LINE),
}
"""Of each look a text, and what a sample of it has."""
