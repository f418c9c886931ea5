"""The status a source reports with each progress: the last plan, by split and with reasons."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from watermark_source.clock import Clock
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
    TimeInStatus,
    Unprocessed,
    WriterView,
    reported_snapshots,
    reported_splits,
    reported_writers,
)
from watermark_source.monitor.status_json import status_to_json
from watermark_source.monitor.status_reasons import (
    AlignmentWait,
    Behind,
    Facts,
    first_reading,
    reason,
    unannounced,
    writer_views,
)
from watermark_source.monitor.three_clocks import holder
from watermark_source.planning.announced import writers_at
from watermark_source.planning.backlog import Limit
from watermark_source.planning.catch_up import AfterCatchUp
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.group import FIRST, OwnSilence, drift_in_force, silent_names
from watermark_source.planning.planner import Plan
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, is_left_out
from watermark_source.planning.strategy import Observed, Percentile, WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add, watermark_text
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions

_log = logging.getLogger(__name__)

# When rows arrived: the processing-time watermark, from the requests for the ends of the logs.


End: TypeAlias = tuple[int, Millis]
"""The end of a log, and when it was requested: rows at or behind it arrived later than that."""

_MOST_ENDS = 64
"""Limit on the ends that are kept of a split."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When rows arrived, as far as the requests of this process show it; milliseconds by ``Clock.elapsed``."""

    began: Millis | None = None
    """The first request."""
    requested_at: Millis | None = None
    """The last request."""
    ends: Mapping[Split, tuple[End, ...]] = field(default_factory=dict)
    """Of each split the ends behind its committed rows, lowest first, and before them the last one that is not."""
    rows_at: Millis | None = None
    """The last request that found new rows."""
    rows_after: Millis | None = None
    """The request before that."""
    older: Set[Split] = frozenset()
    """Snapshots: when the rows of a table were written is not known."""

    def after(
        self,
        committed: Mapping[Split, int],
        ends: Mapping[Split, int],
        requested_at: Millis,
        *,
        unanswered: Set[Split] = frozenset(),
        snapshots: Set[Split] = frozenset(),
    ) -> Arrivals:
        """Return it with another request.

        Args:
            committed: the first position of each split that is in no committed batch; 0 for a split without one.
            ends: what the request returned.
            requested_at: just before it was sent.
            unanswered: splits of which it returned nothing, or an end of before: of these the last answer counts.
            snapshots: splits of snapshots.
        """
        known, kept, finds_rows = self.ends, {s: e for s, e in self.ends.items() if s in unanswered}, False
        # A split that is found later had no row before: otherwise it would have been found.
        first: tuple[End, ...] = () if self.began is None else ((0, self.began),)
        for split, end in ends.items():
            if split in unanswered or split in snapshots:
                continue
            before, position, last = known.get(split, ()), committed.get(split, 0), (end, requested_at)
            if not finds_rows and self.began is not None:
                finds_rows = end > (before[-1][0] if before else position)
            if end <= position:
                kept[split] = (last,)
            elif len(before) == 1 and before[0][0] <= position:
                kept[split] = (before[0], last)
            else:
                kept[split] = (*_needed([each for each in before or first if each[0] < end], position), last)
        began = requested_at if self.began is None else self.began
        found = (requested_at, self.requested_at) if finds_rows else (self.rows_at, self.rows_after)
        return Arrivals(began, requested_at, kept, *found, snapshots)

    def oldest(self, positions: Mapping[Split, int]) -> Unprocessed | None:
        """Return what is unprocessed if each split is processed up to a position; ``None`` before the first request."""
        if self.began is None or self.requested_at is None:
            return None
        arrived, where, is_older = self.requested_at, None, False
        for split, ends in self.ends.items():
            position, (end, at) = positions.get(split, 0), ends[-1]
            if position < end:
                before = [requested_at for end, requested_at in ends if end <= position]
                at = before[-1] if before else self.began
                if not before and not is_older:
                    arrived, where, is_older = at, split, True
            # Of a split that was read to its end: rows may have come since it answered last.
            if at < arrived:
                arrived, where = at, split
        if self.older:
            arrived, where, is_older = self.began, min(self.older), True
        return Unprocessed(arrived, None if where is None else str(where), is_older)


def _needed(ends: list[End], position: int) -> list[End]:
    """Return the ends that show when rows from a position on arrived; of too many, every second one.

    Without an end the rows behind it have the time of the end before: an earlier one, which is a lower bound as well.
    """
    passed = sum(end <= position for end, _ in ends)
    needed = ends[max(0, passed - 1) :]
    return needed if len(needed) < _MOST_ENDS else [needed[0], *needed[1::2]]


# How long splits have been active, idle and paused, from the moments at which their status changed.


@dataclass(frozen=True, slots=True)
class StatusTimes:
    """The status of one split since the query was started; milliseconds by ``Clock.elapsed``."""

    status: SplitStatus
    since: Millis
    spent: Mapping[SplitStatus, int] = field(default_factory=dict)
    """In each status, before the present one began."""
    changes: int = 0

    def changed(self, status: SplitStatus, at: Millis) -> StatusTimes:
        """Return it with another status."""
        return StatusTimes(status, max(at, self.since), self._until(at), self.changes + 1)

    def as_of(self, now: Millis) -> TimeInStatus:
        """Return the time in each status."""
        spent = self._until(now)
        active, idle, paused = (spent.get(status, 0) for status in SplitStatus)
        return TimeInStatus(active, idle, paused, self.changes)

    def _until(self, now: Millis) -> dict[SplitStatus, int]:
        return {**self.spent, self.status: self.spent.get(self.status, 0) + max(0, now - self.since)}


@dataclass(frozen=True, slots=True)
class History:
    """What a process remembers of its plans to state it in reports; none of it is in an offset."""

    arrivals: Arrivals = Arrivals()
    unprocessed: Unprocessed | None = None
    """As of the last plan, before its batch."""
    times: Mapping[Split, StatusTimes] = field(default_factory=dict)
    newest: Millis | None = None
    """Highest event time of the rows read."""
    watermark: Millis | None = None
    watermark_changes: int = 0
    status_changes: int = 0

    def after(self, before: SourceState, planned: Plan, now: Millis) -> History:
        """Return it with the plan that led from a state, all of whose rows are in committed batches.

        ``now`` is by ``Clock.elapsed``. A status that began with this plan began when its ends were requested, which is
        what the offset records; in a run whose ends are fixed, when the plan was made.
        """
        observed, state = planned.observation, planned.state
        logs = observed.logs
        committed = {split: at.position for split, at in before.splits.items()}
        if logs.added:
            # Of a split that is new nothing is read that lies before its beginning.
            committed = {**logs.added, **committed}
        arrivals = self.arrivals.after(
            committed,
            logs.ends,
            logs.asked_at,
            unanswered=logs.unknown | logs.stale,
            snapshots=frozenset(map(snapshot_split, unfinished(state.snapshots))),
        )
        moment = now if logs.ends_are_final else logs.asked_at
        times, changes = self._times_after(before, state, moment)
        first = self.arrivals.began is None
        sent = before.watermark if first else self.watermark
        highest = [seen.highest for seen in observed.seen.values() if seen.highest is not None]
        if self.newest is not None:
            highest.append(self.newest)
        return History(
            arrivals,
            arrivals.oldest(committed),
            times,
            max(highest, default=None),
            state.watermark,
            self.watermark_changes + (state.watermark != sent),
            self.status_changes + changes,
        )

    def _times_after(
        self, before: SourceState, state: SourceState, moment: Millis
    ) -> tuple[Mapping[Split, StatusTimes], int]:
        """Return the times of all splits with the changes of a plan, and how many there are."""
        known, splits = self.times, state.splits
        changed = [s for s, at in splits.items() if (of := known.get(s)) is None or of.status is not at.status]
        if not changed and len(known) == len(splits):
            return known, 0
        times, changes = {split: of for split, of in known.items() if split in splits}, 0
        for split in changed:
            was = before.splits.get(split)
            of = times.get(split) or StatusTimes(SplitStatus.ACTIVE if was is None else was.status, moment)
            if of.status is not splits[split].status:
                of = of.changed(splits[split].status, moment)
                changes += 1
            times[split] = of
        return times, changes


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
    history: History = History()
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


def batch_line(of: SourceStatus) -> str:
    """Return the line of a batch for the log: watermark, who holds it, the group's limit, and the oldest row."""
    held = holder(of)
    limit = "" if of.group is None or of.group.limit is None else f", limit {watermark_text(of.group.limit)}"
    counts = ", ".join(f"{n} {status.name.lower()}" for status in Status if (n := of.counts.get(status, 0)))
    arrived = "none" if of.unprocessed is None else watermark_text(of.unprocessed.arrived)
    return (
        f"watermark {watermark_text(of.watermark)}, held by {'no split' if held is None else held.name}{limit}; rows "
        f"up to {arrived} are processed; splits: {counts or 'none'}"
    )


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
        self._history = History()
        self._made: dict[str, Any] | None = None
        self._made_until = 0.0

    def note(self, seen: Seen, before: SourceState) -> None:
        """Take in the last plan, which began with the state ``before``."""
        last = None if self._seen is None else self._seen.bound
        silent = frozenset[str]() if self._seen is None else _silent(self._seen)
        bound = bound_in_force(seen.plan, self._options.strategy)
        elapsed = self._clock.elapsed()
        self._history = self._history.after(before, seen.plan, elapsed)
        self._seen = replace(
            seen,
            bound=None if bound is None else bound.after(last, seen.plan.observation.now),
            history=self._history,
            clock_moved=self._clock.wall() - elapsed,
        )
        if seen.plan.is_batch or silent != _silent(seen):
            self._made = None
        if seen.plan.is_batch and _log.isEnabledFor(logging.DEBUG):
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            _log.debug("%s", batch_line(status))

    def json(self) -> dict[str, Any] | None:
        """Return the status, ``None`` before the first plan.

        Without a batch it is the same for a second, unless the silence of another source has begun or ended.
        """
        if self._seen is not None and (self._made is None or time.monotonic() >= self._made_until):
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            self._made = status_to_json(status)
            self._made_until = time.monotonic() + _STATUS_INTERVAL
        return self._made


def _silent(seen: Seen) -> frozenset[str]:
    return silent_names(seen.plan.observation.others.peers)
