"""A picture with its heading: rows on one axis, under what is true of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.overlay import Overlay


def figure(
    title: Markup, caption: str, columns: Sequence[str], over: Sequence[Overlay], rows: Iterable[Markup], *below: Markup
) -> Markup:
    """Return the picture.

    Args:
        title: its heading.
        caption: below the heading.
        columns: titles: of the names, of the lanes, and of both numbers.
        over: the rows, on a wide screen and on a narrow one.
        rows: drawn.
        below: the rows.
    """
    wide, narrow = over
    about = tag("figcaption", title, tag("p", caption, class_="soft"))
    heads = tag("div", *(tag("span", each) for each in columns), class_="heads", aria_hidden="true")
    track = tag("div", wide.drawn(), narrow.drawn(), tag("ol", *rows, class_="rows"), class_="track")
    kind = f"picture wide-{wide.levels} narrow-{narrow.levels}"
    return tag("figure", about, heads, track, *below, class_=kind)
