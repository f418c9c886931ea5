"""Queries in a row: a job a lane on one axis of event time, each below the one whose announcements it reads. Pure.

Above the first jobs is what they read, once. A bar is what a job has finished, its output watermark; the hollow box
behind it what the job above has finished. So a job can be no further than the one above, and what it adds itself is the
length of its box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.axis import axis_of
from watermark_source.monitor.lanes import Lane, Look
from watermark_source.monitor.page.figure import figure
from watermark_source.monitor.page.flags import NARROW, WIDE, Flag
from watermark_source.monitor.page.lane_svg import row
from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.overlay import Overlay
from watermark_source.monitor.page_content import Page, QueryView
from watermark_source.monitor.three_clocks import passed_by_operators
from watermark_source.planning.holds import NOTABLE, HeldBy
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_texts import subject
from watermark_source.status_model.source_status import SourceStatus


def chains_of(of: Page) -> Iterator[tuple[QueryView, ...]]:
    """Yield the queries that announce to each other: a cause before what it holds, each once."""
    queries, seen = {query.id: query for query in of.queries}, set[str]()
    above = {id_: [each.id for each in _writers(query, queries)] for id_, query in queries.items()}
    for first in queries.values():
        found, waiting = dict[str, QueryView](), [first.id]
        while waiting:
            id_ = waiting.pop()
            if id_ in found or id_ in seen:
                continue
            found[id_] = queries[id_]
            waiting += above[id_]
            waiting += [other for other, names in above.items() if id_ in names]
        seen |= found.keys()
        if len(found) > 1:
            yield tuple(_ordered(found, above))


def _writers(of: QueryView, queries: Mapping[str, QueryView]) -> list[QueryView]:
    """Return the queries of the page that announce to a query."""
    writers = (writer.query for source in of.clocks.sources for writer in source.writers)
    return [queries[id_] for id_ in dict.fromkeys(writers) if id_ is not None and id_ in queries and id_ != of.id]


def _ordered(found: Mapping[str, QueryView], above: Mapping[str, Sequence[str]]) -> Iterator[QueryView]:
    left = dict(found)
    while left:
        # Where queries announce in a ring, none is the first.
        ready = [id_ for id_ in left if not left.keys() & set(above[id_])] or [next(iter(left))]
        for id_ in ready:
            yield left.pop(id_)


def chain_picture(of: Sequence[QueryView], now: int, level: int) -> Markup:
    """Return the picture of a chain. ``level``: of its heading, 2 for ``h2``."""
    sources = [source for query in of for source in query.clocks.sources]
    axis = axis_of(sources, None, now)
    jobs = list(_jobs(of, now))
    most = max((_added(job) or 0 for job in jobs), default=0)
    slowest = next((job for job in jobs if most > NOTABLE and _added(job) == most), None)
    held = _first_hold(of)
    flags = [Flag("now", axis.share(now), f"now {axis.time_text(now)}")]
    if held is not None:
        flags.insert(0, Flag("held", axis.share(held[1]), f"{held[0]} is at {axis.time_text(held[1])}"))
    rows = []
    for job in jobs:
        added = _added(job)
        shown = replace(job, look=Look.HOLDS) if job is slowest else job
        rows.append(row(shown, axis, now, "" if added is None else age_text(added), "added"))
    return figure(
        tag(f"h{level}", " → ".join(job.name for job in jobs)),
        "what each job has finished, in event time (UTC)",
        ("job", "", "behind clock", "adds"),
        [Overlay(axis, width, flags) for width in (WIDE, NARROW)],
        rows,
        tag("p", _slowest_text(slowest, most, held and held[0]), class_="soft below"),
    )


def _jobs(of: Sequence[QueryView], now: int) -> Iterator[Lane]:
    """Yield a row for each job: a bar up to what it has finished, then up to what the job above it has.

    Before a job that reads no other one are rows for what it reads, unless a job before it reads the same.
    """
    queries, seen = {query.id: query for query in of}, set[tuple[str, frozenset[str]]]()
    for query in of:
        writers = _writers(query, queries)
        if not writers:
            for source in query.clocks.sources:
                read = source.source_name, frozenset(view.split.log for view in source.splits)
                if not source.is_announced and read not in seen:
                    seen.add(read)
                    yield _topic(source, now)
        finished = [passed_by_operators(writer.clocks) for writer in writers] or [query.clocks.newest]
        done, held = passed_by_operators(query.clocks), query.clocks.held
        above = min((mark for mark in finished if mark is not None), default=None)
        yield Lane(
            name=query.name,
            word="reads " + " and ".join(writer.name for writer in writers) if writers else "query",
            look=Look.COUNTS,
            watermark=done if is_moment(done) else None,
            newest=None if above is None else min(above, now),
            note="" if held is None else f"waits for {subject(held[1])}",
        )


def _topic(of: SourceStatus, now: int) -> Lane:
    """Return a row for what a first job reads: a bar up to the partition that is the furthest, at most up to now."""
    marks = [min(now, mark) for view in of.splits if (mark := view.watermark) is not None and is_moment(mark)]
    word = f"furthest of {count_text(of.splits_total, of.words.split)}"
    return Lane(name=of.source_name, word=word, look=Look.COUNTS, watermark=max(marks, default=None))


def _added(of: Lane) -> int | None:
    """Return how many milliseconds a job is behind the one above."""
    return None if of.watermark is None or of.newest is None else max(0, of.newest - of.watermark)


def _first_hold(of: Sequence[QueryView]) -> tuple[str, int] | None:
    """Return the partition that the first held query waits for, and where it is."""
    for query in of:
        held = query.clocks.held
        if held is not None and held[1].by is HeldBy.SPLIT and held[1].watermark is not None:
            return held[1].name, held[1].watermark
    return None


def _slowest_text(slowest: Lane | None, most: int, held: str | None) -> str:
    first = "A job can be no further than the one that it reads."
    if slowest is None:
        return f"{first} None adds more than {age_text(most)}."
    return f"{first} {slowest.name} adds the most, {age_text(most)}" + (f": look at {held}." if held else ".")
