"""A source over time: who held it, how far its watermark was behind the clock, and how much was unread, as SVG. Pure.

Three rows on one axis of the clock. At most ``POINTS`` are drawn, of two neighbours the worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text, short_count, unbroken
from watermark_source.monitor.axis import Axis
from watermark_source.monitor.history import NO_HOLDER, HolderSpan, Point, thinned
from watermark_source.monitor.page.flags import GAP, NARROW, WIDE, text_width
from watermark_source.monitor.page.markup import Markup, percent, tag
from watermark_source.status_model.hold_causes import short_time

POINTS: Final = 60
_TICKS: Final = 4
_HEIGHT: Final = 1_000


def over_time(
    points: Sequence[Point], holders: Sequence[HolderSpan], now: int, level: int, *, name: str = "", end: str = "now"
) -> Markup:
    """Return the picture of a source over time; empty before its second point.

    Args:
        points: the oldest first.
        holders: who held it, the oldest first.
        now: the end of the axis.
        level: of its heading, 2 for ``h2``.
        name: of the source, where the query has several.
        end: what the end of the axis is called.
    """
    if len(points) < 2:
        return Markup("")
    axis = Axis(points[0].at, max(now, points[-1].at))
    shown = thinned(tuple(points), POINTS)
    whose = f"{name}: the" if name else "The"
    title = tag("figcaption", tag(f"h{level}", f"{whose} last {age_text(axis.right - axis.left)}"))
    behind, unread = [(p.at, p.behind) for p in shown], [(p.at, p.lag) for p in shown]
    charts = (
        _chart("Watermark behind clock", behind, axis, _Unit(age_text, age_text, _times)),
        _chart("Unread records", unread, axis, _Unit(count_text, short_count, _numbers)),
    )
    clock = tag("div", _time_axis(axis, end), class_="series")
    return tag("figure", title, _ribbon(holders, axis), *charts, clock, class_="over-time")


def _series(title: str, about: str, drawn: Markup, value: str) -> Markup:
    head = tag("div", tag("b", title), tag("span", unbroken(about), class_="soft"), class_="title")
    return tag("div", head, tag("div", drawn, class_="drawn"), tag("div", value, class_="value"), class_="series")


def _ribbon(spans: Sequence[HolderSpan], axis: Axis) -> Markup:
    present = spans[-1].name
    held: dict[str, int] = {}
    for span in spans:
        held[span.name] = held.get(span.name, 0) + span.end - span.begin
    held.pop(NO_HOLDER, None)
    longest = max(held, key=lambda name: held[name], default=None)
    about = "nothing all the time" if longest is None else f"longest: {longest}, {age_text(held[longest])}"
    drawn = tag("svg", *_spans(spans, axis, present), class_="ribbon", aria_hidden="true")
    return _series("Who held it", about, drawn, present)


def _spans(spans: Sequence[HolderSpan], axis: Axis, present: str) -> Iterator[Markup]:
    greys: dict[str, str] = {}
    for name, begin, end in spans:
        x, width = axis.share(begin), axis.share(end) - axis.share(begin)
        kind = "no-holder" if name == NO_HOLDER else "present"
        if name not in (NO_HOLDER, present):
            kind = greys.setdefault(name, f"earlier-{len(greys) % 3}")
        times = f"{short_time(begin, axis.right)} to {short_time(end, axis.right)}, {age_text(end - begin)}"
        has_room, on_telephones = (text_width(name) + 2 * GAP < width * size for size in (WIDE, NARROW))
        text = tag("text", name, x=percent(x), dx="6", y="50%", class_=None if on_telephones else "wide")
        bar = tag("rect", x=percent(x), y="8%", width=percent(width), height="84%")
        yield tag("g", tag("title", f"{name}: {times}"), bar, text if has_room else "", class_=kind)


class _Unit(NamedTuple):
    exact: Callable[[int], str]
    short: Callable[[int], str]
    ticks: Callable[[int], Sequence[int]]


def _times(highest: int) -> Sequence[int]:
    """Return two or three durations that people say, up to the highest."""
    return [tick.at for tick in Axis(0, highest).ticks(3) if tick.at]


def _numbers(highest: int) -> Sequence[int]:
    power = 10 ** (len(str(highest)) - 1)
    step = max(1, next(n for n in (power // 2, power, 2 * power, 5 * power) if highest <= 3 * n or n == 5 * power))
    return range(step, highest + 1, step)


def _chart(title: str, values: Sequence[tuple[int, int | None]], axis: Axis, unit: _Unit) -> Markup:
    known = [value for _, value in values if value is not None]
    if not known:
        return Markup("")
    low, high, last = min(known), max(known), known[-1]
    about = " to ".join(dict.fromkeys((unit.short(low), unit.short(high))))
    top = max(1, high) * 1.08
    drawn = tag("svg", *_area(values, axis, top), *_grid(unit, high, top), *_hover(values, axis, top, unit),
                class_="chart", aria_hidden="true")  # fmt: skip
    return _series(title, about, drawn, unit.exact(last))


def _area(values: Sequence[tuple[int, int | None]], axis: Axis, top: float) -> Iterator[Markup]:
    """Yield an area and its line for each stretch whose values are known."""
    stretches: list[list[str]] = [[]]
    for at, value in values:
        if value is None:
            stretches.append([])
        else:
            height = _HEIGHT * (1 - max(0, value) / top)
            stretches[-1].append(f"{_HEIGHT * axis.share(at):.0f},{height:.0f}")
    drawn: list[Markup] = []
    for points in filter(None, stretches):
        begin, end = (points[i].partition(",")[0] for i in (0, -1))
        drawn.append(tag("polygon", points=f"{begin},{_HEIGHT} {' '.join(points)} {end},{_HEIGHT}"))
        drawn.append(tag("polyline", points=" ".join(points), vector_effect="non-scaling-stroke"))
    box = f"0 0 {_HEIGHT} {_HEIGHT}"
    yield tag("svg", *drawn, viewBox=box, preserveAspectRatio="none", width="100%", height="100%")


def _grid(unit: _Unit, high: int, top: float) -> Iterator[Markup]:
    for tick in (0, *unit.ticks(high)):
        y = percent(1 - tick / top)
        yield tag("line", class_="grid", x2="100%", y1=y, y2=y)
        if tick:
            yield tag("text", unit.short(tick), class_="tick", x="2", y=y, dy="1em")


def _hover(values: Sequence[tuple[int, int | None]], axis: Axis, top: float, unit: _Unit) -> Iterator[Markup]:
    """Yield the value at each point, which the style sheet shows under the pointer."""
    places = [axis.share(at) for at, _ in values]
    for i, (at, value) in enumerate(values):
        if value is None:
            continue
        begin = (places[max(0, i - 1)] + places[i]) / 2
        end = (places[min(len(places) - 1, i + 1)] + places[i]) / 2
        x, y = percent(places[i]), percent(1 - max(0, value) / top)
        anchor = "start" if places[i] < 0.5 else "end"
        room = tag("rect", x=percent(begin), width=percent(end - begin), height="100%")
        text = f"{short_time(at, axis.right)} · {unit.exact(value)}"
        shown = tag("text", text, x=x, y=y, dy="-.7em", text_anchor=anchor)
        yield tag("g", room, tag("circle", cx=x, cy=y, r="3.5"), shown, class_="point")


def _time_axis(axis: Axis, end: str) -> Markup:
    ticks = (
        tag("text", tick.text, class_="tick", x=percent(share), y="50%", text_anchor="middle")
        for tick in axis.ticks(_TICKS)
        if 0.05 < (share := axis.share(tick.at)) < 0.8
    )
    now = tag("text", end, class_="tick", x="100%", y="50%", text_anchor="end")
    return tag("div", tag("svg", *ticks, now, class_="clock", aria_hidden="true"), class_="drawn")
