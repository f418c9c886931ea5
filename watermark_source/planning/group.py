"""Alignment group: how far ahead of its slowest member the others may be (FLIP-182, FLIP-217)."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add

LONGEST_NAME = 190
"""Characters of a group's name: two such make a key in every database."""


def limit(minimum: Millis | None, drift: int) -> Millis:
    """Return the highest watermark a member may have: ``minimum + drift``, saturating.

    ``MAX``, which is no limit, when no member counts (``minimum`` is None): all are idle, finished or failed
    (FLINK-31632).
    """
    return MAX if minimum is None else saturating_add(minimum, drift)


class MemberStatus(Enum):
    """Status of a member. ``counts_with`` gives the watermark that each one counts with.

    A member that fails reports nothing more: it is silent for its time-to-live, and counts again when it reports again
    (FLINK-40505).
    """

    WAITING = "waiting"
    """Has never had a watermark (FLINK-32414)."""
    HOLDING = "holding"
    """Has none yet, and the others wait until it has: it reads a snapshot that comes first."""
    STARTING = "starting"
    """Has rows, or a log that does not answer whether it has, and no watermark yet: it holds back members with a
    watermark, and none without."""
    ACTIVE = "active"
    IDLE = "idle"
    FINISHED = "finished"
    CLOCK = "clock"
    """Its event time is the system's clock (FLIP-326): it is never ahead, and no member waits for it."""


FIRST = Millis(MIN + 1)
"""Watermark that a STARTING member counts with."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member's last report. An idle member keeps its watermark, apart from its status (FLINK-32496)."""

    status: MemberStatus = MemberStatus.WAITING
    watermark: Millis | None = None


def counts_with(member: GroupMember) -> Millis | None:
    """Return the watermark a member counts with, ``None`` if it does not count."""
    if member.status is MemberStatus.HOLDING:
        return MIN
    if member.status is MemberStatus.STARTING:
        return FIRST
    return member.watermark if member.status is MemberStatus.ACTIVE else None


def without_rows(*, waits_for_first: bool, may_have_rows: bool) -> GroupMember:
    """Return the report of a source without a watermark of which no row is known.

    Args:
        waits_for_first: whether the other sources wait for its first watermark.
        may_have_rows: whether a log of it does not answer, which may have the oldest rows of all: its own source waits
            for it, too.
    """
    if waits_for_first:
        return GroupMember(MemberStatus.HOLDING)
    return GroupMember(MemberStatus.STARTING if may_have_rows else MemberStatus.WAITING)


# OtherMembers: the members of the alignment group in other sources, as a source knows them when it plans a batch.


class OtherMember(NamedTuple):
    """A member of the group that is not a split of this source: another source, in this query or in any other."""

    name: str
    since: Millis | None = None
    """Since when it has been the slowest."""

    def __str__(self) -> str:
        return self.name


class OwnWriter(NamedTuple):
    """A writer of the source's own log, which is behind the others that write to it."""

    name: str

    def __str__(self) -> str:
        return f"writer {self.name}"


SILENT_FROM: Final = 1_500
"""Milliseconds without a report from which another source of an alignment group is named as silent: each reports once a
second."""


class OwnSilence(NamedTuple):
    """The last time in which a source itself did not report to its group: its process was frozen, for example."""

    until: Millis
    """When it ended, by the wall clock."""
    lasted: int
    """Milliseconds."""
    was_waited_for: bool
    """Whether it was shorter than the source's ``alignmentTimeToLive``."""


class Peer(NamedTuple):
    """Another source of the group for the status, which may be silent: no plan depends on it."""

    name: str
    status: str
    """That of its last report: ``active``, ``idle``, ``waiting``, ...; ``coming`` before the first."""
    watermark: Millis | None
    silent: int
    """Milliseconds since its last report, when the store was asked last."""
    is_waited_for: bool
    """Whether it has reported within its ``alignmentTimeToLive``."""
    time_to_live: int | None = None
    """Its ``alignmentTimeToLive`` in milliseconds: waited for until it has been silent for so long."""

    @property
    def is_silent(self) -> bool:
        """Whether it has missed a report."""
        return self.silent >= SILENT_FROM


def silent_names(peers: Iterable[Peer]) -> frozenset[str]:
    """Return the names of the silent peers."""
    return frozenset(peer.name for peer in peers if peer.is_silent)


@dataclass(frozen=True, slots=True)
class OtherMembers:
    """The members in other sources, as of the last request to the group's store."""

    minimum: Millis | None = None
    """Lowest watermark of the members that count; ``MIN`` if one of them holds the group, ``None`` if none counts."""
    slowest: OtherMember | None = None
    members: int = 0
    ceiling: Millis | None = None
    """The last known limit, while the group is not known completely: no split goes beyond it. ``None``: it is known."""
    awaited: bool = False
    """Whether the group is not known completely because members have not joined yet; else the store does not answer."""
    idle: Millis | None = None
    """Highest watermark of the idle members; ``None`` if no idle member has one."""
    drift: int | None = None
    """Lowest max drift of the members, in milliseconds; ``None`` if none has one."""
    drift_of: str | None = None
    """Source name of the member with that drift."""
    peers: tuple[Peer, ...] = ()
    """Each of them, and those that are silent."""
    apart: Set[str] = frozenset()
    """Names of members that are not in ``minimum`` and ``slowest``: sources of this query, which count otherwise."""
    without_reaches: Millis | None = None
    """``minimum`` where a source of this query counts there with what it will only have read after its next batch."""

    @property
    def hold(self) -> bool:
        """Whether nothing may be read: a member reads its snapshot first, or no limit was known before."""
        return MIN in (self.minimum, self.ceiling)

    @property
    def planned(self) -> Millis | None:
        """Lowest watermark that the members have, once the batches are read that they have planned."""
        return self.minimum if self.without_reaches is None else self.without_reaches


NO_OTHERS = OtherMembers()


def drift_in_force(own: int | None, others: OtherMembers) -> int | None:
    """Return the max drift that a source applies: the lowest of the group's members, its own included.

    ``None`` for a source without one, which aligns nothing by event times.
    """
    return own if own is None or others.drift is None else min(own, others.drift)


def incomplete(known: OtherMembers, last_limit: Millis | None, *, awaited: bool = False) -> OtherMembers:
    """Return members that are not known completely, with the last limit as ceiling; ``None``: there was none yet."""
    return replace(known, ceiling=MIN if last_limit is None else last_limit, awaited=awaited)
