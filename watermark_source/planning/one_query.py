"""Sources of one query plan as one: what each tells the others of its batch, and what the others make of it.

Spark asks the sources of a query for the ends of a batch one after the other, always in the same order. Those that were
asked before have planned this batch, and count with what they read in it; those that are asked later count with their
reach. So each may be read up to the lowest of these plus the drift, as a split within a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from watermark_source.planning.group import GroupMember, OtherMember, OtherMembers, counts_with, incomplete
from watermark_source.planning.watermark import Millis, saturating_add


class Outside(NamedTuple):
    """The members of the group in other queries, as the source saw them that was asked first."""

    minimum: Millis | None = None
    slowest: str | None = None

    @classmethod
    def of(cls, others: OtherMembers) -> Outside:
        """Return them as the store knows them."""
        return cls(others.minimum, None if others.slowest is None else others.slowest.name)


class Turn(NamedTuple):
    """What a source tells the other sources of its query once it has planned a batch."""

    source: str
    """Its name, for people."""
    member: str
    """Its name in the group."""
    number: int
    """How many times Spark has asked the source: the same for each source of a query once all have been asked."""
    report: GroupMember
    """As it is told to the whole group."""
    reach: Millis | None
    """The watermark that it surely has after its next batch; ``None`` if that is not known."""
    lead: Millis | None
    """The highest watermark that any split it reads in this batch may have after it; ``None`` if it reads nothing."""
    outside: Outside | None
    """``None`` while the group was not known completely."""


def within_query(others: OtherMembers, turns: Sequence[Turn], number: int, last_limit: Millis | None) -> OtherMembers:
    """Return the other members for a plan in which the sources of the query plan as one.

    Args:
        others: as the store knows them, without those in ``others.apart``.
        turns: the last turn of each other source of this query.
        number: which time it is that Spark asks.
        last_limit: stays in force if a source that is ``apart`` told nothing.
    """
    apart = [turn for turn in turns if turn.member in others.apart]
    if len(apart) < len(others.apart):
        return incomplete(others, last_limit, awaited=True)
    minimum, slowest = others.minimum, others.slowest
    # The first that is asked decides for the query what members of other queries allow.
    first = next((turn.outside for turn in apart if turn.number == number and turn.outside is not None), None)
    if first is not None:
        minimum, name = first
        slowest = None if name is None else _since(name, others.slowest)
    # The store may have left out for the first what it did not leave out here.
    for turn in apart if first is None else turns:
        at = counts_with(turn.report)
        if at is not None and turn.number == number - 1 and turn.reach is not None:
            at = turn.reach
        if at is not None and (minimum is None or at < minimum):
            minimum, slowest = at, _since(turn.source, others.slowest)
    return replace(others, minimum=minimum, slowest=slowest)


def _since(name: str, known: OtherMember | None) -> OtherMember:
    return known if known is not None and known.name == name else OtherMember(name)


class Shortfall(NamedTuple):
    """A source read less than it had told: others were allowed to go ahead of it by more than the drift, once."""

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
        reach: as it was told before the plan.
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
