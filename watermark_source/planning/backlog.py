"""The backlog: splits that have rows to read, and how far each may be read for its watermark to stay in a limit."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from watermark_source.planning.group import OtherMember, OwnWriter
from watermark_source.planning.observation import FirstLook, Observation
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import IndexEntry, RowIndex, Split, SplitRange, TimeIndex
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add

# Steps: how many rows of a split are planned at a time where nothing looks their event times up.


BLIND_STEP: Final = 10_000
"""Rows of a split whose event times are not known."""
LEAST_STEP: Final = 1_000
"""Rows below which a batch costs more than alignment gains."""
MOST_STEP: Final = 100_000_000
GROWTH: Final = 8
"""Factor by which a step may exceed what it was learned from, or fall below it: ranges differ."""


def step_span(drift: int) -> int:
    """Return the event time that a step spans at most."""
    return max(1, drift // 2)


def learned_step(step: int | None, rows: int, advanced: int, drift: int) -> int:
    """Return the step of a split after one of its ranges was read.

    Args:
        step: the step so far; ``None`` before a range has shown how fast its event time advances.
        rows: positions of the range.
        advanced: by how much it moved the split's event time, in milliseconds.
        drift: of the alignment group. A step spans at most half of it, as estimated.
    """
    if step is not None and rows * GROWTH < step and advanced * GROWTH < step_span(drift):
        # Too few rows for an estimate.
        return step
    fits = rows * step_span(drift) // advanced if advanced > 0 else rows * GROWTH
    most = GROWTH * max(rows, step or 0)
    return min(max(min(fits, most), (step or 0) // GROWTH, 1), MOST_STEP)


def with_step(after: SplitState, before: SplitState, drift: int | None) -> SplitState:
    """Return a split whose last range is in its watermark, with the step learned from that range.

    Args:
        after: with the watermark, or highest event time, after the range.
        before: as of the batch that read it.
        drift: of the alignment group; ``None`` where nothing is to be learned.
    """
    if before.observed == before.position:
        return after
    step = None if drift is None else before.step
    came_from, came_to = _event_times(before, after)
    if drift is not None and came_from is not None and came_to is not None:
        step = learned_step(step, before.position - before.observed, came_to - came_from, drift)
    return after if step == after.step else replace(after, step=step)


def with_steps(
    splits: Mapping[Split, SplitState], steps: Mapping[Split, int], *, has_time_index: bool
) -> Mapping[Split, SplitState]:
    """Return the splits with the steps of a plan; with a time index, those alone."""
    if not has_time_index and not steps:
        return splits
    # With an index only while a row beyond the future cap lies between the rows read and those that can be looked up.
    dropped = {s: replace(t, step=None) for s, t in splits.items() if t.step is not None} if has_time_index else {}
    changed = {**dropped, **{s: replace(splits[s], step=step) for s, step in steps.items()}}
    return {**splits, **changed} if changed else splits


def _event_times(before: SplitState, after: SplitState) -> tuple[Millis | None, Millis | None]:
    """Return the event times that a split had reached before and after, up to a constant.

    Where the bound is learned, the watermark is no measure: it stands still while the bound grows.
    """
    if before.highest is not None and after.highest is not None:
        return before.highest, after.highest
    return before.watermark, after.watermark


def rows_up_to(step: int, watermark: Millis, limit: Millis, drift: int, *, at_least: int = LEAST_STEP) -> int:
    """Return how many rows may be read of a split whose watermark may reach ``limit``; 0 if hardly any.

    That is half a drift, and of a split that is far behind what separates it from half a drift before the limit. Few
    rows before the limit are left to a later batch, unless the group waits for them.
    """
    room, span = limit - watermark, step_span(drift)
    if room * GROWTH < span and room < drift:
        return 0
    aim = min(room, max(span, room - span))
    return max(at_least, min(step * aim // span, GROWTH * step))


# The backlog, and how far each split of it may be read.


@dataclass(frozen=True, slots=True)
class Limit:
    """The highest watermark a split of the group may reach, and the member that sets it."""

    watermark: Millis
    slowest: Split | OtherMember | OwnWriter
    of_slowest: Millis | None = field(default=None, compare=False)
    """The limit of the slowest itself, which the others set. ``None`` if it is the same."""


class Reach(NamedTuple):
    """How far each split may be read, and for which splits that is an estimate."""

    ends: dict[Split, int]
    blind: frozenset[Split]
    """Splits whose event times the time index does not show."""
    cut: Mapping[Split, IndexEntry]
    """The first entry that is too late, of the splits that are not read to their end for it."""
    steps: Mapping[Split, int] = {}


@dataclass(frozen=True, slots=True)
class Backlog:
    """The splits that have rows to read, up to ``ends``, and the means to find where a watermark is reached."""

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
    """Rows read at a time where event times are not known: a split may exceed the limit within so many rows."""
    rows: RowIndex | None = None
    """``None`` where each position is about one row."""
    looks: Mapping[Split, FirstLook] = field(default_factory=dict)
    """See ``LogTimes.looks``."""
    never_beyond: bool = False
    """Whether no row beyond a limit is read, not even across a gap in time."""

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
        unread = {s for s, t in self.splits.items() if t.watermark is None}
        first = {s: look.first for s, look in self.looks.items() if s in unread} | {
            s: e.event_time
            for s, e in self._first_after(unread, MIN).items()
            if e is not None and e.position >= self.splits[s].position
        }
        return {s: self.strategy.watermark_of(t) for s, t in first.items() if not self.is_of_future(t)}

    def is_of_future(self, event_time: Millis) -> bool:
        """Whether an event time may be one that moves no watermark: what comes after it in the log can be earlier."""
        return self.future_cap is not None and event_time >= self.future_cap

    def up_to(self, watermark: Millis, limit: Limit | None = None) -> Reach:
        """Return how far each split may be read for its watermark not to exceed ``watermark``.

        Where the index does not show that, as far as ``rows_up_to`` estimates it.

        With a drift, the gap rule: a split that would end the batch further behind than the drift, only because its
        next row lies beyond, reads that one row. It cannot hold the watermark back across a gap in time, and the group
        cannot deadlock; nor can the slowest of the ``limit`` wait for itself, so it always reads its next row. Neither
        holds with ``never_beyond``.
        """
        reading = {s for s, t in self.splits.items() if t.watermark is None or t.watermark <= watermark}
        beyond = self._first_after(reading, self.strategy.event_time_of(watermark))
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
        begins = self.beginnings() if self.looks else {}
        for split in blind:
            at, aim = begins.get(split, self.splits[split].watermark), watermark
            of_slowest = limit.of_slowest if limit is not None and split == slowest else None
            # With an index the others count with what lies at their logs' ends, where they are not yet: if any counts.
            if of_slowest is not None and (self.index is None or of_slowest == MAX):
                aim = of_slowest
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
        """Return the steps of splits whose event times cannot be looked up, if known.

        Where the first row beyond the future cap was passed just now, the index still shows the rows before it.
        """
        drift = self.max_drift
        if drift is None or self.rows is not None:
            return {}
        steps = {s: learned_step(None, look.rows, look.advanced, drift) for s, look in self.looks.items() if s in blind}
        steps |= {s: step for s in blind if (step := self.splits[s].step) is not None}
        known = {s: w for s in blind - steps.keys() if (w := self.splits[s].watermark) is not None}
        if self.index is None or not known:
            return steps
        back = self.index.first_after(
            {s: saturating_add(self.strategy.event_time_of(w), -step_span(drift) - 1) for s, w in known.items()}
        )
        found: dict[Split, int] = {}
        for split, entry in back.items():
            if entry is not None:
                is_counted = self.strategy.watermark_of(entry.event_time) <= known[split]
                # A later row that was passed, perhaps long ago, shows nothing of those behind it.
                most = MOST_STEP if is_counted else self.blind_step
                found[split] = min(self.splits[split].position - entry.position, most)
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
        near = self._first_after(behind, saturating_add(self.strategy.event_time_of(floor), -1))
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
    cap = policy.future_cap(observation.now)
    known = {s: n for s in ends if (n := logs.times.newest.get(s)) is not None}
    latest = {s: n.event_time for s, n in known.items() if s in logs.times.settled}
    # What lies before the position was read, or is before the start: of the rows to come it shows nothing.
    ahead = {s: n.event_time for s, n in known.items() if n.is_ahead_of(splits[s].position)}
    newest = ahead if cap is None else {s: min(n, cap) for s, n in ahead.items()}
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
        looks={s: look for s, look in logs.times.looks.items() if s in ends},
        never_beyond=observation.others.ceiling is not None,
    )
