"""Planned ends: how far each split may be read in this batch for its alignment group to stay together.

Alignment is decided for the *ends* of the batch that is being planned, not noticed after the fact (compare FLIP-217,
where a source overshoots by what it read between two announcements). The log's time index tells how far event time
will be at the end of every log, so the limit follows the backlog at full speed and the ranges end exactly on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from watermark_source.alignment.other_members import NOBODY
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.backlog import Backlog, Limit, Reach
from watermark_source.planning.group_limit import STORE, TO_COME, group_limit
from watermark_source.planning.observation import Observation
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import watermark_of
from watermark_source.planning.state import SplitState, SplitStatus


class Aligned(NamedTuple):
    """What the alignment group allows: its limit, if it has one, and how far each split with rows may be read."""

    limit: Limit | None
    ends: dict[Split, int]
    newest_matters: bool = False
    """Whether the newest event times of the logs would give another limit that lets some split go elsewhere."""
    reached: Mapping[Split, Millis] = {}
    """The watermark of a split that is read so far, of those for which the time index tells: nothing earlier is left
    in it."""
    steps: Mapping[Split, int] = {}
    """Of splits whose event times cannot be looked up, and of which something is known: see ``SplitState.step``."""


def aligned_ends(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    backlog: Backlog,
    quiet: Set[Split] = frozenset(),
    *,
    holds_group: bool = False,
) -> Aligned:
    """Return the group's limit, and the planned ends of the splits that have rows, none beyond it.

    ``quiet``: splits that are idle although they have rows, and hold nobody. ``holds_group``: the source's own snapshot
    is under way, and nobody elsewhere goes on before it is complete.
    """
    others = observation.others
    if holds_group and others.ceiling is None and observation.snapshots.chunks:
        # Of two that hold the group each reads its own snapshot.
        observation = replace(observation, others=NOBODY)
    elif others.hold and not observation.limits.one_batch:
        stay = {s: t.position for s, t in backlog.splits.items()}
        held = TO_COME if others.awaited else STORE
        slowest = others.slowest if others.minimum == MIN and others.slowest is not None else held
        return Aligned(Limit(MIN, slowest), stay, reached=backlog.beginnings())
    if backlog.max_drift is None or observation.limits.one_batch:
        return Aligned(None, dict(backlog.ends))
    blind: frozenset[Split] = frozenset()
    while True:
        limit = group_limit(splits, observation, backlog, blind, quiet)
        if limit is None:
            # Nobody has read a row, and no log's end is known: one step, to see where everybody is.
            ends = {s: backlog.within(s, end, backlog.blind_step) for s, end in backlog.ends.items()}
            return Aligned(None, ends, newest_matters=backlog.index is not None and bool(ends))
        reach = backlog.up_to(limit.watermark, limit)
        if reach.blind <= blind:
            # What has come to the end of its run waits for nobody, and nobody for it.
            counting = {s: t for s, t in splits.items() if s in backlog.splits or not observation.logs.ends_are_final}
            ends = _with_next_row(counting, backlog, reach, limit, observation)
            matters = _newest_matters(backlog, reach)
            return Aligned(limit, ends, matters, _reached_by(ends, reach, limit, backlog), reach.steps)
        # What the index cannot tell about a split now, it could not tell about its end either.
        blind |= reach.blind


def _with_next_row(
    splits: Mapping[Split, SplitState], backlog: Backlog, reach: Reach, limit: Limit, observation: Observation
) -> dict[Split, int]:
    """Let the slowest go on over a gap in time if nobody else does: of members that wait for each other, it is one."""
    others = observation.others
    # A snapshot goes on whatever the limit is.
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
    """Return the watermark each split has or could have, as nothing earlier is left in it, when it is read so far."""
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
            at_end = watermark_of(entry.event_time, backlog.strategy) if begins else limit.watermark
        elif end == backlog.ends[split]:
            at_end = watermark_of(shown, backlog.strategy)
        else:
            continue
        reached[split] = at_end if at.watermark is None else max(at.watermark, at_end)
    return reached


def _newest_matters(backlog: Backlog, reach: Reach) -> bool:
    if backlog.index is None:
        return False
    # A split that has a watermark will count with no lower one: a limit that cuts nothing could only be higher. The
    # slowest reads its next row though that is cut; of several that are equally far the newest rows tell which it is.
    may_count_lower = any(t.watermark is None for t in backlog.splits.values())
    return bool(reach.blind or reach.cut) or reach.ends != backlog.ends or may_count_lower
