"""The status of a source after a plan: by split, with the reason of each, and of its alignment group. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from watermark_source.monitor.source_status import (
    NO_ROWS,
    STATUS_OF,
    BoundInForce,
    ChangeCounts,
    GroupStatus,
    Outline,
    SnapshotProgress,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    Unprocessed,
    WriterView,
    reported_snapshots,
    reported_splits,
    reported_writers,
)
from watermark_source.monitor.status_reasons import (
    AlignmentWait,
    Behind,
    Facts,
    first_reading,
    reason,
    unannounced,
    writer_views,
)
from watermark_source.planning.announced import writers_at
from watermark_source.planning.backlog import Limit
from watermark_source.planning.catch_up import AfterCatchUp
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.group import FIRST, OwnSilence, drift_in_force
from watermark_source.planning.planner import Plan
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, is_left_out
from watermark_source.planning.strategy import Observed, Percentile, WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add
from watermark_source.spark.driver.plan_history import History
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions


@dataclass(frozen=True, slots=True)
class Seen:
    """What a status is made from: the last plan, what it was made of, and the rows counted so far."""

    plan: Plan
    counts: RowCounts
    idled: Set[Split] = frozenset()
    """Splits that are idle, or were and have not caught up with the watermark since."""
    uncounted: bool = False
    """Positions do not count rows."""
    snapshots: tuple[SnapshotProgress, ...] = ()
    trouble: str | None = None
    """Why the last known positions of the alignment group's other sources may be old."""
    store: str | None = None
    """Where they meet."""
    own_silence: OwnSilence | None = None
    """The last time in which this source itself reported nothing to the group."""
    bound: BoundInForce | None = None
    """Where it is learned."""
    open_transactions: Set[Split] = frozenset()
    """Splits that hold the watermark, and whose next records are in an open transaction."""
    history: History = field(default_factory=History)
    clock_moved: int = 0
    """Milliseconds by which the wall clock is ahead of ``Clock.elapsed``."""


def source_status(seen: Seen, options: EngineOptions, format_name: str, now: Millis) -> SourceStatus:
    """Return the status after a plan."""
    state, splits = seen.plan.state, seen.plan.watermarks.states
    if state.use_processing_time and options.after_catch_up is AfterCatchUp.CLOCK:
        options = options.on_clock
    group = None
    if options.group is not None:
        others, own_drift = seen.plan.observation.others, options.alignment.max_drift
        drift, drift_of = drift_in_force(own_drift, others), _drift_of_another(seen, options)
        elsewhere = others.slowest
        hold = _holds_all_beginnings(state.group.limit, drift)
        group = GroupStatus(
            options.group.name,
            drift,
            limit=None if state.group.limit == MAX or hold else state.group.limit,
            members=len(state.splits),
            hold=hold,
            others=others.members,
            slowest=None if elsewhere is None else elsewhere.name,
            since=None if elsewhere is None else elsewhere.since,
            trouble=seen.trouble,
            store=seen.store,
            peers=others.peers,
            max_drift_of=drift_of,
            own_max_drift=None if drift_of is None else own_drift,
            own_silence=_if_recent(seen.own_silence, now),
            **_lowest_of_group(seen.plan.limit, drift),
        )
    counting = [
        _order(t)
        for s, t in splits.items()
        if t.status is not SplitStatus.IDLE and not is_left_out(t, state, options.idleness)
    ]
    # Of the whole group: the slowest split here may itself wait for another source.
    elsewhere_lowest = MAX if seen.plan.observation.others.minimum is None else seen.plan.observation.others.minimum
    lowest, highest = min([*counting, elsewhere_lowest]) if counting else MIN, max(counting, default=MIN)
    # Snapshots with more chunks than are known yet.
    growing = frozenset(map(snapshot_split, unfinished(state.snapshots)))

    def outline(split: Split, at: SplitState) -> Outline:
        end = seen.plan.observation.logs.ends.get(split)
        holds_back = options.strategy.has_split_watermarks and at.status is not SplitStatus.IDLE
        return Outline(
            split,
            _status(at, end, final=seen.plan.observation.logs.ends_are_final and split not in growing),
            None if end is None else max(0, end - at.position) + (split in growing),
            holds_back and _order(at) == lowest < highest,
        )

    history, by_wall = seen.history, seen.clock_moved
    positions = {s: t.position for s, t in state.splits.items()}
    reported = reported_splits(
        [outline(s, t) for s, t in splits.items()],
        lambda of: _view(of, splits[of.split], seen, options, lowest=lowest, now=now, growing=of.split in growing),
        uncounted=seen.uncounted,
    )
    return SourceStatus(
        splits=reported.splits,
        counts=reported.counts,
        lag=reported.lag,
        format_name=format_name,
        source_name=options.source_name,
        at=now,
        watermark=state.watermark,
        processing_time=state.use_processing_time,
        group=group,
        rows=seen.counts.totals,
        bound=seen.bound,
        snapshots=reported_snapshots(seen.snapshots),
        writers=reported_writers(_writers(seen)),
        first_reading=first_reading(state) if options.after_catch_up is AfterCatchUp.WATERMARK else None,
        unannounced=None if seen.plan.observation.announced is None else unannounced(seen.plan.observation.announced),
        unprocessed=_at_wall(history.unprocessed, by_wall),
        unread=_at_wall(history.arrivals.oldest(positions), by_wall),
        newest=history.newest,
        rows_at=None if history.arrivals.rows_at is None else history.arrivals.rows_at + by_wall,
        rows_after=None if history.arrivals.rows_after is None else history.arrivals.rows_after + by_wall,
        changes=ChangeCounts(history.watermark_changes, history.status_changes),
        idle_timeout=options.idleness.timeout,
        out_of_orderness=out_of_orderness(options.strategy),
        without_holder=_without_holder(counting, state, options, reads_first=bool(growing)),
    )


_SILENCE_SHOWN = 600_000
"""Milliseconds for which the status names a time in which the source itself was silent."""


def _if_recent(of: OwnSilence | None, now: Millis) -> OwnSilence | None:
    return of if of is not None and now - of.until < _SILENCE_SHOWN else None


def _without_holder(
    counting: Sequence[int], state: SourceState, options: EngineOptions, *, reads_first: bool
) -> Millis | None:
    """Return the watermark that a source would have without the splits that hold it back."""
    catches_up = options.after_catch_up is AfterCatchUp.WATERMARK and first_reading(state) is not None
    if reads_first or catches_up or not options.strategy.has_split_watermarks:
        return None
    held = min(counting, default=MAX)
    follows = min((mark for mark in counting if mark > held), default=MIN)
    return Millis(follows) if follows > max(MIN, state.watermark or MIN) else None


def out_of_orderness(strategy: WatermarkStrategy) -> int | None:
    """Return by how many milliseconds a split's watermark is behind its highest event time; ``None``: by no bound."""
    by_event_times = strategy.observed in (Observed.HIGHEST, Observed.DISORDER) and strategy.follows_highest
    return strategy.bound if by_event_times else None


def _writers(seen: Seen) -> list[WriterView]:
    observed, state = seen.plan.observation.announced, seen.plan.state
    if observed is None:
        return []
    return writer_views(writers_at(observed, positions_of(state.splits), state.future_cap), observed)


def _at_wall(of: Unprocessed | None, moved: int) -> Unprocessed | None:
    return None if of is None else replace(of, arrived=of.arrived + moved)


def _lowest_of_group(limit: Limit | None, drift: int | None) -> dict[str, Any]:
    """Return the lowest watermark of the alignment group, and whose it is; nothing where no member limits it."""
    if limit is None or drift is None or limit.watermark == MAX or _holds_all_beginnings(limit.watermark, drift):
        return {}
    return {"minimum": limit.watermark - drift, "holder": str(limit.slowest)}


def bound_in_force(plan: Plan, strategy: WatermarkStrategy) -> BoundInForce | None:
    """Return the bound that is learned, as of a plan."""
    learned = plan.state.learned
    if learned is None or not isinstance(strategy, Percentile):
        return None
    return BoundInForce(learned.bound, strategy.most, strategy.on_time)


def _view(
    of: Outline, state: SplitState, seen: Seen, options: EngineOptions, *, lowest: int, now: Millis, growing: bool
) -> SplitView:
    split, rows = of.split, seen.counts.by_split.get(of.split, NO_ROWS)
    observed = options.strategy.observed
    resting, unread = of.lag == 0, seen.plan.watermarks.unread.get(split)
    logs, history = seen.plan.observation.logs, seen.plan.observation.history
    idle_timeout = options.idleness.timeout_of(split, history.idle_timeouts)
    rests = resting and state.position == state.observed
    # What has come since, for example during a batch, is not known.
    quiet = _quiet(state, idle_timeout, logs.asked_at) if rests else None
    return SplitView(
        split=split,
        backlog=SplitBacklog(state.position, None if growing else logs.ends.get(split), seen.uncounted),
        watermark=state.watermark,
        status=of.status,
        since=None if state.status is SplitStatus.ACTIVE else state.since,
        why=reason(
            Facts(
                status=of.status,
                lag=None if of.lag and seen.uncounted else of.lag,
                has_more=bool(of.lag),
                watermark=state.watermark,
                # All of them, before the first has a watermark.
                holds_back=of.holds_back or (state.watermark is None and options.strategy.has_split_watermarks),
                quiet=quiet,
                idle_timeout=idle_timeout,
                hidden_ahead=unread is not None and not unread.is_readable,
                behind=_behind(split, state, seen, options),
                wait=_alignment_wait(split, state, seen, options),
                reading=state.position > state.observed,
                waits_for_budget=not resting and state.position == state.observed,
                waits_for_more=seen.plan.waits_for_more,
                rows=rows,
                has_open_transaction=split in seen.open_transactions,
                by_marks=observed is Observed.MARKS,
                has_watermark_of_own=options.strategy.has_split_watermarks,
                resumed=seen.plan.state.run > 1 and state.position > 0,
            )
        ),
        drift=None if state.watermark is None or lowest <= FIRST else state.watermark - lowest,
        late_rows=rows.late.rows,
        looked_ahead=None if unread is None else unread.until - state.position,
        holds_back=of.holds_back,
        has_open_transaction=split in seen.open_transactions,
        unobserved=state.position - state.observed,
        quiet=quiet,
        idle_after=idle_timeout if options.idleness.learned else None,
        times=None if (times := seen.history.times.get(split)) is None else times.as_of(Millis(now - seen.clock_moved)),
    )


def _quiet(state: SplitState, idle_timeout: int | None, asked_at: Millis) -> int | None:
    if state.since is None:
        return None
    # An idle split has been idle since then, and was quiet for the timeout before. The clock may have been set back.
    return max(0, asked_at - state.since) + (idle_timeout or 0 if state.status is SplitStatus.IDLE else 0)


def _behind(split: Split, state: SplitState, seen: Seen, options: EngineOptions) -> Behind | None:
    sent = seen.plan.state.watermark
    # What looks ahead shows how far a split may lead, not how far it has come.
    by_rows = options.strategy.has_split_watermarks and options.strategy.band is None
    if not by_rows or not is_behind(state, sent) or sent is None or state.watermark is None:
        return None
    return Behind(sent - state.watermark, split in seen.idled, is_left_out(state, seen.plan.state, options.idleness))


def is_behind(state: SplitState, sent: Millis | None) -> bool:
    """Return whether an active split is behind the combined watermark, so that its rows up to there are late."""
    if sent is None or state.watermark is None or state.status is not SplitStatus.ACTIVE:
        return False
    return MIN < sent < MAX and state.watermark < sent


def _order(state: SplitState) -> int:
    return MIN if state.watermark is None else state.watermark


def _status(state: SplitState, end: int | None, *, final: bool) -> Status:
    if end is None:
        return Status.UNKNOWN
    if final and state.position >= end and state.status is SplitStatus.ACTIVE:
        return Status.FINISHED
    return STATUS_OF[state.status]


def _holds_all_beginnings(limit: Millis | None, drift: int | None) -> bool:
    """Return whether a limit is no time: nothing is read, but what shows when the first rows are from."""
    return limit is not None and limit <= saturating_add(FIRST, drift or 0)


def _drift_of_another(seen: Seen, options: EngineOptions) -> str | None:
    """Return the other source whose max drift is in force; ``None`` if it is that of this source."""
    own, others = options.alignment.max_drift, seen.plan.observation.others
    return None if drift_in_force(own, others) == own else others.drift_of


def _alignment_wait(split: Split, state: SplitState, seen: Seen, options: EngineOptions) -> AlignmentWait | None:
    limit, drift = seen.plan.limit, drift_in_force(options.alignment.max_drift, seen.plan.observation.others)
    if state.status is not SplitStatus.PAUSED or limit is None or limit.slowest == split:
        return None
    if drift is None or _holds_all_beginnings(limit.watermark, drift):
        return AlignmentWait(slowest=str(limit.slowest), max_drift=None)
    ahead = None if state.watermark is None else state.watermark - (limit.watermark - drift)
    return AlignmentWait(str(limit.slowest), drift, ahead, _drift_of_another(seen, options))
