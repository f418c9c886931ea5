"""What is true of all rows of a picture: lines across them, their texts, and the times between them, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from watermark_source.monitor.axis import Axis
from watermark_source.monitor.page.flags import NARROW, WIDE, Flag, depth, placed, text_width
from watermark_source.monitor.page.markup import Markup, percent, tag

_TICKS: Final = {WIDE: 10, NARROW: 4}
_LEVEL_EM: Final = 1.35
_ENDS_EM: Final = 0.6


class Span(NamedTuple):
    """A horizontal line that measures a time, with its text."""

    kind: str
    """Its class."""
    begin: float
    end: float
    texts: tuple[str, ...]
    """The longest first: the first that fits is shown."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What lies over the rows, for one width. Places are shares of it."""

    axis: Axis
    width: int
    """``WIDE`` or ``NARROW``."""
    flags: Sequence[Flag]
    spans: Sequence[Span] = ()
    complete: float | None = None
    """Up to where all is complete."""
    beyond: float | None = None
    """From where on nothing is read."""

    @property
    def levels(self) -> int:
        """Levels of text above the rows."""
        return depth(placed(self.flags, self.width)) + len(self.spans)

    def drawn(self) -> Markup:
        """Return it as SVG."""
        kind = "over wide" if self.width == WIDE else "over narrow"
        parts = [*self._regions(), *self._ticks(), *self._lines(), *self._measures()]
        return tag("svg", *parts, class_=kind, aria_hidden="true")

    def _regions(self) -> Iterator[Markup]:
        if self.complete is not None:
            yield tag("rect", class_="complete", width=percent(self.complete), height="100%")
            yield self._region("complete", 0, self.complete)
        if self.beyond is not None and self.beyond < 1:
            yield tag("rect", class_="beyond", x=percent(self.beyond), width=percent(1 - self.beyond), height="100%")
            yield self._region("not read", max(self.beyond, *(span.end for span in self.spans), 0), 1)

    def _region(self, text: str, begin: float, end: float) -> Markup:
        """Return what a region is called, beside the times between lines; nothing where it has no room."""
        if not self.spans or text_width(text) > (end - begin) * self.width:
            return Markup("")
        level = depth(placed(self.flags, self.width))
        middle = percent((begin + end) / 2)
        return tag("text", text, class_="region", x=middle, y=_em(level, _ENDS_EM), dy=".3em", text_anchor="middle")

    def _ticks(self) -> Iterator[Markup]:
        for tick in self.axis.ticks(_TICKS[self.width]):
            share = self.axis.share(tick.at)
            x, half = percent(share), text_width(tick.text) / 2 / self.width
            yield tag("line", class_="grid", x1=x, x2=x, y1="0", y2="100%")
            if half <= share <= 1 - half:
                yield tag("text", tick.text, class_="tick", x=x, y="100%", dy="1.25em", text_anchor="middle")

    def _lines(self) -> Iterator[Markup]:
        """Yield the lines first, so that none crosses a text."""
        flags = placed(self.flags, self.width)
        for flag, level, _ in flags:
            x = percent(flag.share)
            if flag.is_line:
                yield tag("line", class_=f"mark {flag.kind}", x1=x, x2=x, y1=_em(level), y2="100%")
        for flag, level, is_left in flags:
            side = {"dx": "-5", "text_anchor": "end"} if is_left else {"dx": "5"}
            x, y = percent(flag.share), _em(level)
            yield tag("text", flag.text, class_=f"flag {flag.kind}", x=x, y=y, dy=".85em", **side)

    def _measures(self) -> Iterator[Markup]:
        first = depth(placed(self.flags, self.width))
        for level, span in enumerate(self.spans, first):
            room = (span.end - span.begin) * self.width
            text = next((text for text in span.texts if text_width(text) < room), span.texts[-1])
            y = _em(level, _ENDS_EM)
            begin, end = percent(span.begin), percent(span.end)
            tips = (tag("line", class_="tip", x1=x, x2=x, y1="-4", y2="4") for x in (begin, end))
            line = tag("line", x1=begin, x2=end, y1="0", y2="0")
            yield tag("svg", line, *tips, class_=f"span {span.kind}", y=y)
            # A text that is longer than its line stands beside it.
            place = {"x": begin, "dx": "-8", "text_anchor": "end"}
            if text_width(text) < room:
                place = {"x": percent((span.begin + span.end) / 2), "text_anchor": "middle"}
            yield tag("text", text, class_=f"measure {span.kind}", y=y, dy=".3em", **place)


def _em(level: int, more: float = 0.0) -> str:
    return f"{_LEVEL_EM * level + more:.2f}em"
