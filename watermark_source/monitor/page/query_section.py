"""A query on the page: its verdict, its pictures, its clocks and its tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from watermark_source.durations import count_text, short_count, unbroken
from watermark_source.monitor.lanes import behind_text
from watermark_source.monitor.page.event_time_picture import event_time_picture
from watermark_source.monitor.page.markup import Markup, tag, with_code
from watermark_source.monitor.page.over_time import over_time
from watermark_source.monitor.page.overview import Shown
from watermark_source.monitor.page.reader_choice import Asked
from watermark_source.monitor.page.snapshot_picture import snapshot_picture
from watermark_source.monitor.page.tables import folded, source_tables
from watermark_source.monitor.page.verdict_html import verdict_html
from watermark_source.monitor.page_content import Page, QueryView, clock_rows, holders_of, upstream
from watermark_source.monitor.status_table import group_pieces, row_pieces
from watermark_source.monitor.three_clocks import QueryClocks, behind_clock, passed_by_operators
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import advice_of, as_sentence, holder_name


def query_section(of: Shown, page: Page, asked: Asked | None, *, level: int) -> Iterator[Markup]:
    """Yield a query: its verdict, its pictures, and its tables.

    Args:
        of: the query.
        page: with the others.
        asked: what a reader asked for; ``None`` for a page without links.
        level: of the headings of its pictures, 3 where its own name is one.
    """
    view = of.view
    if level > 2:
        yield tag(f"h{level - 1}", of.name, class_="name")
    yield verdict_html(of.verdict, *(() if view is None or of.ended else (*_others(view), *_links(view, page, asked))))
    if view is not None:
        yield tag("div", *_pictures(view, page, of, level), class_="gone" if of.ended else None)


def _pictures(of: QueryView, page: Page, shown: Shown, level: int) -> Iterator[Markup]:
    end = "now" if shown.ended is None else shown.verdict.word
    sources = of.clocks.sources
    yield tag("dl", *_figures(of.clocks, "" if shown.ended is None else end), class_="figures")
    yield from (snapshot_picture(source, page.at, level) for source in sources if source.snapshots)
    if of.clocks.input_watermark is not None or all(snapshot.done for s in sources for snapshot in s.snapshots):
        yield event_time_picture(of.clocks, level, end, error=shown.verdict.error)
    for source in sources:
        name = source.source_name if len(sources) > 1 else ""
        points, holders = of.points.get(source.source_name, ()), holders_of(of, source, page.changes)
        yield over_time(points, holders, of.clocks.at, level, name=name, end=end)
    yield _clocks(of, level, has_ended=shown.ended is not None)
    for source in sources:
        yield from source_tables(source, of.name, of.clocks.at)


def _others(of: QueryView) -> Iterator[Markup]:
    """Yield what else there is to say: other sources that are held, and what windows wait for besides."""
    held = of.clocks.held
    for source in of.clocks.sources:
        if source.holds and held is not None and source is not held[0]:
            hold, to_do = source.holds[0], advice_of(source)
            text = f"Source {source.source_name} is held by {holder_name(hold)}: {hold.why}."
            yield tag("p", with_code(f"{text} {as_sentence(to_do)}." if to_do else text), class_="more")
    for note in of.open.notes:
        yield tag("p", with_code(f"{as_sentence(note).rstrip('.…')}."), class_="more")


def _links(of: QueryView, page: Page, asked: Asked | None) -> Iterator[Markup]:
    for each in upstream(page, of):
        found = page.queries[each.number]
        name = tag("a", each.query, href=asked.address(query=found.id)) if asked else each.query
        yield tag("p", f"Writer {each.writer} is the query ", name, f": {each.why}", class_="more")


def _figure(title: str, value: str, about: str = "") -> Markup:
    return tag("div", tag("dt", title), tag("dd", value), tag("dd", unbroken(about), class_="about"))


def _figures(of: QueryClocks, ended: str) -> Iterator[Markup]:
    """Yield the figures that people ask for first; ``ended``: how the query ended, if it did."""
    out, held = passed_by_operators(of), of.held
    about = "" if out is None or not is_moment(out) else f"complete up to {short_time(out, of.at)}"
    when = f" when it {ended}" if ended else ""
    yield _figure(f"behind the clock{when}", behind_text(behind_clock(of.at, out)), about)
    lags = [source.lag for source in of.sources]
    of_holder = "" if held is None or held[1].lag is None else f"{short_count(held[1].lag)} in {held[1].name}"
    yield _figure("unread", "?" if None in lags else short_count(sum(lag or 0 for lag in lags)), of_holder)
    if of.has_windows:
        yield _figure("rows in windows", count_text(of.state_rows))


def _clocks(of: QueryView, level: int, *, has_ended: bool) -> Markup:
    clocks = of.clocks
    rows = [
        tag("div", tag("dt", row.title), tag("dd", tag("b", row.value), " ", tag("span", row.about)))
        for row in clock_rows(clocks, of.freshness)
    ]
    about = (each for s in clocks.sources for each in (*group_pieces(s, clocks.at), *row_pieces(s, clocks.at)))
    pieces = [each for each in about if each not in of.open.notes]
    why = tag("p", f"{as_sentence(str(of.why))}.", class_="soft")
    listed = (tag(f"h{level}", "Clocks"), tag("dl", *rows, class_="clocks")) if rows else ()
    more = tag("p", " · ".join(pieces), class_="soft") if pieces else ""
    diagnosis = "" if has_ended else folded("The diagnosis in one sentence, as why(query) returns it", why)
    return tag("section", *listed, more, diagnosis)
