"""What is known before a batch is planned: every split with what was read of it and what became of its log."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from watermark_source.errors import OffsetError
from watermark_source.eventtime.percentile import Learned
from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import Millis, saturating_add
from watermark_source.planning.learned_bound import in_force, learned_after
from watermark_source.planning.loss import Loss, check_loss, refuse
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy, WatermarkStrategy
from watermark_source.planning.returning_splits import returned
from watermark_source.planning.snapshot_ranges import finished, snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import advanced
from watermark_source.planning.state import Bound, SourceState, SplitState
from watermark_source.planning.status_transitions import after_range, unanswered, uncommitted
from watermark_source.planning.step_sizes import with_step
from watermark_source.planning.watermark_without_rows import CLOCKS_DIFFER, at_rest
from watermark_source.watermark_text import watermark_text


@dataclass(frozen=True, slots=True)
class KnownSplits:
    """The source as the last batch and the outside left it."""

    splits: Mapping[Split, SplitState]
    losses: tuple[Loss, ...]
    learned: Learned | None
    policy: PlanPolicy
    """The user's, with what was learned."""
    on_clock: bool
    opened: Set[Split]
    """Splits whose next rows belong to open transactions."""
    done: Set[Split]
    """Snapshots that are read to their end, or whose table was dropped."""
    going_on: Mapping[str, Bound]
    """Snapshots that are not, with the key at which each goes on."""
    undated: Set[Split]
    """Splits of which the last batch read rows, none of which had an event time."""
    begun: Mapping[str, Bound]
    """Those of tables that are still there."""

    @property
    def snapshots(self) -> Set[Split]:
        """The splits of the snapshots that go on."""
        return set(map(snapshot_split, self.begun))


def known_before(
    state: SourceState, observation: Observation, policy: PlanPolicy, *, has_index: bool, has_rows: bool
) -> KnownSplits:
    """Fold what the tasks of the last batch saw, what was lost, and the time of logs at rest.

    Args:
        state: as of the last planned batch.
        observation: what the outside said.
        policy: the user's decisions.
        has_index: whether event times can be looked up.
        has_rows: whether positions are not rows, and rows can be looked up.

    Raises:
        DataLossError: rows are gone and ``policy.on_loss.fails`` is set.
        OffsetError: the state is on processing time and the policy is not: that flag never goes back (FLIP-326). Or
            the policy is, and the state's event times are of the future.
    """
    _refuse_another_clock(state, policy.strategy, observation.now)
    logs, upcoming = observation.logs, observation.snapshots
    going_on = {**unfinished(state.snapshots), **dict.fromkeys(upcoming.found)}
    done = finished(state.snapshots) | set(map(snapshot_split, upcoming.dropped))
    learned = learned_after(state, observation.seen, policy.strategy.percentile)
    strategy = in_force(policy.strategy, learned)
    drift = None if has_rows else policy.alignment.max_drift
    kept = _with_last_ranges(state, done, observation.seen, strategy, drift, has_index=has_index)
    if policy.idleness.passes_returning:
        read = {s for s, t in state.splits.items() if t.returning is not None and t.observed != t.position}
        kept |= {s: returned(kept[s], observation.seen[s]) for s in read & kept.keys()}
    undated = {
        s
        for s, t in state.splits.items()
        # Rows of a snapshot are not of any time, and it is never quiet.
        if t.observed != t.position and s.log not in state.snapshots.frontiers and observation.seen[s].is_undated
    }
    splits, losses = check_loss(kept, logs, policy.on_loss.position_text)
    splits |= {s: unanswered(t) for s, t in splits.items() if s in logs.silent}
    refuse(losses, policy.on_loss)
    splits |= at_rest(splits, state.watermark, observation, strategy)
    # Before the limit is found: the group waits for them as for any active split.
    opened = logs.uncommitted - logs.unknown - upcoming.waiting
    splits |= {s: uncommitted(t) for s, t in splits.items() if s in opened}
    return KnownSplits(
        splits=splits,
        losses=losses,
        learned=learned,
        policy=replace(policy, strategy=strategy),
        # That flag never goes back, though a table that is found later has a snapshot too.
        on_clock=state.use_processing_time or (strategy.use_processing_time and not going_on),
        opened=opened,
        done=done,
        going_on=going_on,
        undated=undated & splits.keys(),
        begun={log: lower for log, lower in going_on.items() if log not in upcoming.dropped},
    )


def _refuse_another_clock(state: SourceState, strategy: WatermarkStrategy, now: Millis) -> None:
    if state.use_processing_time and not strategy.use_processing_time:
        raise OffsetError(
            "the checkpoint was written with processing-time watermarks (watermarkStrategy none), and its watermark is "
            "the clock: every row would be late. Set the old strategy, or start with a new checkpoint location."
        )
    to_clock = strategy.use_processing_time and not state.use_processing_time
    if to_clock and state.watermark is not None and state.watermark > saturating_add(now, CLOCKS_DIFFER):
        raise OffsetError(
            f"the checkpoint's watermark, {watermark_text(state.watermark)}, is of event times and later than the "
            f"driver's clock, {watermark_text(now)}: with watermarkStrategy none every row would be dated so, and no "
            "window would close, until the clock has come there. Set the old strategy, or start with a new checkpoint "
            "location."
        )


def _with_last_ranges(
    state: SourceState,
    done: Set[Split],
    seen: Mapping[Split, RangeSummary],
    strategy: WatermarkStrategy,
    drift: int | None,
    *,
    has_index: bool,
) -> dict[Split, SplitState]:
    """Return the splits with what the tasks of the last batch saw, without those that are done.

    ``drift``: of a group whose splits learn how far to go, where no index looks event times up.
    """

    def folded(split: Split, state: SplitState) -> SplitState:
        if state.observed == state.position:
            return advanced(state, None, strategy)
        found = seen[split]
        return after_range(advanced(state, found, strategy), undated=found.is_undated)

    return {
        s: with_step(folded(s, t), t, None if has_index and t.step is None else drift)
        for s, t in state.splits.items()
        if s not in done
    }
