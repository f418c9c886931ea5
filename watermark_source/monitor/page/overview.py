"""All queries of the page: a sentence about them together, and a line of each, the worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.axis import Axis
from watermark_source.monitor.history import Point
from watermark_source.monitor.page.markup import Markup, tag
from watermark_source.monitor.page.reader_choice import Asked
from watermark_source.monitor.page.verdict_html import clause, verdict_html
from watermark_source.monitor.page_content import Ended, Page, QueryView, upstream
from watermark_source.monitor.three_clocks import behind_clock, passed_by_operators
from watermark_source.monitor.verdict import State, Verdict
from watermark_source.status_model.hold_causes import NO_CLAUSE, Clause
from watermark_source.status_model.hold_texts import subject

_FLOOR: Final = 30_000
"""Milliseconds behind the clock that a line over time has room for at least: less is no mountain."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A query that runs, or has ended."""

    name: str
    verdict: Verdict
    view: QueryView | None
    ended: Ended | None = None
    cause: str = ""
    """What holds it, or in turn the query that does."""

    @property
    def id(self) -> str | None:
        """Its id; ``None`` of one that has ended and left nothing."""
        return None if self.view is None else self.view.id

    @property
    def late(self) -> int | None:
        """Milliseconds that its results are behind the clock; ``None`` if unknown, or if it has ended."""
        if self.view is None or self.ended is not None:
            return None
        return behind_clock(self.view.clocks.at, passed_by_operators(self.view.clocks))


_RANKS: Final = (State.FAILED, State.HELD, State.WAITS, State.ON_TIME, State.ENDED)


def shown_of(of: Page) -> list[Shown]:
    """Return the queries, the worst first, but a cause before what it holds."""

    def order(each: Shown) -> tuple[int, int, int]:
        causes = 0 if each.view is None else len(list(upstream(of, each.view)))
        return _RANKS.index(each.verdict.state), causes, -(each.late or 0)

    ended = [Shown(each.name, each.verdict(of.at), each.query, each) for each in of.ended]
    running = (Shown(view.name, view.verdict, view, cause=_cause(of, view)) for view in of.queries)
    return sorted([*ended, *running], key=order)


def _cause(of: Page, view: QueryView) -> str:
    chain = [view, *(of.queries[each.number] for each in upstream(of, view))]
    # What is furthest upstream may be on time.
    held = next(filter(None, (each.clocks.held for each in reversed(chain))), None)
    return "" if held is None else subject(held[1])


def overview(shown: Sequence[Shown], asked: Asked | None) -> Markup:
    """Return a sentence about all queries, and a line of each."""
    worst = shown[0].verdict.state
    held = [each.cause for each in shown if each.verdict.state is State.HELD]
    common = NO_CLAUSE
    if len(held) > 1 == len(set(held)) and held[0]:
        common = Clause(f"{'both' if len(held) == 2 else 'all'} wait for ", held[0])
    of_all = Verdict(state=worst, word=worst.kind.replace("-", " "), where=_of_all(shown), reason=common)
    titles = (tag("span", title) for title in ("", "query", "what it waits for", "over time", "behind the clock"))
    head = tag("div", *titles, class_="query titles", aria_hidden="true")
    lines = tag("ol", *(_line(each, asked) for each in shown), class_="queries")
    return tag("section", verdict_html(of_all), head, lines)


_NUMBERS: Final = ("", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def _of_all(shown: Sequence[Shown]) -> str:
    states = Counter(each.verdict.state for each in shown)
    failed = sum(each.ended is not None and each.verdict.state is State.FAILED for each in shown)
    counts = (
        (failed, "has failed", "have failed"),
        (states[State.FAILED] - failed, "does not follow its sources", "do not follow their sources"),
        (states[State.HELD], "is held back", "are held back"),
    )
    found = [(n, one if n == 1 else many) for n, one, many in counts if n]
    if not found:
        waits = states[State.WAITS]
        more = f", and {waits} wait{'s' * (waits == 1)}" if waits else ""
        return f"None of {len(shown)} queries is held back{more}"
    (first, what), *others = found
    number = _NUMBERS[first] if first < len(_NUMBERS) else count_text(first)
    return ", and ".join([f"{number} of {len(shown)} queries {what}", *(f"{n} {verb}" for n, verb in others)])


def _line(of: Shown, asked: Asked | None) -> Markup:
    verdict, late, (held, *_) = of.verdict, of.late, of.verdict.facts
    say = Clause(verdict.error) if verdict.error else verdict.reason
    if not str(say):
        # How late one on time is, the last column has.
        say = Clause(f"{held.value}{held.about}" if verdict.state is State.ON_TIME else verdict.where)
    points = () if of.view is None else next(iter(of.view.points.values()), ())
    how_late = "–" if late is None else age_text(max(0, late))
    shape = tag("span", verdict.state.shape, class_="shape", aria_hidden="true")
    name = tag("a", of.name, href=asked.address(query=of.id)) if asked and of.id else tag("b", of.name)
    what = tag("span", f"{verdict.word}: ", clause(say), class_="say")
    last = tag("span", how_late if of.ended is None else verdict.word, class_="late")
    return tag("li", shape, name, what, _spark(points), last, class_=f"query {verdict.state.kind}")


def _spark(points: Sequence[Point]) -> Markup:
    known = [(point.at, point.behind) for point in points if point.behind is not None]
    if len(known) < 2:
        return tag("span", class_="spark")
    axis, top = Axis(known[0][0], known[-1][0]), max(_FLOOR, *(behind for _, behind in known))
    line = " ".join(f"{1_000 * axis.share(at):.0f},{100 - 94 * max(0, behind) / top:.0f}" for at, behind in known)
    drawn = tag("polyline", points=line, vector_effect="non-scaling-stroke")
    return tag("svg", drawn, class_="spark", viewBox="0 0 1000 100", preserveAspectRatio="none", aria_hidden="true")
