"""Planned ends: how far each split may be read in this batch for its alignment group to stay together.

Alignment is decided for the *ends* of the batch that is being planned, not noticed after the fact (compare FLIP-217,
where a source overshoots by what it read between two announcements). The log's time index tells how far event time
will be at the end of every log, so the limit follows the backlog at full speed and the ranges end exactly on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from watermark_source.alignment.group import view
from watermark_source.alignment.other_members import NOBODY, OtherMember
from watermark_source.eventtime.watermark import MAX, MIN, Millis, saturating_add
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy, WatermarkStrategy
from watermark_source.planning.row_index import RowIndex
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermark import event_time_of, future_cap, watermark_of
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.steps import BLIND_STEP, LEAST_STEP, half, rows_up_to
from watermark_source.planning.time_index import IndexEntry, TimeIndex

STORE = OtherMember("the store of the group, which does not answer")
TO_COME = OtherMember("sources of the group that are still to come")


@dataclass(frozen=True, slots=True)
class Limit:
    """The highest watermark a split of the group may reach, and for whose sake."""

    watermark: Millis
    slowest: Split | OtherMember
    of_slowest: Millis | None = field(default=None, compare=False)
    """How far the slowest itself may come: the limit that the others set. ``None`` if it is the same."""


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


class Reach(NamedTuple):
    """How far each split may be read, and which of them only by guess."""

    ends: dict[Split, int]
    blind: frozenset[Split]
    """Those of which the time index cannot tell."""
    cut: Mapping[Split, IndexEntry]
    """The first entry that is too late, of the splits that are not read to their end for it."""
    steps: Mapping[Split, int] = {}


@dataclass(frozen=True, slots=True)
class Backlog:
    """The splits that have rows to read, up to ``ends``, and the means to say where in them a watermark is reached."""

    splits: Mapping[Split, SplitState]
    ends: Mapping[Split, int]
    newest: Mapping[Split, Millis]
    """Highest event time in the log, where it is known; no later than the future cap."""
    latest: Mapping[Split, Millis]
    """Event time that no row is later than, where that is known: there is nothing to look up beyond it."""
    strategy: WatermarkStrategy
    max_drift: int | None
    index: TimeIndex | None
    future_cap: Millis | None
    blind_step: int
    """Rows read at a time where nothing is known of event times: within so many a split may pass the limit."""
    rows: RowIndex | None = None
    """``None`` where each position is about one row."""
    never_beyond: bool = False
    """Whether not one row beyond a limit is read, over a gap in time either."""

    def within(self, split: Split, end: int, rows: int) -> int:
        """Return where so many rows of a split end, ``end`` at the latest."""
        position = self.splits[split].position
        if self.rows is None:
            return min(position + rows, end)
        return self.rows.end_within(SplitRange(split, position, end), rows)

    def only(self, splits: Set[Split]) -> Backlog:
        """Return the backlog of some of the splits."""
        return replace(self, splits={s: self.splits[s] for s in splits}, ends={s: self.ends[s] for s in splits})

    def beginnings(self) -> dict[Split, Millis]:
        """Return, of splits that have no watermark yet, the one they will have with their first row."""
        if self.max_drift is None:
            return {}
        found = self._first_after({s for s, t in self.splits.items() if t.watermark is None}, MIN)
        return {
            s: watermark_of(e.event_time, self.strategy)
            for s, e in found.items()
            if e is not None and e.position >= self.splits[s].position and not self.is_of_future(e.event_time)
        }

    def is_of_future(self, event_time: Millis) -> bool:
        """Whether an event time may be one that moves no watermark: what comes after it in the log can be earlier."""
        return self.future_cap is not None and event_time >= self.future_cap

    def up_to(self, watermark: Millis, limit: Limit | None = None) -> Reach:
        """Return how far each split may be read for its watermark not to go beyond ``watermark``.

        Where the index cannot tell, in steps: see ``steps.py``.

        With a drift, the gap rule: a split that would end the batch further behind than the drift, only because its
        next row lies beyond, reads that one row. It cannot hold the watermark back across a gap in time, and the group
        cannot deadlock; nor can the slowest of the ``limit`` wait for itself, so it always reads its next row. Neither
        holds with ``never_beyond``.
        """
        reading = {s for s, t in self.splits.items() if t.watermark is None or t.watermark <= watermark}
        beyond = self._first_after(reading, event_time_of(watermark, self.strategy))
        ends = {s: end if s in reading else self.splits[s].position for s, end in self.ends.items()}
        cut: dict[Split, IndexEntry] = {}
        blind: set[Split] = set()
        for split in reading:
            position, entry = self.splits[split].position, beyond.get(split)
            if self.index is None or (entry is not None and entry.position < position):
                # A row we have passed is later than this, yet does not show in the watermark: it was beyond the future
                # cap, before our start, or never delivered. The index cannot separate the rows after it.
                blind.add(split)
            elif entry is not None and entry.position < ends[split]:
                ends[split] = entry.position
                cut[split] = entry
        slowest = None if limit is None else limit.slowest
        steps = self._steps(blind)
        for split in blind:
            at, aim = self.splits[split].watermark, watermark
            # With an index the others count with what lies at their logs' ends, where they are not yet.
            if limit is not None and split == slowest and limit.of_slowest is not None and self.index is None:
                aim = limit.of_slowest
            if aim == MAX:
                continue
            drift, size = self.max_drift, self.blind_step
            if at is not None and drift is not None and split in steps:
                size = rows_up_to(steps[split], at, aim, drift, at_least=LEAST_STEP if self.index is None else 1)
            ends[split] = self.within(split, ends[split], size) if size else self.splits[split].position
        if not self.never_beyond:
            for split in self._in_a_gap(cut, watermark):
                ends[split] = cut[split].after
            if isinstance(slowest, Split) and slowest in cut and ends[slowest] == self.splits[slowest].position:
                ends[slowest] = cut[slowest].after
        return Reach(ends, frozenset(blind), cut, steps)

    def _steps(self, blind: Set[Split]) -> Mapping[Split, int]:
        """Return the steps of splits whose event times cannot be looked up, of which something is known.

        Where the first row of the future was passed just now, the index still tells what lies before it.
        """
        drift = self.max_drift
        if drift is None or self.rows is not None:
            return {}
        steps = {s: step for s in blind if (step := self.splits[s].step) is not None}
        known = {s: w for s in blind - steps.keys() if (w := self.splits[s].watermark) is not None}
        if self.index is None or not known:
            return steps
        back = self.index.first_after(
            {s: saturating_add(event_time_of(w, self.strategy), -half(drift) - 1) for s, w in known.items()}
        )
        found = {s: self.splits[s].position - e.position for s, e in back.items() if e is not None}
        return {**steps, **{s: rows for s, rows in found.items() if rows > 0}}

    def _first_after(self, splits: Set[Split], event_time: Millis) -> Mapping[Split, IndexEntry | None]:
        if self.index is None:
            return {}
        asked = {s for s in splits if self.latest.get(s, MAX) > event_time}
        found = self.index.first_after(dict.fromkeys(asked, event_time)) if asked else {}
        return {**dict.fromkeys(splits - asked), **found}

    def _in_a_gap(self, cut: Mapping[Split, IndexEntry], watermark: Millis) -> Set[Split]:
        if self.max_drift is None:
            return frozenset()
        floor = saturating_add(watermark, -self.max_drift)
        behind = {s for s in cut if (w := self.splits[s].watermark) is None or w < floor}
        # After the millisecond before: a row at the floor itself keeps up.
        near = self._first_after(behind, saturating_add(event_time_of(floor, self.strategy), -1))
        return {s for s, e in near.items() if e is None or not self.splits[s].position <= e.position < cut[s].position}


def backlog_of(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    policy: PlanPolicy,
    index: TimeIndex | None,
    rows: RowIndex | None = None,
) -> Backlog:
    """Return the splits that have rows to read."""
    logs = observation.logs
    ends = {s: end for s, t in splits.items() if (end := logs.ends.get(s, 0)) > t.position}
    cap = future_cap(observation.now, policy.strategy)
    newest = {s: n for s in ends if (n := logs.times.newest.get(s)) is not None}
    latest = {s: n for s, n in newest.items() if s in logs.times.settled}
    if cap is not None:
        newest = {s: min(n, cap) for s, n in newest.items()}
    step, max_rows = BLIND_STEP, observation.limits.max_rows
    if max_rows is not None and ends:
        step = max(1, min(step, max_rows // len(ends)))
    return Backlog(
        splits={s: splits[s] for s in ends},
        ends=ends,
        newest=newest,
        latest=latest,
        strategy=policy.strategy,
        max_drift=policy.alignment.max_drift,
        index=index,
        future_cap=cap,
        blind_step=step,
        rows=rows,
        never_beyond=observation.others.ceiling is not None,
    )


def group_limit(
    splits: Mapping[Split, SplitState], observation: Observation, backlog: Backlog, blind: Set[Split] = frozenset()
) -> Limit | None:
    """Return the alignment limit of this batch: the lowest watermark any member will have at its log's end, plus drift.

    A member with rows counts with the watermark it will have after reading them all; where the time index cannot tell
    (``blind``), and without rows, with its present one. One that has rows and no watermark yet counts with its first
    row, and holds the group (``MIN``) while that is not known either: it may be the oldest of all. Idle members,
    finished ones and those that never had a row do not hold the group. The members elsewhere count with what they last
    announced.
    """
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


def aligned_ends(
    splits: Mapping[Split, SplitState], observation: Observation, backlog: Backlog, *, holds_group: bool = False
) -> Aligned:
    """Return the group's limit, and the planned ends of the splits that have rows, none beyond it.

    ``holds_group``: the source's own snapshot is under way, and nobody elsewhere goes on before it is complete.
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
        limit = group_limit(splits, observation, backlog, blind)
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
    # A split that has a watermark will count with no lower one: a limit that cuts nothing could only be higher.
    may_count_lower = any(t.watermark is None for t in backlog.splits.values())
    return bool(reach.blind) or reach.ends != backlog.ends or may_count_lower
