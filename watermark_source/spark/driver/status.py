"""The status a source reports with each progress: the last plan, by split and with reasons."""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

from watermark_source.clock import Clock
from watermark_source.monitor.source_status import (
    NO_ROWS,
    Backlog,
    BoundInForce,
    GroupStatus,
    Outline,
    SnapshotProgress,
    SourceStatus,
    SplitView,
    Status,
    WriterView,
)
from watermark_source.monitor.status_json import status_to_json
from watermark_source.monitor.status_reasons import AlignmentWait, Behind, Facts, reason, unannounced, writer_views
from watermark_source.planning.announced import writers_at
from watermark_source.planning.backlog import Limit
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.group import FIRST
from watermark_source.planning.planner import Plan
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus, is_left_out
from watermark_source.planning.strategy import Observed, Percentile, WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions

_STATUS = {SplitStatus.ACTIVE: Status.ACTIVE, SplitStatus.IDLE: Status.IDLE, SplitStatus.PAUSED: Status.PAUSED}


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
    bound: BoundInForce | None = None
    """Where it is learned."""


def source_status(seen: Seen, options: EngineOptions, format_name: str, now: Millis) -> SourceStatus:
    """Return the status after a plan."""
    state, splits = seen.plan.state, seen.plan.watermarks.states
    group = None
    if options.group is not None:
        drift = options.alignment.max_drift
        others = seen.plan.observation.others
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

    return SourceStatus.of(
        [outline(s, t) for s, t in splits.items()],
        lambda of: _view(of, splits[of.split], seen, options, lowest=lowest, now=now, growing=of.split in growing),
        format_name=format_name,
        source_name=options.source_name,
        at=now,
        watermark=state.watermark,
        processing_time=state.use_processing_time,
        group=group,
        rows=seen.counts.totals,
        uncounted=seen.uncounted,
        bound=seen.bound,
        snapshots=seen.snapshots,
        writers=_writers(seen),
        unannounced=None if seen.plan.observation.announced is None else unannounced(seen.plan.observation.announced),
    )


def _writers(seen: Seen) -> list[WriterView]:
    observed, state = seen.plan.observation.announced, seen.plan.state
    if observed is None:
        return []
    return writer_views(writers_at(observed, positions_of(state.splits), state.future_cap), observed)


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
    idle_timeout = options.idleness.timeout_of(split, seen.plan.observation.history.idle_timeouts)
    return SplitView(
        split=split,
        backlog=Backlog(
            state.position, None if growing else seen.plan.observation.logs.ends.get(split), seen.uncounted
        ),
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
                quiet=_quiet(state, idle_timeout, now) if resting and state.position == state.observed else None,
                idle_timeout=idle_timeout,
                hidden_ahead=unread is not None and not unread.is_readable,
                behind=_behind(split, state, seen, options),
                wait=_alignment_wait(split, state, seen.plan.limit, options.alignment.max_drift),
                reading=state.position > state.observed,
                waits_for_budget=not resting and state.position == state.observed,
                waits_for_more=seen.plan.waits_for_more,
                rows=rows,
                by_marks=observed is Observed.MARKS,
                resumed=seen.plan.state.run > 1 and state.position > 0,
            )
        ),
        drift=None if state.watermark is None or lowest <= FIRST else state.watermark - lowest,
        late_rows=rows.late.rows,
        looked_ahead=None if unread is None else unread.until - state.position,
        holds_back=of.holds_back,
        idle_after=idle_timeout if options.idleness.learned else None,
    )


def _quiet(state: SplitState, idle_timeout: int | None, now: Millis) -> int | None:
    if state.since is None:
        return None
    # An idle split has been idle since then, and quiet for the timeout before.
    # The clock may have been set back.
    return max(0, now - state.since) + (idle_timeout or 0 if state.status is SplitStatus.IDLE else 0)


def _behind(split: Split, state: SplitState, seen: Seen, options: EngineOptions) -> Behind | None:
    sent = seen.plan.state.watermark
    # What looks ahead shows how far a split may lead, not how far it has come.
    by_rows = options.strategy.has_split_watermarks and options.strategy.band is None
    if not by_rows or not is_behind(state, sent) or sent is None or state.watermark is None:
        return None
    return Behind(sent - state.watermark, split in seen.idled, is_left_out(state, seen.plan.state, options.idleness))


def is_behind(state: SplitState, sent: Millis | None) -> bool:
    """Return whether an active split is behind the combined watermark, so that its rows up to there are late."""
    known = sent is not None and state.watermark is not None and MIN < sent < MAX
    return known and state.status is SplitStatus.ACTIVE and (state.watermark or MIN) < (sent or MIN)


def _order(state: SplitState) -> int:
    return MIN if state.watermark is None else state.watermark


def _status(state: SplitState, end: int | None, *, final: bool) -> Status:
    if end is None:
        return Status.UNKNOWN
    if final and state.position >= end and state.status is SplitStatus.ACTIVE:
        return Status.FINISHED
    return _STATUS[state.status]


def _holds_all_beginnings(limit: Millis | None, drift: int | None) -> bool:
    """Return whether a limit is no time: nothing is read, but what shows when the first rows are from."""
    return limit is not None and limit <= saturating_add(FIRST, drift or 0)


def _alignment_wait(split: Split, state: SplitState, limit: Limit | None, drift: int | None) -> AlignmentWait | None:
    if state.status is not SplitStatus.PAUSED or limit is None or limit.slowest == split:
        return None
    if drift is None or _holds_all_beginnings(limit.watermark, drift):
        return AlignmentWait(slowest=str(limit.slowest), max_drift=None)
    ahead = None if state.watermark is None else state.watermark - (limit.watermark - drift)
    return AlignmentWait(slowest=str(limit.slowest), max_drift=drift, ahead=ahead)


# The status report: what Spark's progress reports show of the source, made when Spark asks for it.


_STATUS_INTERVAL = 1.0
"""Seconds a status is kept while there is no batch."""


class StatusReport:
    """The status of the last plan as JSON."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._seen: Seen | None = None
        self._made: dict[str, Any] | None = None
        self._made_until = 0.0

    def note(self, seen: Seen) -> None:
        """Take in the last plan."""
        before = None if self._seen is None else self._seen.bound
        bound = bound_in_force(seen.plan, self._options.strategy)
        self._seen = replace(seen, bound=None if bound is None else bound.after(before, seen.plan.observation.now))
        if seen.plan.is_batch:
            self._made = None

    def json(self) -> dict[str, Any] | None:
        """Return the status, ``None`` before the first plan; while nothing happens the same for a second."""
        if self._seen is not None and (self._made is None or time.monotonic() >= self._made_until):
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            self._made = status_to_json(status)
            self._made_until = time.monotonic() + _STATUS_INTERVAL
        return self._made
