"""Alignment group: how far ahead of its slowest member the others may be (FLIP-182, FLIP-217)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from watermark_source.alignment.aggregator import Aggregator, latest, latest_of_all, removed
from watermark_source.durations import format_duration
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, MIN, Millis, saturating_add

K = TypeVar("K", bound=Hashable)

LONGEST_NAME = 190
"""Characters of a group's name: two such make a key in every database."""


def limit(minimum: Millis | None, drift: int) -> Millis:
    """Return the highest watermark a member may have: ``minimum + drift``, saturating.

    ``MAX``, which is no limit, when nobody counts (``minimum`` is None): all idle, finished or failed (FLINK-31632).
    """
    return MAX if minimum is None else saturating_add(minimum, drift)


@dataclass(frozen=True, slots=True)
class GroupView(Generic[K]):
    """A group at one moment, from the watermarks of the members that count."""

    minimum: Millis | None
    """None when nobody counts."""
    limit: Millis
    slowest: K | None
    """The member that holds the group back; the first of equals."""

    def drift_of(self, watermark: Millis) -> int:
        """Return how far ``watermark`` is ahead of the slowest member, in milliseconds; never negative."""
        return 0 if self.minimum is None else max(0, watermark - self.minimum)

    def holds_back(self, watermark: Millis) -> bool:
        """Whether a member with this watermark has to pause; being exactly at the limit is allowed."""
        return watermark > self.limit


def view(members: Iterable[tuple[K, Millis]], drift: int) -> GroupView[K]:
    """Return the group's view from ``(member, watermark)`` of every member that counts.

    Only active members with a watermark count; the caller leaves out those that are idle, finished, failed, never had
    data, or go with the system clock (FLIP-326). O(members).
    """
    slowest: K | None = None
    minimum: Millis | None = None
    for key, watermark in members:
        if minimum is None or watermark < minimum:
            slowest, minimum = key, watermark
    return GroupView(minimum, limit(minimum, drift), slowest)


class MemberStatus(Enum):
    """Life of a member. Only an active one counts, and one that holds."""

    WAITING = "waiting"
    """Has never had a watermark (FLINK-32414)."""
    HOLDING = "holding"
    """Has none yet, and nobody goes on before it has: it reads a snapshot that comes first."""
    STARTING = "starting"
    """Has rows and no watermark yet: it comes before all who have one, and holds nobody who has none."""
    ACTIVE = "active"
    IDLE = "idle"
    FINISHED = "finished"
    FAILED = "failed"
    """Failed, or silent for its time-to-live; counts again when it reports again (FLINK-40505)."""
    CLOCK = "clock"
    """Its event time is the system's clock (FLIP-326): ahead of nobody, and nobody waits for it."""


FIRST = Millis(MIN + 1)
"""What one counts with that starts."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member's last report. An idle member keeps its watermark, apart from its status (FLINK-32496)."""

    status: MemberStatus = MemberStatus.WAITING
    watermark: Millis | None = None


@dataclass(frozen=True, slots=True)
class Group(Generic[K]):
    """A named group with one drift, in milliseconds. Keys tell members of all sources apart.

    With ``wait_for_first`` a member that never had data holds the group at the start of time instead of not counting.
    """

    name: str
    drift: int
    wait_for_first: bool = False
    members: Mapping[K, GroupMember] = field(default_factory=dict)
    counting: Aggregator[K] = field(default_factory=Aggregator)

    @property
    def limit(self) -> Millis:
        """The highest watermark a member may have."""
        return limit(self.counting.minimum, self.drift)

    def view(self) -> GroupView[K]:
        """Return who is slowest, of equals the one that joined first; O(members)."""
        counts = ((key, _counts(self, member)) for key, member in self.members.items())
        return view(((key, watermark) for key, watermark in counts if watermark is not None), self.drift)

    def held_back(self) -> frozenset[K]:
        """Return the members that have to pause."""
        highest = self.limit
        return frozenset(k for k, watermark in self.counting.values.items() if watermark > highest)


def join(group: Group[K], key: K, *, drift: int) -> Group[K]:
    """Add a member, waiting for its first watermark; joining again changes nothing.

    Raises:
        UsageError: the member has another drift than the group.
    """
    if drift != group.drift:
        raise other_drift(key, drift, group.name, group.drift)
    if key in group.members:
        return group
    return _put(group, key, GroupMember())


def other_drift(key: object, drift: int, group: str, group_drift: int) -> UsageError:
    """Return the error of a member that has another drift than its group."""
    return UsageError(
        f"member {key} of alignment group {group} has a max drift of {format_duration(drift)}; the group has "
        f"{format_duration(group_drift)}, and one group has one drift: give all its members the same"
    )


def leave(group: Group[K], key: K) -> Group[K]:
    """Remove a member, if it is there."""
    members = {k: m for k, m in group.members.items() if k != key}
    return replace(group, members=members, counting=removed(group.counting, key))


def report(group: Group[K], key: K, watermark: Millis) -> Group[K]:
    """Take a member's watermark; it is active from now on. Watermarks may go back, when a member restarts."""
    _known(group, key)
    return _put(group, key, GroupMember(MemberStatus.ACTIVE, watermark))


def report_all(group: Group[K], watermarks: Mapping[K, Millis]) -> Group[K]:
    """Take the watermarks of many members at once, as ``report`` does of one: O(members) for all of them together."""
    for key in watermarks:
        _known(group, key)
    reported = {key: GroupMember(MemberStatus.ACTIVE, watermark) for key, watermark in watermarks.items()}
    return replace(group, members={**group.members, **reported}, counting=latest_of_all(group.counting, watermarks))


def change(group: Group[K], key: K, status: MemberStatus) -> Group[K]:
    """Take a member's status; it keeps its watermark. A member without one waits instead of being active."""
    watermark = _known(group, key).watermark
    if status is MemberStatus.ACTIVE and watermark is None:
        status = MemberStatus.WAITING
    return _put(group, key, GroupMember(status, watermark))


def _known(group: Group[K], key: K) -> GroupMember:
    try:
        return group.members[key]
    except KeyError:
        raise UsageError(f"{key} is not a member of alignment group {group.name}; it has to join first") from None


def _put(group: Group[K], key: K, member: GroupMember) -> Group[K]:
    counts = _counts(group, member)
    counting = removed(group.counting, key) if counts is None else latest(group.counting, key, counts)
    return replace(group, members={**group.members, key: member}, counting=counting)


def _counts(group: Group[K], member: GroupMember) -> Millis | None:
    if member.status is MemberStatus.WAITING and group.wait_for_first:
        return MIN
    return counts_with(member)


def counts_with(member: GroupMember) -> Millis | None:
    """Return the watermark a member counts with, ``None`` if it does not count."""
    if member.status is MemberStatus.HOLDING:
        return MIN
    if member.status is MemberStatus.STARTING:
        return FIRST
    return member.watermark if member.status is MemberStatus.ACTIVE else None
