"""The picture of event time as lines of text, for a terminal and a log: the axis, rows and words of the page. Pure.

A bar is what is complete (``█``, ``▒`` while paused), ``░`` what is unread, ``·`` what is left out; ``│`` marks the
watermark and the present, ``┆`` the limit of the alignment group, and ``▶`` a bar that continues past the edge. It
needs no colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.errors import printable
from watermark_source.monitor.axis import Axis, axis_of
from watermark_source.monitor.history import NO_HOLDER, HolderSpan, Point
from watermark_source.monitor.lanes import Lane, Look, behind_text, lanes_of, unread_text
from watermark_source.monitor.status_table import group_pieces, join_pieces, row_pieces, snapshot_lines
from watermark_source.monitor.three_clocks import behind_clock
from watermark_source.planning.watermark import MIN, is_moment
from watermark_source.status_model.source_status import SourceStatus

_WORD, _BEHIND, _UNREAD = 9, 16, 7
"""Characters of the columns beside the bars."""
_LEAST_BAR: Final = 16
_BARS: Final = 8
"""Lines for the snapshots of a source."""
_TICK_EVERY: Final = 16
"""Characters for which the axis has a tick at most."""
_PARTS: Final = " ▏▎▍▌▋▊▉"
_LEVELS: Final = "▁▂▃▄▅▆▇█"


class Line(NamedTuple):
    """A line of the picture, and how its row is drawn; ``None``: it is none of a row."""

    text: str
    look: Look | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the picture of a query is drawn from. Times are milliseconds since 1970-01-01 UTC."""

    at: int
    words: tuple[str, ...]
    """The sentences above the picture."""
    sources: tuple[SourceStatus, ...]
    watermark: int | None
    applied: int | None
    points: Sequence[Point] = ()
    """Of the source that is shown over time."""
    holders: Sequence[HolderSpan] = ()


def picture_lines(of: Shown, width: int, height: int | None = None) -> list[Line]:
    """Return the picture of a query in lines of at most ``width`` characters, 60 or more.

    Args:
        of: what is drawn.
        width: of a line.
        height: limit on the lines; of the rows those that hold the watermark and the lowest remain.
    """
    lanes = {source.source_name: lanes_of(source, of.at) for source in of.sources}
    column = min(width // 5, max((len(lane.name) for each in lanes.values() for lane in each), default=0))
    frame = _Frame(of, column, max(_LEAST_BAR, width - column - _WORD - _BEHIND - _UNREAD - 4))
    lines = [Line(line) for words in of.words for line in join_pieces([printable(words)], width)]
    if not of.sources:
        return lines
    for source in of.sources:
        pieces = (*group_pieces(source, of.at), *row_pieces(source, of.at))
        texts = (*join_pieces(pieces, width), *snapshot_lines(source, width=width, lines=_BARS))
        lines += map(Line, texts)
    head, foot = [Line(""), *frame.head()], [frame.ticks(), *frame.over_time()]
    room = None if height is None else max(1, (height - len(lines) - len(head) - len(foot)) // len(lanes) - 1)
    lines += head
    for name, each in lanes.items():
        if len(lanes) > 1:
            lines.append(Line(printable(name)))
        lines += [frame.row(lane) for lane in each[:room]]
        if room is not None and len(each) > room:
            lines.append(Line(f"and {count_text(len(each) - room, 'row')} more"))
    return [Line(line.text.rstrip()[:width], line.look) for line in [*lines, *foot]]


def shown_of_page(query: Mapping[str, Any], sources: Sequence[SourceStatus], at: int) -> Shown:
    """Return what is drawn of a query in ``page_json``: over time the source with the lowest watermark."""
    over = min(sources, key=lambda s: MIN if s.watermark is None else s.watermark, default=None)
    name = "" if over is None else over.source_name
    return Shown(
        at=at,
        words=(*query["sentences"], *map(_upstream, query["upstream"])),
        sources=tuple(sources),
        watermark=query["clocks"]["input_watermark"],
        applied=query["clocks"]["applied_watermark"],
        points=[Point(**point) for point in query["points"].get(name, ())],
        holders=[HolderSpan(**span) for span in query["holders"].get(name, ())],
    )


def _upstream(of: Mapping[str, Any]) -> str:
    return f"Writer {of['writer']} is the query {of['query']}: {of['why']}"


class _Frame:
    """The axis in so many characters, with a column at its left and two at its right."""

    def __init__(self, of: Shown, name: int, size: int) -> None:
        self._of, self._name, self._size = of, name, size
        self._axis = axis_of(of.sources, of.applied, of.at)
        limits = [source.group.limit for source in of.sources if source.group is not None]
        limit = min((each for each in limits if each is not None), default=None)
        marks = [(limit, "┆"), (of.at, "│"), (of.watermark, "│")]
        known = ((at, mark) for at, mark in marks if at is not None and is_moment(at))
        self._marks = {self._column(at): mark for at, mark in known if not self._axis.is_past(at)}

    def head(self) -> Iterator[Line]:
        """Yield the times of the watermark and of the present, and the time between them."""
        texts, mark, now = [" "] * self._size, self._of.watermark, self._column(self._of.at)
        past = " ›" if self._axis.is_past(self._of.at) else ""
        shown = f"now {self._axis.time_text(self._of.at)}{past}"
        begin = max(0, now + 1 - len(shown))
        texts[begin : begin + len(shown)] = shown
        if mark is not None and is_moment(mark):
            at, time = self._column(mark), self._axis.time_text(mark, self._of.at)
            for text in (f"watermark {time}", time):
                if at + len(text) < begin:
                    texts[at : at + len(text)] = text
                    break
        titles = f"{'behind':>{_BEHIND}} {'unread':>{_UNREAD}}"
        yield Line(f"{'':{self._name + _WORD + 2}}{''.join(texts)} {titles}")
        late = behind_clock(self._of.at, mark)
        if late is not None and mark is not None and now - self._column(mark) > 2:
            room = now - self._column(mark) - 1
            words = (f" {age_text(late)} behind the clock ", f" {age_text(late)} behind ", f" {age_text(late)} ", "")
            text = next(each for each in words if len(each) + 2 <= room or not each)
            yield Line(f"{'':{self._name + _WORD + 2 + self._column(mark)}}├{text.center(room, '─')}┤")

    def row(self, lane: Lane) -> Line:
        """Return a row: who, how it is, how far it is, and how much of it is unread."""
        behind = behind_text(behind_clock(self._of.at, lane.watermark))
        drawn = enumerate(_bar(lane, self._axis, self._size))
        bar = (self._marks.get(i, cell) if cell in " ·" else cell for i, cell in drawn)
        name = printable(lane.name)[: self._name]
        is_short = len(lane.word) <= _WORD
        word = "HOLDS" if lane.look is Look.HOLDS else lane.word if is_short else "elsewhere"
        text = f"{name:{self._name}} {word:{_WORD}} {''.join(bar)} {behind:>{_BEHIND}} {unread_text(lane):>{_UNREAD}}"
        return Line(text, lane.look)

    def ticks(self) -> Line:
        """Return the times of the axis."""
        texts = [" "] * self._size
        for at, text in self._axis.ticks(max(2, self._size // _TICK_EVERY)):
            begin = self._column(at) - len(text) // 2
            if begin >= 0 and begin + len(text) <= self._size:
                texts[begin : begin + len(text)] = text
        return Line(f"{'':{self._name + _WORD + 2}}{''.join(texts)}")

    def over_time(self) -> Iterator[Line]:
        """Yield who held it and how far the watermark was behind the clock, over the last minutes."""
        points, of = self._of.points, self._of
        if len(points) < 2:
            return
        clock, title = Axis(points[0].at, max(of.at, points[-1].at + 1)), self._name + _WORD + 1
        moments = [clock.left + (clock.right - clock.left) * (2 * i + 1) // (2 * self._size) for i in range(self._size)]
        yield Line("")
        if of.holders:
            last = of.holders[-1].name
            yield Line(f"{'who held it':{title}} {_ribbon(of.holders, moments, last)} {printable(last)}")
        value = behind_text(points[-1].behind)
        yield Line(f"{'behind clock':{title}} {_spark(points, moments)} {value:>{_BEHIND}}")
        ago = f"{age_text(clock.right - clock.left)} ago"
        yield Line(f"{'':{title}} {ago}{'now':>{self._size - len(ago)}}")

    def _column(self, at: int) -> int:
        return min(self._size - 1, int(self._axis.share(at) * self._size))


def _bar(lane: Lane, axis: Axis, size: int) -> str:
    """Return the bar of a row, filled up with blanks."""
    if lane.look is Look.LEFT_OUT:
        return "·" * size
    if lane.watermark is None:
        return (" " if lane.look is Look.OTHERS else "╌") * size
    if axis.is_past(lane.watermark):
        return _fill(lane) * (size - 1) + "▶"
    eighths = int(axis.share(lane.watermark) * size * 8)
    bar = _fill(lane) * (eighths // 8)
    if lane.look is not Look.PAUSED:
        bar += _PARTS[eighths % 8].strip()
    if lane.newest is not None:
        bar += "░" * (int(axis.share(lane.newest) * size) - len(bar))
    return bar.ljust(size)


def _fill(lane: Lane) -> str:
    return "▒" if lane.look is Look.PAUSED else "█"


def _ribbon(spans: Sequence[HolderSpan], moments: Sequence[int], present: str) -> str:
    names = [next((span.name for span in reversed(spans) if span.begin <= at), NO_HOLDER) for at in moments]
    cells = ["·" if name == NO_HOLDER else "█" if name == present else "▓" for name in names]
    begin = len(names) - next((i for i, name in enumerate(reversed(names)) if name != present), len(names))
    name = f" {printable(present)} "
    if present != NO_HOLDER and len(names) - begin >= len(name) + 2:
        cells[begin + 1 : begin + 1 + len(name)] = name
    return "".join(cells)


def _spark(points: Sequence[Point], moments: Sequence[int]) -> str:
    """Return a line of the watermark's delay, from zero to its highest."""
    highest = max([1, *(point.behind for point in points if point.behind is not None)])
    values: list[int | None] = []
    left = list(points)
    value = left[0].behind
    for at in moments:
        passed = [left.pop(0).behind for _ in range(len(left)) if left[0].at <= at]
        value = max((each for each in passed if each is not None), default=None) if passed else value
        values.append(value)
    return "".join(" " if each is None else _LEVELS[max(0, each) * 7 // highest] for each in values)
