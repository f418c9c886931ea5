"""Membership: what a source tells the rest of its alignment group about a batch that was planned."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus


def membership(
    planned: Mapping[Split, SplitState],
    reached: Mapping[Split, Millis],
    logs: ObservedLogs,
    *,
    on_clock: bool,
    holds_group: bool,
    waits_for_first: bool,
) -> GroupMember:
    """Return the source as a member: with the lowest watermark its splits have when the batch is read.

    Args:
        planned: all splits but snapshots, as the batch leaves them.
        reached: watermarks of splits at their planned end, as far as a time index tells them.
        logs: as they were found for it.
        on_clock: whether the source's event time is the clock.
        holds_group: whether a snapshot that comes first is under way, for which the members elsewhere wait.
        waits_for_first: whether they wait for its first watermark.
    """
    if holds_group:
        return GroupMember(MemberStatus.HOLDING)
    if on_clock:
        return GroupMember(MemberStatus.CLOCK)
    return _by_event_times(planned, reached, logs, waits_for_first=waits_for_first)


def _by_event_times(
    planned: Mapping[Split, SplitState],
    reached: Mapping[Split, Millis],
    logs: ObservedLogs,
    *,
    waits_for_first: bool,
) -> GroupMember:
    # Of a run that has its end: what has come there holds nobody.
    over = {s for s, t in planned.items() if logs.ends_are_final and t.position >= logs.ends.get(s, 0)}
    if logs.ends_are_final and len(over) == len(planned):
        return GroupMember(MemberStatus.FINISHED)
    active = {s: t for s, t in planned.items() if t.status is not SplitStatus.IDLE and s not in over}
    if any(_starts(t, logs.ends.get(s, 0)) for s, t in active.items() if s not in reached):
        return GroupMember(MemberStatus.STARTING)
    known = {s: w for s, t in active.items() if (w := reached.get(s, t.watermark)) is not None}
    if known and logs.unknown & active.keys() - known.keys():
        # It may hold the oldest rows of all: its own source waits for it, too.
        return GroupMember(MemberStatus.STARTING)
    if known:
        return GroupMember(MemberStatus.ACTIVE, min(known.values()))
    if planned and not active:
        idle = (w for t in planned.values() if (w := t.watermark) is not None)
        return GroupMember(MemberStatus.IDLE, max(idle, default=None))
    # Its first row may have been of a split that is idle by now.
    is_first = waits_for_first and all(t.watermark is None for t in planned.values())
    return GroupMember(MemberStatus.HOLDING if is_first else MemberStatus.WAITING)


def _starts(state: SplitState, end: int) -> bool:
    """Return whether a split has rows, read or not, and nothing is known of their times yet."""
    return state.watermark is None and (state.position < end or state.observed < state.position)
