"""The status page as HTML, complete without JavaScript. Pure.

A sentence, then the picture of event time, then the same over time, then the tables, folded. Of several queries each
has a line, and one is drawn whole: the chosen one, or the first. So a page is as long with ten thousand partitions or a
hundred queries as with a few. Where scripts run, ``page.js`` receives it again and changes what has changed, so that
focus, scrolling and what is unfolded stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final

from watermark_source.durations import count_text
from watermark_source.monitor.lanes import MOST
from watermark_source.monitor.open_windows import OpenWindow
from watermark_source.monitor.page.chain_picture import chain_picture, chains_of
from watermark_source.monitor.page.event_time_picture import event_time_picture
from watermark_source.monitor.page.example_picture import example_picture
from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.overview import Shown, overview, shown_of
from watermark_source.monitor.page.query_section import query_section
from watermark_source.monitor.page.reader_choice import ASKED_NOTHING, REFRESHES, Asked
from watermark_source.monitor.page.tables import changes_table, source_tables
from watermark_source.monitor.page.verdict_html import verdict_html
from watermark_source.monitor.page_content import Page
from watermark_source.monitor.three_clocks import QueryClocks
from watermark_source.monitor.verdict import State, Verdict
from watermark_source.monitor.window_facts import QueryAt
from watermark_source.planning.watermark import watermark_text
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import as_sentence

STYLE: Final = files(__package__).joinpath("page.css").read_text("utf-8")
SCRIPT: Final = files(__package__).joinpath("page.js").read_text("utf-8")
_LOST: Final = (
    "The driver has not answered",
    tag("span", id="silent", aria_hidden="true"),
    ": it has ended, is frozen, cannot be reached, or a proxy buffers. This is what it said last.",
)
_ROW_PX, _FRAME_PX = 36, 680


def page_html(of: Page, asked: Asked | None = ASKED_NOTHING) -> str:
    """Return the page. ``asked``: what a reader asked for; ``None`` for a page without links."""
    shown = shown_of(of)
    name = shown[0].name if len(shown) == 1 else f"{count_text(len(shown))} queries"
    return _whole(name, of.at, asked, *_main(of, shown, asked))


def framed_html(of: Page) -> str:
    """Return the page in a frame of its own, for a notebook: its style changes nothing outside, and it has no links."""
    rows = sum(min(MOST, len(s.splits)) for query in of.queries for s in query.clocks.sources)
    names = ", ".join(query.name for query in of.queries)
    style = f"width:100%;height:{_FRAME_PX + _ROW_PX * rows}px;border:0"
    return tag("iframe", sandbox="", title=f"Watermarks of {names}", style=style, srcdoc=page_html(of, None))


def window_html(of: QueryAt, found: OpenWindow) -> str:
    """Return why a window is open, with the picture of its query at that moment: a page for a file, without links."""
    at = max((source.at for source in of.sources), default=0)
    clocks = QueryClocks(at=at, sources=of.sources, input_watermark=of.sent, applied_watermark=of.applied)
    state = State.ENDED if of.has_ended else State.WAITS
    more = (f"{as_sentence(remark)}." for remark in found.remarks)
    word = "as its last batch left it" if of.has_ended else "as of its last report"
    verdict = Verdict(state=state, word=word, where=as_sentence(found.sentence), more=tuple(more))
    tables = (table for source in of.sources for table in source_tables(source, "the query", at))
    name = "Why a window is open"
    return _whole(name, at, None, verdict_html(verdict), event_time_picture(clocks, 2, "as of"), *tables)


def _whole(name: str, at: int, asked: Asked | None, *content: Markup) -> str:
    """Return a whole page; ``asked``: ``None`` for one that has no links, and stays as it is."""
    seconds = asked.refresh if asked else 0
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", name),
        tag("style", Markup(STYLE)),
    ]
    if seconds:
        head.append(tag("noscript", tag("meta", http_equiv="refresh", content=str(seconds))))
        head.append(tag("script", Markup(SCRIPT)))
    body = tag("body", _PATTERNS, _top(name, at, asked), tag("main", *content))
    document = tag("html", tag("head", *head), body, lang="en", data_refresh=str(seconds) if seconds else None)
    return f"<!DOCTYPE html>\n{document}\n"


def _pattern(name: str, size: int, angle: int, *shapes: Markup) -> Markup:
    return tag(
        "pattern", *shapes, id=name, width=str(size), height=str(size), patternUnits="userSpaceOnUse",
        patternTransform=f"rotate({angle})",
    )  # fmt: skip


_PATTERNS: Final = tag(
    "svg",
    tag(
        "defs",
        _pattern("paused", 7, 45, tag("rect", class_="ground", width="7", height="7"),
                 tag("rect", class_="stripe", width="2.4", height="7")),
        _pattern("beyond", 8, 45, tag("rect", class_="thin", width="1", height="8")),
    ),
    class_="patterns", width="0", height="0", aria_hidden="true",
)  # fmt: skip


def _top(name: str, at: int, asked: Asked | None) -> Markup:
    # A file or a notebook is read on another day, too.
    about: list[str] = [f"As of {short_time(at, at)} UTC" if asked else f"As of {watermark_text(at)[:19]} UTC"]
    if asked is not None:
        for seconds, word in zip(REFRESHES, (" · updates: ", " or "), strict=True):
            chosen, often = "true" if seconds == asked.refresh else None, f"every {seconds} s" if seconds else "off"
            about += [word, tag("a", often, href=asked.address(refresh=seconds), aria_current=chosen)]
        about += [" · ", tag("a", "JSON", href="status.json")]
    return tag("header", tag("h1", name), tag("p", *about, class_="soft"), class_="top")


def _main(of: Page, shown: Sequence[Shown], asked: Asked | None) -> Iterator[Markup]:
    if asked is not None and asked.refresh:
        yield tag("p", *_LOST, id="lost", class_="lost lead", role="status", hidden=True)
    for name, why in of.unreadable.items():
        yield tag("p", f"The status of {name} cannot be read: {why}", class_="lost")
    if not shown and not of.unreadable:
        yield verdict_html(_NOTHING)
        yield example_picture(of.at, 2)
    if len(shown) > 1:
        yield overview(shown, asked)
        yield from (chain_picture(chain, of.at, 2) for chain in chains_of(of))
    chosen = next((each for each in shown if asked and each.id is not None and each.id == asked.query), None)
    for each in [chosen] if chosen else shown[:1]:
        yield from query_section(each, of, asked, level=2 if len(shown) == 1 else 3)
    if of.changes:
        yield changes_table(of.changes)


_NOTHING: Final = Verdict(
    state=State.WAITS,
    word="no query yet",
    where="No query runs in this session",
    more=(
        (
            "The page shows each one from its first batch on, and for an hour those that have ended. This is how to "
            "read it: in this example example-1 holds the watermark back, example-2 is paused, and example-3 left out."
        ),
        "Of one that ended before: python -m watermark_source explain --checkpoint DIR",
    ),
)
