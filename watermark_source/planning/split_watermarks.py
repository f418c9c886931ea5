"""The watermarks of a plan's splits, in one table: of rows, at rest, ahead, at the log's end, with the batch.

The offset records for each split the watermark of the rows that earlier batches have read; while a split is at rest, a
clock may advance it. Other columns hold what look-ups show of the batch's own rows, and of the rows behind it: they
advance the combined watermark that goes out with the batch. The next plan has the tasks' reports in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from watermark_source.planning.disorder import NOTHING_SEEN, Counts, Learned, RangeSummary, exact
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, is_left_out
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import MIN, Millis, lowest_of_active, saturating_add

# Look-ahead: which rows are in the logs behind a planned batch.
#
# The tracking subscription of Streaming Systems: a second reader is ahead of the first, and reads event times only.


class Unread(NamedTuple):
    """The rows of one split behind a planned range, as far as they were read ahead."""

    until: int
    """First position that was not read ahead."""
    lowest: Millis | None
    """Lowest event time of the rows that are still unread after the batch, without rows that are late by now; ``None``
    if there are none."""
    highest: Millis | None
    """Highest event time that was seen, rows of the planned range included where they were read ahead."""
    is_readable: bool = True
    """False while rows behind its range cannot be read: their event times are not known."""


class RowsAhead(Protocol):
    """Reads ahead. The planner stays pure: the driver answers."""

    def unread(
        self,
        planned: Mapping[Split, SplitRange],
        ends: Mapping[Split, int],
        *,
        late_at: Millis | None,
        future_cap: Millis | None,
    ) -> Mapping[Split, Unread]:
        """Return which rows follow planned ranges, as far as the band reaches and time allows.

        Args:
            planned: the range of each split, which may be empty.
            ends: of the logs: nothing behind them is read.
            late_at: the watermark that went out: rows at or before it are late in any case.
            future_cap: later event times do not count for the highest one.
        """

    def forget(self, splits: Set[Split]) -> None:
        """Forget what was read of splits whose logs have lost rows: others may be at their positions."""


@dataclass(frozen=True)
class SplitWatermarks:
    """One row a split. A column has entries only for the splits to which it applies."""

    recorded: Mapping[Split, SplitState]
    """Every split as the offset records it, with the watermark of its rows before the batch, or of a clock at rest."""
    ahead: Mapping[Split, Millis | None] = field(default_factory=dict)
    """What replaces the recorded watermark where rows were read ahead of the batch."""
    at_end: Mapping[Split, Millis] = field(default_factory=dict)
    """Watermarks of splits that the batch reads to their log's end, by the time that the log's system stated there."""
    with_batch: Mapping[Split, Millis] = field(default_factory=dict)
    """Watermarks by the batch's own rows, where a look-up shows their event times before they are read."""
    uncounted: Set[Split] = frozenset()
    """Splits that the combined watermark does not wait for: snapshots, once there is a watermark. What they hold is
    late in any case."""
    unread: Mapping[Split, Unread] = field(default_factory=dict)
    """What was read ahead of the batch; empty without look-ahead."""
    combined: Millis | None = None
    """The combined watermark of ``ahead`` and ``at_end``, before limits that discovery sets: see ``Plan.state``."""

    @cached_property
    def states(self) -> Mapping[Split, SplitState]:
        """All splits with the watermarks that they will have once the batch is read, as far as known before."""
        changed = self.ahead.keys() | self.at_end.keys() | self.with_batch.keys()
        if not changed:
            return self.recorded
        return {**self.recorded, **{s: replace(self.recorded[s], watermark=self._of(s)) for s in changed}}

    @cached_property
    def counted(self) -> Mapping[Split, SplitState]:
        """``states`` of the splits that the combined watermark waits for unless they are idle."""
        return {s: t for s, t in self.states.items() if s not in self.uncounted} if self.uncounted else self.states

    def _of(self, split: Split) -> Millis | None:
        watermark = self.ahead[split] if split in self.ahead else self.recorded[split].watermark
        return later(later(watermark, self.at_end.get(split)), self.with_batch.get(split))


def split_watermarks(
    planned: Mapping[Split, SplitState],
    before: SourceState,
    observation: Observation,
    policy: PlanPolicy,
    ahead: RowsAhead | None,
    *,
    snapshots: Set[Split],
) -> SplitWatermarks:
    """Return the table of a plan, without what its own rows are known to advance.

    Args:
        planned: the splits as the offset will record them.
        before: as of the last batch.
        observation: what the plan was made of.
        policy: with the bound in force.
        ahead: what reads ahead of the batch; ``None`` if the strategy does not.
        snapshots: splits of snapshots that are under way.
    """
    logs, cap = observation.logs, policy.future_cap(observation.now)
    unread: Mapping[Split, Unread] = {}
    columns: dict[Split, Millis | None] = {}
    if ahead is not None:
        # Without splits whose end is not known at present.
        known = ((s, end) for s, end in logs.ends.items() if s in planned and s not in logs.stale)
        ends = {s: end for s, end in known if end > planned[s].observed}
        ranges = {s: SplitRange(s, planned[s].observed, planned[s].position) for s in ends}
        unread = ahead.unread(ranges, ends, late_at=before.watermark, future_cap=cap) if ranges else {}
        columns = ahead_of_batch(planned, unread, before.watermark, logs, policy.strategy)
    table = SplitWatermarks(
        planned,
        ahead=columns,
        # Beside a snapshot the log is read further than the batches say of it.
        at_end={} if snapshots else at_dated_ends(planned, observation, policy.strategy, cap),
        uncounted=frozenset() if before.watermark is None else snapshots & planned.keys(),
        unread=unread,
    )
    return replace(table, combined=combined(before, table.counted, policy.idleness))


def combined(before: SourceState, splits: Mapping[Split, SplitState], idleness: Idleness) -> Millis | None:
    """Return the combined watermark of splits, never lower than that of the last batch; ``None`` before the first.

    With ``passes_returning`` a split that came back from idleness and is behind is left out until it has caught up, as
    Flink's ``StatusWatermarkValve`` leaves out a channel; not before rows of it have been read, since only they show
    how far behind it is. If all others are idle, the watermark stands still until it has caught up.
    """
    passed = left_out(before, splits, idleness)
    members = [
        (MIN if t.watermark is None else t.watermark, t.status is SplitStatus.IDLE or (bool(passed) and s in passed))
        for s, t in splits.items()
    ]
    if passed and all(is_passed for _, is_passed in members):
        return before.watermark
    found = lowest_of_active(members, MIN if before.watermark is None else before.watermark)
    return None if found == MIN else found


def waited_for(before: SourceState, splits: Mapping[Split, SplitState], idleness: Idleness) -> Set[Split]:
    """Return the splits that the combined watermark waits for."""
    active = {s for s, t in splits.items() if t.status is not SplitStatus.IDLE}
    return active - left_out(before, splits, idleness)


def left_out(before: SourceState, splits: Mapping[Split, SplitState], idleness: Idleness) -> Set[Split]:
    """Return the splits that are not idle, and that the combined watermark does not wait for."""
    if not idleness.passes_returning:
        return frozenset()
    return {s for s, t in splits.items() if t.status is not SplitStatus.IDLE and is_left_out(t, before, idleness)}


# How the rows of its last range advance the watermark of a split, and what is learned from them.


def advanced(
    split: Split, state: SplitState, seen: RangeSummary | None, strategy: WatermarkStrategy, cap: Millis | None
) -> SplitState:
    """Return a split whose last range is in its watermark, which never regresses.

    Args:
        split: which one.
        state: as of the last planned batch.
        seen: what tasks observed in that range; ``None`` if the watermark includes it already.
        strategy: with the bound in force. A bound that became smaller advances splits without rows too.
        cap: the latest event time that counted in the range; ``None`` if all did.
    """
    if seen is None and state.highest is None:
        return state
    summary = NOTHING_SEEN if seen is None else seen
    highest = strategy.kept_highest(state.highest, summary)
    if highest is not None:
        summary = replace(summary, highest=highest)
    found, kept = strategy.on_range(split, state.kept, summary, cap)
    watermark = later(state.watermark, found)
    if seen is None and (highest, watermark) == (state.highest, state.watermark):
        return state
    return state.observed_to_its_end(watermark, highest, kept)


def later(one: Millis | None, other: Millis | None) -> Millis | None:
    """Return the later of two watermarks, either of which may be missing."""
    return one if other is None or (one is not None and one >= other) else other


def learned_after(
    state: SourceState, seen: Mapping[Split, RangeSummary], strategy: WatermarkStrategy
) -> Learned | None:
    """Return the source's disorder after its last ranges; ``None`` if the strategy does not learn from it."""

    def counts() -> Iterator[Counts]:
        for split, at in state.splits.items():
            if at.observed != at.position:
                yield from exact(seen[split].segments, at.highest)

    return strategy.after(state.learned, counts())


# At rest: a split with nothing left to read follows a clock, its own system's or the driver's.


def by_clock(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    watermark_at: Callable[[Split, str | None, Millis], Millis | None],
    cap: Millis | None,
    beyond: Millis,
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read that a clock advances further than ``beyond``.

    ``watermark_at`` is the strategy's ``at_rest``, or ``at_rest_beside_rows``; ``cap`` is the latest event time that
    counts.
    """
    moved: dict[Split, SplitState] = {}
    for split, at, reached in _at_their_ends(splits, observation, cap):
        watermark = watermark_at(split, at.kept, reached) if at.observed == at.position else None
        if watermark is not None and watermark > beyond and (at.watermark is None or watermark > at.watermark):
            moved[split] = replace(at, watermark=watermark)
    return moved


def _at_their_ends(
    splits: Mapping[Split, SplitState], observation: Observation, cap: Millis | None
) -> Iterator[tuple[Split, SplitState, Millis]]:
    """Yield the splits that are planned to an end of their log with a time, and that time, at most the cap."""
    logs = observation.logs
    for split, reached in logs.times.reached.items():
        at = splits.get(split)
        if at is None or at.position != logs.ends.get(split):
            continue
        # Rows behind the end, in an open transaction, may have any event time.
        if split not in observation.snapshots.waiting and split not in logs.uncommitted:
            yield split, at, reached if cap is None else min(reached, cap)


# Ahead: what rows that no batch has read yet leave of a split's watermark.


def ahead_of_batch(
    planned: Mapping[Split, SplitState],
    unread: Mapping[Split, Unread],
    sent: Millis | None,
    logs: ObservedLogs,
    strategy: WatermarkStrategy,
) -> dict[Split, Millis | None]:
    """Return the watermarks that splits may have once a planned batch is read, where they are not the recorded ones.

    One millisecond less than the lowest event time that is known to be unread. Rows that are not known, behind the band
    or not yet in the log, are within the strategy's bound of the highest event time. A split whose system does not
    answer, or whose rows ahead cannot be read, advances no further than the watermark that was ``sent``, and has none
    before the first: its unread rows may be what held that watermark.
    """
    found: dict[Split, Millis | None] = {}
    hidden = {s for s, rows in unread.items() if not rows.is_readable}
    for split in (logs.unknown | logs.stale | hidden) & planned.keys():
        watermark = planned[split].watermark
        if watermark is not None:
            found[split] = None if sent is None else min(watermark, sent)
    for split, rows in unread.items():
        if split in hidden:
            continue
        reached = planned[split].watermark
        if rows.highest is not None:
            reached = later(reached, strategy.watermark_of(rows.highest))
        if rows.lowest is not None and reached is not None:
            reached = min(reached, saturating_add(rows.lowest, -1))
        found[split] = reached
    return found


# At the log's end, and with the batch's own rows: what goes out with a batch before it is read. The combined watermark
# may, since Spark applies a batch's watermark at its end, to the next batch.


def at_dated_ends(
    planned: Mapping[Split, SplitState], observation: Observation, strategy: WatermarkStrategy, cap: Millis | None
) -> dict[Split, Millis]:
    """Return the watermarks of splits that the batch reads to their log's end, by the time its system stated there."""
    read = ((s, t) for s, at, t in _at_their_ends(planned, observation, cap) if at.observed < at.position)
    return {s: watermark for s, reached in read if (watermark := strategy.at_end(reached)) is not None}


def with_batch(
    table: SplitWatermarks, reached: Mapping[Split, Millis], strategy: WatermarkStrategy, cap: Millis | None
) -> SplitWatermarks:
    """Return the table with what the batch's own rows advance.

    Args:
        table: without them.
        reached: an event time that each planned range is known to hold, at best its highest.
        strategy: with the bound in force.
        cap: the latest event time that counts. A row beyond it moves nothing, and does not show which is the highest
            row that does.
    """
    found: dict[Split, Millis] = {}
    for split, event_time in reached.items():
        at = table.recorded[split]
        if at.position > at.observed and (cap is None or event_time <= cap):
            watermark = strategy.with_batch(event_time)
            if watermark is not None:
                found[split] = watermark
    return replace(table, with_batch=found)
