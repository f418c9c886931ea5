"""How much of each table a snapshot has read, as bars, and what comes after it. Pure."""

from __future__ import annotations

from typing import Final

from watermark_source.durations import age_text, count_text, unbroken
from watermark_source.monitor.page.markup import Markup, percent, tag
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.source_status import SnapshotProgress, SourceStatus, rows_text

_MOST_CHUNKS: Final = 60
"""Chunks of a table that are marks of their own."""


def snapshot_picture(of: SourceStatus, now: int, level: int) -> Markup:
    """Return the snapshots of a source; empty where none is read. ``level``: of its heading, 2 for ``h2``."""
    if all(snapshot.done for snapshot in of.snapshots):
        return Markup("")
    tables = f"{of.source_name} · {count_text(len(of.snapshots), 'table')}"
    about = tag("figcaption", tag(f"h{level}", "How much of each table is read"), tag("p", tables, class_="soft"))
    bars = tag("ol", *map(_bar, of.snapshots), class_="tables")
    steps = tag("ol", *(tag("li", tag("b", step), " ", what) for step, what in _steps(of, now)), class_="steps")
    return tag("figure", about, bars, steps, class_="snapshots")


def _bar(of: SnapshotProgress) -> Markup:
    share = of.share or 0.0
    drawn = [tag("rect", class_="all", width="100%", height="100%")]
    if share:
        drawn.append(tag("rect", class_="read", width=percent(share), height="100%"))
    chunks = of.chunks_expected or 0
    if chunks <= _MOST_CHUNKS:
        ends = (percent(n / chunks) for n in range(1, chunks))
        drawn += [tag("line", x1=end, x2=end, y1="0", y2="100%") for end in ends]
    bar = tag("svg", *drawn, class_="share", aria_hidden="true")
    text = tag("span", tag("b", "?" if of.share is None else f"{int(100 * share)} %"), " ", unbroken(rows_text(of)))
    return tag("li", tag("b", of.log), bar, text, class_="table done" if of.done else "table")


def _steps(of: SourceStatus, now: int) -> list[tuple[str, str]]:
    began = min((snapshot.began for snapshot in of.snapshots if snapshot.began is not None), default=None)
    since = "" if began is None else f", as they were at {short_time(began, now)} or later"
    wait = "" if began is None else f"{age_text(max(0, now - began))} of them wait"
    return [
        (f"1. The tables{since}", "without a watermark"),
        ("2. The changes since then", f"{wait} in the log of the server, which must keep them until then".strip()),
        ("3. Windows close", "with the first change that is read after the snapshot"),
    ]
