"""A picture with its heading: rows on one axis, under what is true of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.overlay import Overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is around the rows of a picture."""

    title: str
    caption: str
    columns: Sequence[str]
    """Titles: of the names, of the lanes, and of both numbers."""
    wide: Overlay
    narrow: Overlay

    def drawn(self, rows: Iterable[Markup], level: int, *below: Markup) -> Markup:
        """Return the picture. ``level``: of its heading, 2 for ``h2``."""
        return tag(
            "figure",
            tag("figcaption", tag(f"h{level}", self.title), tag("p", self.caption, class_="soft")),
            tag("div", *(tag("span", title) for title in self.columns), class_="heads", aria_hidden="true"),
            tag("div", self.wide.drawn(), self.narrow.drawn(), tag("ol", *rows, class_="rows"), class_="track"),
            *below,
            class_=f"picture wide-{self.wide.levels} narrow-{self.narrow.levels}",
        )
