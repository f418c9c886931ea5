"""The alignment limit of a batch: which member of its group holds the others back, and how far they may go."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from watermark_source.planning.announced_group import AnnouncedPositions
from watermark_source.planning.backlog import Backlog, Limit, Reach
from watermark_source.planning.group import (
    NO_OTHERS,
    GroupMember,
    MemberStatus,
    OtherMember,
    OtherMembers,
    OwnWriter,
    limit,
    without_rows,
)
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.watermark import MAX, MIN, Millis

STORE = OtherMember("the store of the group, which does not answer")
TO_COME = OtherMember("sources of the group that have not joined yet")


def group_limit(
    splits: Mapping[Split, SplitState], observation: Observation, backlog: Backlog, blind: Set[Split] = frozenset()
) -> Limit | None:
    """Return the alignment limit of this batch: the lowest watermark any member will have at its log's end, plus drift.

    A member with rows counts with the watermark it will have after reading them all; without rows, or where the time
    index does not show that (``blind``), with its present one. A member that has rows and no watermark yet counts with
    its first row, and holds the group (``MIN``) while that row's time is not known either: it may be the oldest of all.
    Members that are idle, finished or never had a row do not hold the group. Members in other sources count with the
    watermark they reported last. ``splits``: without those that are idle although they have rows.
    """
    reached: dict[Split | OtherMember | OwnWriter, Millis | None] = {
        s: _reached(s, t, observation, backlog, blind) for s, t in splits.items()
    }
    starting = {s for s, t in splits.items() if reached[s] is None and _is_starting(s, t, observation, backlog)}
    begins = backlog.beginnings() if starting else {}
    others = observation.others
    if begins or others.slowest is not None or any(w is not None for w in reached.values()):
        reached.update({s: begins.get(s, MIN) for s in starting})
    if others.slowest is not None:
        reached[others.slowest] = others.minimum
    return _limit_of({s: w for s, w in reached.items() if w is not None}, others, backlog.max_drift or 0)


def _limit_of(
    reached: Mapping[Split | OtherMember | OwnWriter, Millis], others: OtherMembers, drift: int
) -> Limit | None:
    """Return the limit of members by the watermarks that they count with; of equals the first is the slowest.

    Only active members with a watermark are in ``reached``: those that are idle, finished, failed, never had data, or
    follow the system clock (FLIP-326) limit no other.
    """
    slowest, minimum = min(reached.items(), key=itemgetter(1), default=(None, None))
    if minimum == MIN and slowest is not None:
        return Limit(MIN, slowest)
    highest = limit(minimum, drift)
    if others.ceiling is not None and (slowest is None or highest > others.ceiling):
        return Limit(others.ceiling, TO_COME if others.awaited else STORE)
    if slowest is None:
        return None
    of_slowest = limit(min((at for member, at in reached.items() if member != slowest), default=None), drift)
    return Limit(highest, slowest, of_slowest if others.ceiling is None else min(of_slowest, others.ceiling))


def _reached(
    split: Split, state: SplitState, observation: Observation, backlog: Backlog, blind: Set[Split]
) -> Millis | None:
    """Return the watermark a split counts with, ``None`` if it does not count."""
    if split in backlog.ends:
        newest = None if split in blind else backlog.newest.get(split)
        if newest is not None:
            return max(backlog.strategy.watermark_of(newest), MIN if state.watermark is None else state.watermark)
    elif observation.logs.ends_are_final or state.status is SplitStatus.IDLE:
        return None
    return state.watermark


def _is_starting(split: Split, state: SplitState, observation: Observation, backlog: Backlog) -> bool:
    """Return whether a split has rows, or its system does not answer whether it has any, and no watermark yet."""
    if state.watermark is not None or split.log in observation.snapshots.chunks:
        return False
    return split in backlog.ends or (split in observation.logs.unknown and state.status is not SplitStatus.IDLE)


# Planned ends: how far each split may be read in this batch for its alignment group to stay together.
#
# Alignment is decided for the *ends* of the batch that is being planned, not noticed after the fact (compare
# FLIP-217, where a source overshoots by what it read between two announcements). The log's time index shows how far
# event time will be at the end of every log, so the limit follows the backlog at full speed and the ranges end
# exactly on it.


class Aligned(NamedTuple):
    """What the alignment group allows: its limit, if it has one, and how far each split with rows may be read."""

    limit: Limit | None
    ends: dict[Split, int]
    newest_matters: bool = False
    """Whether the newest event times of the logs could give another limit, and so other ends."""
    reached: Mapping[Split, Millis] = {}
    """The watermark of each split that is read to its end here, where the time index shows it: no earlier row is
    left."""
    steps: Mapping[Split, int] = {}
    """Step sizes of splits whose event times cannot be looked up, where they are known: see ``SplitState.step``."""


def aligned_ends(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    backlog: Backlog,
    quiet: Set[Split] = frozenset(),
    *,
    reads_alone: bool = False,
    announced: AnnouncedPositions | None = None,
) -> Aligned:
    """Return the group's limit, and the planned ends of the splits that have rows, none beyond it.

    ``quiet``: splits that are idle although they have rows, and hold no other. ``reads_alone``: the source
    reads a snapshot, or its logs up to their ends, first, and the other sources wait for that. ``announced``: where
    writers announce the watermark.
    """
    others = observation.others
    if reads_alone and others.ceiling is None:
        # If two sources hold the group, each of them reads.
        observation = replace(observation, others=NO_OTHERS)
    elif others.hold and not observation.limits.one_batch:
        stay = {s: t.position for s, t in backlog.splits.items()}
        held = TO_COME if others.awaited else STORE
        slowest = others.slowest if others.minimum == MIN and others.slowest is not None else held
        return Aligned(Limit(MIN, slowest), stay, reached=backlog.beginnings())
    if backlog.max_drift is None or observation.limits.one_batch:
        return Aligned(None, dict(backlog.ends))
    if announced is not None:
        return _up_to_cuts(announced, observation, backlog)
    blind: frozenset[Split] = frozenset()
    limiting = {s: t for s, t in splits.items() if s not in quiet} if quiet else splits
    while True:
        limit = group_limit(limiting, observation, backlog, blind)
        if limit is None:
            # No row has been read, and no log's newest event time is known: one step each, to learn event times.
            ends = {s: backlog.within(s, end, backlog.blind_step) for s, end in backlog.ends.items()}
            return Aligned(None, ends, newest_matters=backlog.index is not None and bool(ends))
        reach = backlog.up_to(limit.watermark, limit)
        if reach.blind <= blind:
            # A split at the end of its run waits for no other, and no other waits for it.
            counting = {s: t for s, t in splits.items() if s in backlog.splits or not observation.logs.ends_are_final}
            ends = _with_next_row(counting, backlog, reach, limit, observation)
            matters = _newest_matters(backlog, reach)
            return Aligned(limit, ends, matters, _reached_by(ends, reach, limit, backlog), reach.steps)
        # Where the index shows nothing of a split now, it shows nothing of its end either.
        blind |= reach.blind


def _up_to_cuts(announced: AnnouncedPositions, observation: Observation, backlog: Backlog) -> Aligned:
    others = observation.others
    reached = {announced.slowest: announced.watermark(announced.end), others.slowest: others.minimum}
    known: dict[Split | OtherMember | OwnWriter, Millis] = {
        member: at for member, at in reached.items() if member is not None and at is not None
    }
    limit = _limit_of(known, others, backlog.max_drift or 0)
    floor = others.minimum if others.ceiling is None else None
    ends = announced.ends_within(MAX if limit is None else limit.watermark, floor, observation.limits.max_rows)
    at = {s: t.position for s, t in backlog.splits.items()}
    return Aligned(limit, {s: max(at[s], min(end, ends.get(str(s.number), 0))) for s, end in backlog.ends.items()})


def _with_next_row(
    splits: Mapping[Split, SplitState], backlog: Backlog, reach: Reach, limit: Limit, observation: Observation
) -> dict[Split, int]:
    """Let the slowest split read across a gap in time if no other split reads: else members wait for each other."""
    others = observation.others
    # A snapshot continues whatever the limit is.
    dated = {s: end for s, end in reach.ends.items() if s.log not in observation.snapshots.chunks}
    held = (
        others.ceiling is None
        and limit.slowest == others.slowest
        and all(end == backlog.splits[s].position for s, end in dated.items())
    )
    if not held or others.minimum is None:
        return reach.ends
    active = {s: w for s, t in splits.items() if (w := t.watermark) is not None and t.status is not SplitStatus.IDLE}
    lowest = min(active.values(), default=MAX)
    slowest = [s for s in reach.cut if active.get(s) == lowest]
    if not slowest or lowest > others.minimum:
        return reach.ends
    first = min(slowest, key=lambda s: (reach.cut[s].event_time, s))
    return {**reach.ends, first: reach.cut[first].after}


def _reached_by(ends: Mapping[Split, int], reach: Reach, limit: Limit, backlog: Backlog) -> dict[Split, Millis]:
    """Return the watermark that each split has, or could have, once it is read to its end: no earlier row is left."""
    reached: dict[Split, Millis] = {}
    for split, end in ends.items():
        entry, newest = reach.cut.get(split), backlog.newest.get(split)
        shown = newest if entry is None else entry.event_time
        if split in reach.blind or shown is None or backlog.is_of_future(shown):
            continue
        at = backlog.splits[split]
        if entry is not None:
            # A row beyond a gap may be none, as a control record with rows of the past behind it, unless all begins
            # with it. It counts when it has been seen.
            begins = at.watermark is None and at.position == entry.position < end
            at_end = backlog.strategy.watermark_of(entry.event_time) if begins else limit.watermark
        elif end == backlog.ends[split]:
            at_end = backlog.strategy.watermark_of(shown)
        else:
            continue
        reached[split] = at_end if at.watermark is None else max(at.watermark, at_end)
    return reached


def _newest_matters(backlog: Backlog, reach: Reach) -> bool:
    if backlog.index is None:
        return False
    # A split with a watermark counts with no lower one, so a limit that cuts nothing could only be higher. The slowest
    # split reads its next row although that is cut; of several with one watermark the newest rows show which it is.
    may_count_lower = any(t.watermark is None for t in backlog.splits.values())
    return bool(reach.blind or reach.cut) or reach.ends != backlog.ends or may_count_lower


# Membership: what a source reports to the rest of its alignment group about a planned batch.


def membership(  # noqa: PLR0911  one line a case
    planned: Mapping[Split, SplitState],
    snapshots: Set[Split],
    reached: Mapping[Split, Millis],
    logs: ObservedLogs,
    *,
    on_clock: bool,
    holds_group: bool,
    waits_for_first: bool,
    announced: AnnouncedPositions | None = None,
) -> GroupMember:
    """Return the source as a member: with the lowest watermark its splits have when the batch is read.

    Args:
        planned: all splits, as the batch leaves them.
        snapshots: those among them that are snapshots, which do not count.
        reached: watermarks of splits at their planned end, as far as a time index shows them.
        logs: as observed for the plan.
        on_clock: whether the source's event time is the clock.
        holds_group: whether what comes first is still read, for which other sources wait.
        waits_for_first: whether they wait for its first watermark.
        announced: from the planned positions on, where writers announce the watermark.
    """
    if holds_group:
        return GroupMember(MemberStatus.HOLDING)
    if on_clock:
        return GroupMember(MemberStatus.CLOCK)
    if announced is not None:
        return announced.member(is_final=logs.ends_are_final, waits_for_first=waits_for_first)
    planned = {s: t for s, t in planned.items() if s not in snapshots}
    if logs.ends_are_final and all(_is_over(s, t, logs) for s, t in planned.items()):
        return GroupMember(MemberStatus.FINISHED)
    active, known = counting(planned, reached, logs)
    starts = any(_starts(t, logs.ends.get(s, 0)) for s, t in active.items() if s not in reached)
    may_start = bool(logs.unknown & active.keys() - known.keys())
    if starts or (known and may_start):
        return GroupMember(MemberStatus.STARTING)
    if known:
        return GroupMember(MemberStatus.ACTIVE, min(known.values()))
    if planned and not active:
        idle = (w for t in planned.values() if (w := t.watermark) is not None)
        return GroupMember(MemberStatus.IDLE, max(idle, default=None))
    # Its first row may have been of a split that is idle by now.
    is_first = waits_for_first and all(t.watermark is None for t in planned.values())
    return without_rows(waits_for_first=is_first, may_have_rows=may_start)


def counting(
    planned: Mapping[Split, SplitState], reached: Mapping[Split, Millis], logs: ObservedLogs
) -> tuple[dict[Split, SplitState], dict[Split, Millis]]:
    """Return the splits that others wait for, and what those count with, as far as it is known."""
    active = {s: t for s, t in planned.items() if t.status is not SplitStatus.IDLE and not _is_over(s, t, logs)}
    return active, {s: w for s, t in active.items() if (w := reached.get(s, t.watermark)) is not None}


def _is_over(split: Split, state: SplitState, logs: ObservedLogs) -> bool:
    """Return whether a split has reached its end in a run with an end: it holds no other."""
    return logs.ends_are_final and state.position >= logs.ends.get(split, 0)


def _starts(state: SplitState, end: int) -> bool:
    """Return whether a split has rows, read or not, and nothing is known of their times yet."""
    return state.watermark is None and (state.position < end or state.observed < state.position)
