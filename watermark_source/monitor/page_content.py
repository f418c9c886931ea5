"""What the status page shows, and the same as JSON. Pure; ``page`` draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from watermark_source.durations import age_text
from watermark_source.monitor.facts import Seen
from watermark_source.monitor.failure import Failure
from watermark_source.monitor.freshness import NO_FRESHNESS, Freshness
from watermark_source.monitor.history import NO_HOLDER, Change, HolderSpan, Point, holder_spans, until_read
from watermark_source.monitor.holder import Since, slow_batch
from watermark_source.monitor.open_windows import OpenWindow
from watermark_source.monitor.three_clocks import Diagnosis, QueryClocks, behind_clock, from_clock
from watermark_source.monitor.verdict import Verdict, ended_verdict, verdict_of
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import holder_name
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.status_model.status_json import status_to_json


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
    dropped: int = 0
    """Rows that its operators are known to have dropped as late, after they have combined those of a task."""

    @property
    def since(self) -> Since | None:
        """Since when what holds its watermark has held it; ``None`` if unknown, or if nothing holds it."""
        held = self.clocks.held
        name = "" if held is None else held[0].source_name
        at, points = self.held_since.get(name), self.points.get(name, ())
        return None if held is None or at is None else Since(at, is_least=bool(points) and at <= points[0].at)

    @property
    def verdict(self) -> Verdict:
        """The first sentences about it."""
        ahead = [until_read(points) for points in self.points.values() if points and points[-1].lag]
        known = [each for each in ahead if each is not None]
        in_all = max(known) if known and len(known) == len(ahead) else None
        return verdict_of(self.clocks, self.why, Seen(self.since, in_all, self.dropped))


class Ended(NamedTuple):
    """A query that has ended."""

    name: str
    at: int
    """When, milliseconds since 1970-01-01 UTC."""
    batch: int | None
    """The last batch that it had committed; ``None`` before the first."""
    error: Failure | None
    """The error that ended it; ``None`` without one."""
    query: QueryView | None = None
    """As its last batch left it; ``None`` if it reported none."""

    def verdict(self, now: int) -> Verdict:
        """The first sentences about it."""
        clocks, dropped = (None, 0) if self.query is None else (self.query.clocks, self.query.dropped)
        return ended_verdict(clocks, self.at, self.batch, self.error, now, dropped=dropped)


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

    @property
    def ids(self) -> Set[str]:
        """The ids of the queries that it can draw."""
        ended = (each.query.id for each in self.ended if each.query is not None)
        return {*(query.id for query in self.queries), *ended}


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
            each._asdict()
            | {
                "error": None if each.error is None else each.error.text,
                "sentences": each.verdict(of.at).lines,
                "query": None if each.query is None else _query_json(each.query, of),
            }
            for each in of.ended
        ],
        "unreadable": dict(of.unreadable),
        "changes": [change._asdict() | {"kind": change.kind.value} for change in of.changes],
    }


def holders_of(query: QueryView, source: SourceStatus, changes: Iterable[Change]) -> tuple[HolderSpan, ...]:
    """Return what held a source's watermark since its first point; ``changes``: of all queries, the oldest first."""
    points = query.points.get(source.source_name, ())
    if not points:
        return ()
    of = query.name, source.source_name
    holder = holder_name(source.holds[0]) if source.holds else NO_HOLDER
    found = [change for change in changes if (change.query, change.source) == of]
    last = max(query.clocks.at, points[-1].at)
    return holder_spans(found, points[0].at, last, holder, slow_batch(query.clocks, query.why))


class ClockRow(NamedTuple):
    """A time of a query, and what is to be known of it."""

    title: str
    value: str
    about: str

    def __str__(self) -> str:
        return f"{self.title}: {self.value}" + (f" ({self.about})" if self.about else "")


def clock_rows(of: QueryClocks, recent: Freshness = NO_FRESHNESS) -> Iterator[ClockRow]:
    """Yield the clocks of a query, of its operators from the sources to the sink, and its delays of the last minutes.

    Args:
        of: the clocks.
        recent: the delays of its last batches.
    """
    if of.input_watermark is not None:
        yield _moment_row("Watermark of the sources", of.input_watermark, of.at)
    if of.output_watermark is not None or of.no_output:
        yield _moment_row("Results are complete up to", of.output_watermark, of.at, of.no_output or "")
    if (oldest := of.unprocessed) is not None and oldest.split is not None:
        arrived = "at the start or before" if oldest.is_older else short_time(oldest.arrived, of.at)
        yield ClockRow("Oldest unread record arrived", arrived, f"in {oldest.split}")
    for operator in reversed(of.operators):
        row = _moment_row(f"{operator.name} has emitted up to", operator.eviction, of.at)
        has_own = operator.output != operator.eviction
        output = f"output watermark {short_time(operator.output, of.at)}" if has_own else ""
        yield row._replace(about=", ".join(filter(None, (row.about, output))))
    if (added := of.event_time_latency) is not None:
        yield ClockRow("The query itself adds", age_text(added), "from input to output watermark")
    for title, spread in zip(("Results behind the clock", "From arrival to commit, at most"), recent, strict=True):
        if spread is not None:
            batches = f"half of the batches; {age_text(spread.p99)} of 99 %, over the last 5 min"
            yield ClockRow(title, age_text(spread.p50), batches)


def _moment_row(title: str, at: int | None, now: int, unknown: str = "") -> ClockRow:
    late = behind_clock(now, at)
    return ClockRow(title, short_time(at, now), unknown if late is None else from_clock(late, age_text))


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
    held = query.clocks.held
    if held is None:
        return f"its status is: {query.why}"
    return f"its watermark is held by {holder_name(held[1])}: {held[1].why}"


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
        "sentences": query.verdict.lines,
        "held_since": dict(query.held_since),
        "holders": {
            source.source_name: [each._asdict() for each in holders_of(query, source, page.changes)]
            for source in query.clocks.sources
        },
        "points": {source: [each._asdict() for each in points] for source, points in query.points.items()},
        "sources": [status_to_json(source) for source in query.clocks.sources],
    }
