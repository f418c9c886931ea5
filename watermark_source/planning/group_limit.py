"""The alignment limit of a batch: which member of its group holds the others back, and how far they may go."""

from __future__ import annotations

from collections.abc import Mapping, Set

from watermark_source.alignment.group import view
from watermark_source.alignment.other_members import OtherMember
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.planning.backlog import Backlog, Limit
from watermark_source.planning.observation import Observation
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import watermark_of
from watermark_source.planning.state import SplitState, SplitStatus

STORE = OtherMember("the store of the group, which does not answer")
TO_COME = OtherMember("sources of the group that are still to come")


def group_limit(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    backlog: Backlog,
    blind: Set[Split] = frozenset(),
    quiet: Set[Split] = frozenset(),
) -> Limit | None:
    """Return the alignment limit of this batch: the lowest watermark any member will have at its log's end, plus drift.

    A member with rows counts with the watermark it will have after reading them all; where the time index cannot tell
    (``blind``), and without rows, with its present one. One that has rows and no watermark yet counts with its first
    row, and holds the group (``MIN``) while that is not known either: it may be the oldest of all. Idle members,
    finished ones and those that never had a row do not hold the group. The members elsewhere count with what they last
    announced. ``quiet``: splits that are idle although they have rows.
    """
    splits = {s: t for s, t in splits.items() if s not in quiet} if quiet else splits
    reached: dict[Split | OtherMember, Millis | None] = {
        s: _reached(s, t, observation, backlog, blind) for s, t in splits.items()
    }
    starting = {s for s, t in splits.items() if reached[s] is None and _is_starting(s, t, observation, backlog)}
    begins = backlog.beginnings() if starting else {}
    others = observation.others
    if begins or others.slowest is not None or any(w is not None for w in reached.values()):
        reached.update({s: begins.get(s, MIN) for s in starting})
    if others.slowest is not None:
        reached[others.slowest] = others.minimum
    group = view(((s, w) for s, w in reached.items() if w is not None), backlog.max_drift or 0)
    if group.minimum == MIN and group.slowest is not None:
        return Limit(MIN, group.slowest)
    if others.ceiling is not None and (group.slowest is None or group.limit > others.ceiling):
        return Limit(others.ceiling, TO_COME if others.awaited else STORE)
    if group.slowest is None:
        return None
    rest = view(((s, w) for s, w in reached.items() if w is not None and s != group.slowest), backlog.max_drift or 0)
    of_slowest = rest.limit if others.ceiling is None else min(rest.limit, others.ceiling)
    return Limit(group.limit, group.slowest, of_slowest)


def _reached(
    split: Split, state: SplitState, observation: Observation, backlog: Backlog, blind: Set[Split]
) -> Millis | None:
    """Return the watermark a split counts with, ``None`` if it does not count."""
    if split in backlog.ends:
        newest = None if split in blind else backlog.newest.get(split)
        if newest is not None:
            return max(watermark_of(newest, backlog.strategy), MIN if state.watermark is None else state.watermark)
    elif observation.logs.ends_are_final or state.status is SplitStatus.IDLE:
        return None
    return state.watermark


def _is_starting(split: Split, state: SplitState, observation: Observation, backlog: Backlog) -> bool:
    """Return whether a split has rows, or its system does not answer whether it has any, and no watermark yet."""
    if state.watermark is not None or split.log in observation.snapshots.chunks:
        return False
    return split in backlog.ends or (split in observation.logs.unknown and state.status is not SplitStatus.IDLE)
