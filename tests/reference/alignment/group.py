"""A named group that keeps its members' reports (FLIP-182, FLIP-217)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic

from tests.reference.alignment.aggregator import Aggregator, latest, latest_of_all, removed
from tests.reference.alignment.pausing import K
from watermark_source.alignment.group import GroupMember, GroupView, MemberStatus, counts_with, limit, other_drift, view
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MIN, Millis


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
