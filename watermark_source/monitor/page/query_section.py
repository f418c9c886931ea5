"""A query on the page: its verdict, its pictures, its clocks and its tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watermark_source.durations import age_text, count_text, share_text, short_count, unbroken
from watermark_source.monitor.history import NO_HOLDER
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
from watermark_source.monitor.three_clocks import DelayVerdict, QueryClocks, behind_clock, passed_by_operators
from watermark_source.monitor.verdict import Since, State, holder_of, next_window, slow_batch, snapshots_of, span_text
from watermark_source.planning.holds import HeldBy
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import advice_of, as_sentence, holder_name, subject
from watermark_source.status_model.source_status import SnapshotProgress


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
    yield tag("dl", *_figures(of, "" if shown.ended is None else end, page.at), class_="figures")
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
    held = holder_of(of.clocks)
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


def _figure(title: str, value: str, about: str = "", *, is_held: bool = False) -> Markup:
    below = tag("dd", unbroken(about), class_="about")
    return tag("div", tag("dt", title), tag("dd", value), below, class_="held" if is_held else None)


def _figures(of: QueryView, ended: str, page_at: int) -> Iterator[Markup]:
    """Yield the figures that people ask for first.

    Args:
        of: the query.
        ended: how it ended, if it did.
        page_at: the present, later than the clocks of one that has ended.
    """
    snapshots = snapshots_of(of.clocks)
    yield from _of_snapshots(snapshots) if snapshots else _of_watermark(of, ended, page_at)
    clocks = of.clocks
    if clocks.has_windows:
        yield _figure("rows in windows", count_text(clocks.state_rows), _closed(clocks))
    read, late_rows = sum(s.rows.read for s in clocks.sources), sum(s.rows.late.rows for s in clocks.sources)
    of_all = f"{share_text(late_rows / max(1, read))} of {count_text(read)} read"
    about = f"{of_all}; this query has dropped some" if of.dropped else of_all
    if not (late_rows or of.dropped or clocks.unfollowed is not None):
        about = f"none of {count_text(read)} dropped as late"
    if late_rows or of.dropped or not ended:
        yield _figure("late rows", short_count(late_rows), about)


def _of_snapshots(of: Sequence[SnapshotProgress]) -> Iterator[Markup]:
    rows, expected = sum(each.rows for each in of), sum(each.expected or each.rows for each in of)
    yield _figure("read", count_text(rows), f"of about {count_text(expected)} rows" if expected > rows else "rows")
    rates, left = [each.rate for each in of if each.rate and not each.done], [each.left for each in of if each.left]
    yield _figure("rate", f"{count_text(sum(rates))} rows/s" if rates else "–", "since the first batch")
    yield _figure("time left", age_text(max(left)) if left else "–", "at this rate")


def _closed(of: QueryClocks) -> str:
    if of.applied_watermark is None:
        return "none closed yet"
    window = next_window(of)
    return f"closed up to {short_time(of.applied_watermark, of.at)}" if window is None else f"next: {window.times}"


def _of_watermark(of: QueryView, ended: str, page_at: int) -> Iterator[Markup]:
    clocks, now = of.clocks, of.clocks.at
    is_held = of.verdict.state is State.HELD and not ended
    out = passed_by_operators(clocks)
    late = behind_clock(now, out)
    about = "" if out is None or not is_moment(out) else f"complete up to {short_time(out, now)}"
    when = f" when it {ended}" if ended else ""
    yield _figure(f"behind the clock{when}", behind_text(late), about, is_held=is_held)
    if ended:
        waits = clocks.has_windows and is_moment(clocks.input_watermark)
        yield _figure(f"{ended} at", short_time(now, page_at), "no window closes until it runs again" if waits else "")
    else:
        yield _figure("held by", *_holder(of), is_held=is_held)
    lags = [source.lag for source in clocks.sources]
    unread = "?" if None in lags else short_count(sum(lag or 0 for lag in lags))
    yield _figure("unread", unread, _of_holder(clocks))


def _holder(of: QueryView) -> tuple[str, str]:
    """Return what results wait for, if it is a holder or a batch, and for how long."""
    held, batch = holder_of(of.clocks), slow_batch(of.clocks, of.why)
    if held is not None:
        limit = "the limit of the group" if held[1].by is HeldBy.SOURCE else ""
        long = "" if of.since is None else span_text(of.since, of.clocks.at)
        return subject(held[1]), ", ".join(filter(None, (limit, long)))
    if batch is not None:
        return batch.name, f"running {span_text(Since(batch.begin, is_least=False), batch.end)}"
    if of.clocks.first_batch is not None:
        return "the first batch", ""
    return ("slow batches" if of.why.verdict is DelayVerdict.BATCH_SLOW else NO_HOLDER), ""


def _of_holder(of: QueryClocks) -> str:
    held = holder_of(of)
    if held is None or held[1].lag is None:
        return ""
    return f"{short_count(held[1].lag) if held[1].lag else 'none'} in {held[1].name}"


def _clocks(of: QueryView, level: int, *, has_ended: bool) -> Markup:
    clocks = of.clocks
    rows = [
        tag("div", tag("dt", row.title), tag("dd", tag("b", row.value), " ", tag("span", row.about)))
        for row in clock_rows(clocks, of.freshness)
    ]
    about = (each for s in clocks.sources for each in (*group_pieces(s, clocks.at), *row_pieces(s, clocks.at)))
    pieces = [each for each in about if each not in of.open.notes]
    why = tag("p", f"{as_sentence(str(of.why))}.", class_="soft")
    return tag(
        "section",
        *((tag(f"h{level}", "Clocks"), tag("dl", *rows, class_="clocks")) if rows else ()),
        tag("p", " · ".join(pieces), class_="soft") if pieces else "",
        "" if has_ended else folded("The diagnosis in one sentence, as why(query) returns it", why),
    )
