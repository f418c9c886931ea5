"""The tables behind the picture, folded: all that it shows, exactly, and what has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.history import Change, ChangeKind
from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.status_table import split_cells
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.source_status import GroupStatus, SourceStatus, most_interesting

MOST_CHANGES: Final = 200
"""Changes that the page shows, the newest; ``status.json`` has all."""

_SPLIT_COLUMNS: Final = {
    "partition": "partition", "holds": "holds back", "watermark (UTC)": "watermark", "status": "status",
    "since": "since", "position": "position", "unread": "lag", "why": "why",
}  # fmt: skip
"""Titles of columns, and those that they have in the terminal."""
_NUMBERS: Final = frozenset({"position", "unread", "since"})
_WRITER_TITLES: Final = ("writer", "status", "watermark (UTC)", "holds", "why")
_PEER_TITLES: Final = ("source", "status", "watermark (UTC)", "last report", "waited for")


def folded(title: str, *content: Markup) -> Markup:
    """Return content that a reader unfolds."""
    return tag("details", tag("summary", title), *content, class_="folded")


def table(
    caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]], held: frozenset[int] = frozenset()
) -> Markup:
    """Return a table; ``held``: the rows that are set off."""
    kinds = ["number" if title in _NUMBERS else None for title in titles]
    head = tag("tr", *(tag("th", t, scope="col", class_=kind) for t, kind in zip(titles, kinds, strict=True)))
    body = (_row(row, kinds, is_held=number in held) for number, row in enumerate(rows))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scrolls", role="region", tabindex="0", aria_label=caption)


def _row(cells: Sequence[str], kinds: Sequence[str | None], *, is_held: bool) -> Markup:
    rest = (tag("td", cell, class_=kind) for cell, kind in zip(cells[1:], kinds[1:], strict=True))
    return tag("tr", tag("th", cells[0], scope="row"), *rest, class_="held" if is_held else None)


def source_tables(of: SourceStatus, query: str, now: int) -> Iterator[Markup]:
    """Yield the tables of a source: its partitions, its writers, and the other sources of its alignment group."""
    if of.splits:
        ordered = most_interesting(of.splits, len(of.splits))
        total = count_text(of.splits_total, of.words.split)
        shown = "" if of.splits_total == len(ordered) else f", the {count_text(len(ordered))} most relevant"
        cells = split_cells(of, ordered, _SPLIT_COLUMNS.values(), now=now)
        held = frozenset(i for i, view in enumerate(ordered) if view.holds_back)
        caption = f"{query}: {total} of {of.source_name}{shown}; slowest first"
        title = f"The picture as a table: {total} of {of.source_name}{shown}, slowest first"
        yield folded(title, table(caption, [*_SPLIT_COLUMNS], cells, held))
    if of.writers:
        rows = (
            [w.name, w.status, watermark_text(w.watermark), "yes" if w.holds_back else "", w.why] for w in of.writers
        )
        caption = f"{query}: writers that announce watermarks to {of.source_name}"
        title = f"Watermarks announced by {count_text(len(of.writers), 'writer')}"
        yield folded(title, table(caption, _WRITER_TITLES, rows))
    if of.group is not None and of.group.peers:
        yield _peers(of.group, query)


def _peers(of: GroupStatus, query: str) -> Markup:
    waited = {True: "yes", False: "no: silent for longer than alignmentTimeToLive"}
    rows = (
        [p.name, p.status, watermark_text(p.watermark), f"{format_duration(p.silent)} ago", waited[p.is_waited_for]]
        for p in of.peers
    )
    others = count_text(len(of.peers), "other source")
    caption = f"{query}: other sources of the alignment group {of.name}, the most silent first"
    silent = frozenset(i for i, peer in enumerate(of.peers) if peer in of.silent)
    return folded(f"{others} of the alignment group {of.name}", table(caption, _PEER_TITLES, rows, silent))


def changes_table(changes: Sequence[Change]) -> Markup:
    """Return the last changes, the newest first."""
    newest = list(reversed(changes))[:MOST_CHANGES]
    titles = ("time (UTC)", "query", "source", "what", "of", "before", "after", "why")
    rows = (
        [watermark_text(at) if is_moment(at) else "", query, source, _what(kind, times), of, before, after, why]
        for at, query, source, kind, of, before, after, why, times in newest
    )
    number = "change" if len(newest) == 1 else count_text(len(newest), "change")
    title = f"The last {number} of holder, status and limit"
    return folded(title, table(f"{title}; newest first", titles, rows))


def _what(kind: ChangeKind, times: int) -> str:
    return kind.value + (f", {count_text(times)} times" if times > 1 else "")
