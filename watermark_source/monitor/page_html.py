"""The status page as HTML, complete without JavaScript. Pure.

Every text from outside is escaped where it enters an element (``_tag``); lines over time are SVG with a text
beside them; colours follow ``prefers-color-scheme`` and are never the only sign. Where scripts run, ``SCRIPT`` loads
the page again and changes what has changed, so that focus, scrolling and what is unfolded stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, NamedTuple

from watermark_source.durations import count_text, format_duration, format_seconds
from watermark_source.monitor.freshness import NO_FRESHNESS, Freshness
from watermark_source.monitor.history import Change, Point
from watermark_source.monitor.open_windows import OpenWindow
from watermark_source.monitor.status_table import headline, snapshot_lines, split_cells
from watermark_source.monitor.three_clocks import DelayVerdict, Diagnosis, QueryClocks, clock_pieces
from watermark_source.monitor.window_facts import time_text
from watermark_source.planning.watermark import MIN, is_moment, watermark_text
from watermark_source.status_model.hold_texts import advice_of, as_sentence, subject
from watermark_source.status_model.source_status import SourceStatus, most_interesting
from watermark_source.status_model.status_json import status_to_json

SHOWN: Final = 500
"""Rows of a table; further ones are folded."""
REFRESHES: Final = (2, 5, 30, 0)
"""Seconds between two loads of the page that a reader can choose; 0: it is not loaded again."""
_CHANGES_SHOWN: Final = 50
_FRAMED_SPLITS: Final = 12
"""Rows for which a frame in a notebook has room; further ones are scrolled to."""
_WIDTH, _HEIGHT = 600, 60
_LOST = (
    "The page gets no answer: its driver has ended, is frozen, or cannot be reached. What follows is what it answered "
    "last."
)

_WORDS = {
    DelayVerdict.FRESH: ("good", "fresh"),
    DelayVerdict.QUIET: ("good", "quiet"),
    DelayVerdict.TRIGGER: ("good", "waits for the trigger"),
    DelayVerdict.DATA_OLD: ("fair", "old data"),
    DelayVerdict.ROWS_WAIT: ("poor", "rows wait"),
    DelayVerdict.BATCH_SLOW: ("poor", "slow batch"),
    DelayVerdict.UNKNOWN: ("fair", "starting"),
    DelayVerdict.UNFOLLOWED: ("poor", "not followed"),
}
STYLE: Final = """
:root{color-scheme:light dark;--ink:#1a1a1a;--soft:#555;--back:#fff;--line:#ccc;--good:#0a6b2d;--fair:#7a4d00;
--poor:#a3171b;--mark:#fff3d6;--plot:#1f5fa8}
@media (prefers-color-scheme:dark){:root{--ink:#eee;--soft:#b8b8b8;--back:#16181b;--line:#444;--good:#6fd48c;
--fair:#f0b95a;--poor:#ff8f8f;--mark:#3a3013;--plot:#7db4f0}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:1rem auto;max-width:80rem;
overflow-wrap:anywhere;
padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.25rem;border-top:2px solid var(--line);padding-top:1rem}h3{font-size:1.05rem}
.why{font-size:1.1rem}.good{color:var(--good)}.fair{color:var(--fair)}.poor{color:var(--poor)}.soft{color:var(--soft)}
a{color:var(--plot)}a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--plot)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;color:var(--soft);padding:.3rem 0}
caption span{display:inline-block;max-width:calc(100vw - 3rem)}
th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);
white-space:nowrap}td:last-child{white-space:normal;min-width:16rem}figure{margin:.5rem 0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}tr.held{background:var(--mark)}
pre,code{font:.85rem/1.4 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}polyline{fill:none;stroke:var(--plot);stroke-width:1.5}
text{fill:var(--soft);font:11px system-ui,sans-serif}
"""
SCRIPT: Final = """
(() => {
  const seconds = Number(document.documentElement.dataset.refresh);
  const change = (old, now) => {
    if (old.isEqualNode(now)) return;
    if (old.nodeName !== now.nodeName) { old.replaceWith(now); return; }
    if (old.nodeType === Node.TEXT_NODE) { old.data = now.data; return; }
    for (const {name} of [...old.attributes])
      if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of now.attributes) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...now.childNodes];
    after.forEach((node, i) => i < before.length ? change(before[i], node) : old.append(node));
    before.slice(after.length).forEach((node) => node.remove());
  };
  const load = async () => {
    try {
      const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(10000)});
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = page.title;
      change(document.body, page.body);
    } catch {
      document.getElementById("lost").hidden = false;
    }
    setTimeout(load, 1000 * seconds);
  };
  setTimeout(load, 1000 * seconds);
})();
"""
"""In ``change``: ``open`` is whether a reader has unfolded the rest of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryView:
    """A running query on the page. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    id: str
    clocks: QueryClocks
    why: Diagnosis
    open: OpenWindow
    """Why any window is open."""
    held_since: Mapping[str, int] = field(default_factory=dict)
    """By source: since when the present holder holds its watermark, as far as the page was there to see it."""
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """By source: its watermark and lag over time."""
    freshness: Freshness = NO_FRESHNESS


class Ended(NamedTuple):
    """A query that has ended."""

    name: str
    at: int
    """When, milliseconds since 1970-01-01 UTC."""
    batch: int | None
    """The last batch that it had committed; ``None`` before the first."""
    error: str | None
    """The first line of the error that ended it; ``None`` without one."""
    query: QueryView | None = None
    """As its last batch left it; ``None`` if it reported none."""

    def __str__(self) -> str:
        after = "before its first batch" if self.batch is None else f"after batch {count_text(self.batch)}"
        how = "has ended" if self.error is None else "has failed"
        return f"{self.name} {how} at {time_text(self.at)}, {after}" + (f": {self.error}" if self.error else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the page shows."""

    at: int
    queries: tuple[QueryView, ...] = ()
    ended: tuple[Ended, ...] = ()
    """Those of the last hour that do not run again."""
    changes: tuple[Change, ...] = ()
    """The oldest first."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Queries whose status cannot be read, and why."""


_CLOCKS: Final = (
    *("input_watermark", "applied_watermark", "output_watermark", "processing_time_watermark"),
    *("event_time_lag", "event_time_latency", "processing_time_latency", "state_rows"),
)


def page_json(of: Page) -> dict[str, Any]:
    """Return the page as JSON; a source has the fields of its report in Spark's progress events."""
    return {
        "at": of.at,
        "queries": [_query_json(query, of) for query in of.queries],
        "ended": [
            each._asdict() | {"query": None if each.query is None else _query_json(each.query, of)} for each in of.ended
        ],
        "unreadable": dict(of.unreadable),
        "changes": [change._asdict() | {"kind": change.kind.value} for change in of.changes],
    }


class Upstream(NamedTuple):
    """A query of the page that announces the watermark by which a source is held."""

    writer: str
    """Its name as a writer of the source's topic."""
    number: int
    """Its place on the page."""
    query: str
    announced: int | None
    """The watermark that it announced last,"""
    since: int | None
    """and when, milliseconds since 1970-01-01 UTC."""
    why: str
    """What holds it in turn, as a sentence that begins with "its"."""

    def __str__(self) -> str:
        return f"Writer {self.writer} is the query {self.query}: {self.why}"


def upstream(of: Page, query: QueryView) -> Iterator[Upstream]:
    """Yield the queries of the page that hold a query's watermark: the nearest first, then those that hold these."""
    places = {each.id: number for number, each in enumerate(of.queries)}
    waiting, known = [query], {query.id}
    while waiting:
        for source in waiting.pop(0).clocks.sources:
            for writer in source.writers:
                if writer.holds_back and writer.query in places and writer.query not in known:
                    number = places[writer.query]
                    found = of.queries[number]
                    known.add(writer.query)
                    waiting.append(found)
                    yield Upstream(writer.name, number, found.name, writer.announced, writer.since, _what_holds(found))


def _what_holds(query: QueryView) -> str:
    lowest = min(
        (source for source in query.clocks.sources if source.holds),
        key=lambda source: MIN if source.watermark is None else source.watermark,
        default=None,
    )
    if lowest is None:
        return f"its status is: {query.why}"
    return f"its watermark is held by {subject(lowest.holds[0])}: {lowest.holds[0].why}"


def _query_json(query: QueryView, page: Page) -> dict[str, Any]:
    return {
        "id": query.id,
        "name": query.name,
        "verdict": query.why.verdict.value,
        "why": str(query.why),
        "open": query.open.sentence,
        "remarks": list(query.open.remarks),
        "upstream": [each._asdict() for each in upstream(page, query)],
        "clocks": {name: getattr(query.clocks, name) for name in _CLOCKS},
        "freshness": {name: spread and spread._asdict() for name, spread in query.freshness._asdict().items()},
        "held_since": dict(query.held_since),
        "points": {source: [each._asdict() for each in points] for source, points in query.points.items()},
        "sources": [status_to_json(source) for source in query.clocks.sources],
    }


def page_html(of: Page, refresh: int = REFRESHES[1]) -> str:
    """Return the page; ``refresh``: seconds after which a browser loads it again, 0 for never."""
    return "".join(_document(of, refresh))


def framed_html(of: Page) -> str:
    """Return the page in a frame of its own, for a notebook: its style changes nothing outside, and it has no links."""
    height = 480 + 40 * min(_FRAMED_SPLITS, sum(len(s.splits) for query in of.queries for s in query.clocks.sources))
    names = ", ".join(query.name for query in of.queries)
    return (
        f'<iframe sandbox="" title="Watermarks of {escape(names)}" style="width:100%;height:{height}px;border:0" '
        f'srcdoc="{escape("".join(_document(of, None)))}"></iframe>'
    )


def _document(of: Page, refresh: int | None) -> Iterator[str]:
    queries = f"{len(of.queries)} quer{'y' if len(of.queries) == 1 else 'ies'}"
    again = f' data-refresh="{refresh}"' if refresh else ""
    yield f'<!DOCTYPE html>\n<html lang="en"{again}>'
    yield '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Watermarks of {queries}</title><style>{STYLE}</style>"
    if refresh:
        yield f'<noscript><meta http-equiv="refresh" content="{refresh}"></noscript><script>{SCRIPT}</script>'
    yield f"</head><body><header><h1>Watermarks of {queries}</h1>"
    if refresh:
        yield f'<p id="lost" class="poor" role="status" hidden>{_LOST}</p>'
    yield f'<p class="soft">As of {escape(time_text(of.at))}.'
    if refresh is not None:
        links = (
            f"<strong>{_every(seconds)}</strong>"
            if seconds == refresh
            else f'<a href="?refresh={seconds}">{_every(seconds)}</a>'
            for seconds in REFRESHES
        )
        yield f' Loads again {", ".join(links)}. <a href="status.json">As JSON</a>'
    yield "</p>"
    if len(of.queries) > 1:
        items = (f'<li><a href="#q{i}">{escape(q.name)}</a>: {_word(q.why)}</li>' for i, q in enumerate(of.queries))
        yield f'<nav aria-label="Queries"><ul>{"".join(items)}</ul></nav>'
    yield "</header><main>"
    if not of.queries and not of.unreadable:
        yield "<p>No query of this session runs. Of one that has ended: "
        yield "<code>python -m watermark_source explain --checkpoint DIR</code></p>"
    for each in of.ended:
        yield _tag("p", str(each), "poor" if each.error else "soft")
    for name, why in of.unreadable.items():
        yield _tag("p", f"The status of {name} cannot be read: {why}", "poor")
    for i, query in enumerate(of.queries):
        yield from _query(query, i, of)
    if of.changes:
        yield from _history(of.changes)
    yield "</main></body></html>\n"


def _every(seconds: int) -> str:
    return f"every {seconds} s" if seconds else "never"


def _tag(name: str, text: str, kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f"<{name}{shown}>{escape(text)}</{name}>"


def _word(why: Diagnosis) -> str:
    return _tag("strong", _WORDS[why.verdict][1], _WORDS[why.verdict][0])


def _query(of: QueryView, number: int, page: Page) -> Iterator[str]:
    now = page.at
    yield f'<section aria-labelledby="q{number}"><h2 id="q{number}">{escape(of.name)}</h2>'
    yield _tag("p", str(of.why), f"why {_WORDS[of.why.verdict][0]}")
    for source in of.clocks.sources:
        for held in source.holds[:1]:
            whose = f" of source {source.source_name}" if len(of.clocks.sources) > 1 else ""
            since = of.held_since.get(source.source_name)
            how_long = "" if since is None else f" since {time_text(since)} ({format_seconds(now - since)}) at least"
            yield _tag("p", f"The watermark{whose} is held by {subject(held)}{how_long}: {held.why}{_without(source)}")
            if to_do := advice_of(source):
                yield _tag("p", f"{as_sentence(to_do)}.")
    for each in upstream(page, of):
        linked = f'<a href="#q{each.number}">{escape(each.query)}</a>'
        yield f"<p>Writer {escape(each.writer)} is the query {linked}: {escape(each.why)}</p>"
    yield _tag("p", f"{of.open.sentence[:1].upper()}{of.open.sentence[1:]}")
    if of.open.remarks:
        yield f"<ul>{''.join(_tag('li', remark) for remark in of.open.remarks)}</ul>"
    yield f"<h3>Clocks</h3><ul>{''.join(_tag('li', piece) for piece in clock_pieces(of.clocks))}</ul>"
    for source in of.clocks.sources:
        yield from _source(source, of, now)
    yield "</section>"


def _without(of: SourceStatus) -> str:
    """Return what the watermark would be without the splits that hold it."""
    if of.without_holder is None:
        return ""
    later = ""
    if of.watermark is not None and is_moment(of.watermark):
        later = f", {format_duration(of.without_holder - of.watermark)} later"
    return f". Without what holds it, it would be {time_text(of.without_holder)}{later}"


_WRITER_TITLES = ("writer", "status", "watermark (UTC)", "holds back", "why")
_PEER_TITLES = ("source", "status", "watermark (UTC)", "last report", "waited for")
_SPLIT_COLUMNS = {
    "partition": "partition", "holds back": "holds back", "watermark (UTC)": "watermark", "status": "status",
    "since": "since", "position": "position", "unread": "lag", "why": "why",
}  # fmt: skip
"""Titles of columns, and those that they have in the terminal."""


def _source(of: SourceStatus, query: QueryView, now: int) -> Iterator[str]:
    yield _tag("h3", f"Source {of.source_name}")
    pieces = (piece for piece in headline(of, now=now)[1:] if piece not in query.open.remarks)
    yield f"<ul>{''.join(_tag('li', piece) for piece in pieces)}</ul>"
    if of.snapshots:
        yield _tag("pre", "\n".join(snapshot_lines(of, width=100)))
    yield from _lines_over_time(query.points.get(of.source_name, ()))
    if of.group is not None and of.group.peers:
        silent = of.group.silent
        peers = (
            [
                peer.name,
                peer.status,
                watermark_text(peer.watermark),
                f"{format_duration(peer.silent)} ago",
                "yes" if peer.is_waited_for else "no: silent for longer than alignmentTimeToLive",
            ]
            for peer in of.group.peers
        )
        whose = f"{query.name}: other sources of the alignment group {of.group.name}, the most silent first"
        yield from _table(
            whose, _PEER_TITLES, peers, marked=(i for i, peer in enumerate(of.group.peers) if peer in silent)
        )
    if of.writers:
        rows = (
            [w.name, w.status, watermark_text(w.watermark), "yes" if w.holds_back else "", w.why] for w in of.writers
        )
        yield from _table(f"{query.name}: writers that announce watermarks to {of.source_name}", _WRITER_TITLES, rows)
    if of.splits:
        ordered = most_interesting(of.splits, len(of.splits))
        total = count_text(of.splits_total)
        shown = "" if of.splits_total == len(ordered) else f", the {count_text(len(ordered))} most relevant"
        caption = f"{query.name}: partitions of {of.source_name}, {total}{shown}; slowest first"
        cells = split_cells(of, ordered, [*_SPLIT_COLUMNS.values()], now=now)
        held = {i for i, view in enumerate(ordered) if view.holds_back}
        yield from _table(caption, [*_SPLIT_COLUMNS], cells, numbers={5, 6}, marked=held)


def _table(
    caption: str,
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    marked: Iterable[int] = (),
    most: int = SHOWN,
) -> Iterator[str]:
    """Yield a table, and a second one, folded, with the rows behind the first ``most``."""
    right, held, every = frozenset(numbers), frozenset(marked), list(rows)
    yield from _one_table(caption, titles, every[:most], right, held)
    if len(every) > most:
        more = f"{count_text(len(every) - most)} more"
        yield f"<details><summary>{more}</summary>"
        yield from _one_table(f"{caption}; {more}", titles, every[most:], right, frozenset())
        yield "</details>"


def _one_table(
    caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int], held: frozenset[int]
) -> Iterator[str]:
    yield f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}">'
    yield f"<table><caption>{_tag('span', caption)}</caption><thead><tr>"
    for i, title in enumerate(titles):
        yield f'<th scope="col"{_NUMBER if i in right else ""}>{escape(title)}</th>'
    yield "</tr></thead><tbody>"
    for row_number, row in enumerate(rows):
        yield '<tr class="held">' if row_number in held else "<tr>"
        yield f'<th scope="row">{escape(row[0])}</th>'
        yield "".join(f"<td{_NUMBER if i in right else ''}>{escape(cell)}</td>" for i, cell in enumerate(row[1:], 1))
        yield "</tr>"
    yield "</tbody></table></div>"


_NUMBER = ' class="n"'


def _lines_over_time(points: Sequence[Point]) -> Iterator[str]:
    if len(points) < 2:
        return
    yield from _plot(
        "Watermark behind the clock", [(p.at, p.behind) for p in points], lambda v: format_duration(round(v))
    )
    yield from _plot(
        "Fastest partition ahead of the slowest", [(p.at, p.drift) for p in points], lambda v: format_duration(round(v))
    )
    yield from _plot("Unread rows", [(p.at, p.lag) for p in points], lambda v: count_text(round(v)))


def _plot(title: str, values: Sequence[tuple[int, int | None]], text: Any) -> Iterator[str]:
    """Yield a line over time, with its lowest, highest and last value as text."""
    known = [value for _, value in values if value is not None]
    if not known:
        return
    first, last = values[0][0], values[-1][0]
    low, high = min(known), max(known)
    over = f"{time_text(first // 1_000 * 1_000)} to {time_text(last // 1_000 * 1_000)}"
    label = f"{title}, {over}: lowest {text(low)}, highest {text(high)}, now {text(known[-1])}"
    yield f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
    yield f'aria-label="{escape(label)}">'
    line: list[str] = []
    for at, value in [*values, (last, None)]:
        if value is not None:
            x = _WIDTH * (at - first) / max(1, last - first)
            y = _HEIGHT - 4 - (_HEIGHT - 8) * (value - low) / max(1, high - low)
            line.append(f"{x:.1f},{y:.1f}")
        elif line:
            yield f'<polyline points="{" ".join(line)}"/>'
            line = []
    yield f"</svg>{_tag('figcaption', label, 'soft')}</figure>"


def _history(changes: Sequence[Change]) -> Iterator[str]:
    newest = list(reversed(changes))
    several = len({change.query for change in changes}) > 1
    titles = ("time (UTC)", *(("query",) if several else ()), "source", "what", "of", "before", "after", "why")
    rows = [
        [
            watermark_text(change.at) if is_moment(change.at) else "",
            *((change.query,) if several else ()),
            change.source,
            change.kind.value + (f", {count_text(change.times)} times" if change.times > 1 else ""),
            change.subject,
            change.before,
            change.after,
            change.why,
        ]
        for change in newest
    ]
    yield "<section><h2>Changes</h2>"
    caption = f"The last {count_text(len(newest))} changes of holder, status and limit; newest first"
    yield from _table(caption, titles, rows, most=_CHANGES_SHOWN)
    yield "</section>"
