"""Sources of one query plan as one: what each publishes of its batch, and how the others use it.

Spark asks the sources of a query for the ends of a batch one after the other, always in the same order. Those that were
asked before have planned this batch, and count with what they read in it; those that are asked later count with their
reach. So each may be read up to the lowest of these plus the drift, as a split within a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from watermark_source.planning.group import (
    LONGEST_NAME,
    GroupMember,
    OtherMember,
    OtherMembers,
    counts_with,
    incomplete,
)
from watermark_source.planning.planner import Plan
from watermark_source.planning.watermark import Millis, saturating_add


class Outside(NamedTuple):
    """The members of the group in other queries, as the source saw them that was asked first."""

    minimum: Millis | None = None
    slowest: str | None = None
    since: Millis | None = None
    """Since when it has been the slowest."""

    @classmethod
    def of(cls, others: OtherMembers) -> Outside:
        """Return them as the store knows them."""
        name, since = (None, None) if others.slowest is None else others.slowest
        return cls(others.minimum, name and name[:LONGEST_NAME], since)


class Turn(NamedTuple):
    """What a source publishes to the other sources of its query once it has planned a batch."""

    source: str
    """Its name, for people."""
    member: str
    """Its name in the group."""
    number: int
    """How many times Spark has asked the source: the same for each source of a query once all have been asked."""
    report: GroupMember
    """As the whole group sees it."""
    reach: Millis | None
    """The watermark that it surely has after its next batch; ``None`` if that is not known."""
    lead: Millis | None
    """The highest watermark that any split it reads in this batch may have after it; ``None`` if it reads nothing."""
    outside: Outside | None
    """``None`` while the group was not known completely."""


def within_query(
    others: OtherMembers, turns: Sequence[Turn], number: int, last_limit: Millis | None
) -> tuple[OtherMembers, Outside | None]:
    """Return the other members for a plan in which the sources of the query plan as one, and those of other queries.

    Args:
        others: as the store knows them, without those in ``others.apart``.
        turns: the last turn of each other source of this query.
        number: which time it is that Spark asks.
        last_limit: stays in force if a source that is ``apart`` has published nothing.
    """
    apart = [turn for turn in turns if turn.member in others.apart]
    if len(apart) < len(others.apart):
        return incomplete(others, last_limit, awaited=True), None
    # The first that is asked decides for the query what members of other queries allow.
    first = next((turn.outside for turn in apart if turn.number == number and turn.outside is not None), None)
    outside = Outside.of(others) if first is None else first
    minimum = planned = outside.minimum
    slowest = None if outside.slowest is None else OtherMember(outside.slowest, outside.since)
    # The store may have left out for the first what it did not leave out here.
    for turn in apart if first is None else turns:
        at = counts_with(turn.report)
        if at is None:
            continue
        planned = at if planned is None else min(at, planned)
        if turn.number == number - 1 and turn.reach is not None:
            at = turn.reach
        if minimum is None or at < minimum:
            minimum, slowest = at, OtherMember(turn.source)
    return replace(others, minimum=minimum, slowest=slowest, without_reaches=planned), outside


class Shortfall(NamedTuple):
    """A source read less than its published reach: others could go ahead of it by more than the drift, once."""

    reach: Millis
    reached: Millis
    ahead: str
    """The source that is furthest ahead,"""
    lead: Millis
    """and up to which watermark it reads."""


def shortfall_of(
    report: GroupMember, reach: Millis | None, number: int, turns: Iterable[Turn], drift: int | None
) -> Shortfall | None:
    """Return by what a plan fell short of its reach, if a source that was asked before it relied on that.

    Args:
        report: of the plan.
        reach: as it was published before the plan.
        number: which time it was that Spark asked.
        turns: the last turn of each other source of the query.
        drift: in force in the group.
    """
    reached = counts_with(report)
    if reach is None or reached is None or reached >= reach or drift is None:
        return None
    leads = [(t.lead, t.source) for t in turns if t.number == number and t.lead is not None]
    lead, ahead = max(leads, default=(reached, ""))
    return Shortfall(reach, reached, ahead, lead) if lead > saturating_add(reached, drift) else None


class QueryTurns:
    """What a source knows of the turns of its query from one plan to the next."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._number = 0
        self._others: tuple[Turn, ...] = ()
        """Of the other sources, when this one was asked last."""
        self._outside: Outside | None = None
        self._slowest: OtherMember | None = None
        """In the last plan."""
        self._published: Turn | None = None
        self.shortfall: Shortfall | None = None
        """By what the last plan fell short of the reach published before it, if others relied on that."""

    @property
    def members(self) -> frozenset[str]:
        """The names of the query's other sources in the group."""
        return frozenset(turn.member for turn in self._others)

    @property
    def promises_more(self) -> bool:
        """Whether others count on rows that the last plan has left: the next one has to show their event times."""
        last = self._published
        at = None if last is None else counts_with(last.report)
        return last is not None and last.reach is not None and (at is None or last.reach > at)

    def begin(self, others: Iterable[Turn]) -> None:
        """Take in that Spark asks this source; ``others``: the last turn of each other source of the query."""
        self._number += 1
        self._others = tuple(others)
        self._outside = None

    def seen(self, others: OtherMembers, last_limit: Millis | None, now: Millis) -> OtherMembers:
        """Return the other members as they count for this source; ``last_limit`` is that of its last batch."""
        if others.apart:
            others, self._outside = within_query(others, self._others, self._number, last_limit)
        last, slowest = self._slowest, others.slowest
        if slowest is not None and slowest.since is None:
            slowest = last if last is not None and last.name == slowest.name else slowest._replace(since=now)
            others = replace(others, slowest=slowest)
        self._slowest = slowest
        return others

    def end(
        self, planned: Plan, report: GroupMember, member: str, drift: int | None, reach: Callable[[], Millis | None]
    ) -> Turn:
        """Return what is published of a plan, and note what it fell short of.

        Args:
            planned: the plan.
            report: as the whole group sees it.
            member: this source's name in the group.
            drift: in force in the group.
            reach: finds that of the plan.
        """
        # Up to what it has reported, no row is left: a plan that knows less of its logs may only report less.
        promised = self._published.reach if self._published is not None and self.promises_more else None
        self.shortfall = shortfall_of(report, promised, self._number, self._others, drift)
        others = planned.observation.others
        # Only who counts the others by their turns comes as far as they allow.
        joined = bool(self._others) and self.members <= others.apart
        outside = self._outside if others.ceiling is None else None
        reached, at = reach() if joined else None, counts_with(report)
        if reached is not None and at is not None and drift is not None:
            # One without a reach may hold this one back by what it counts with now.
            without = (counts_with(turn.report) for turn in self._others if turn.reach is None)
            reached = max(
                at, min([reached, *(saturating_add(lowest, drift) for lowest in without if lowest is not None)])
            )
        self._published = Turn(self._source, member, self._number, report, reached, planned.lead(), outside)
        return self._published
