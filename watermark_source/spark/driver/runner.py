"""The runner: the source's driver side, alive in the one process Spark keeps for it while a query runs.

Each plan is made in four steps: observe the connector, the tasks and the group (``observer.py``), decide (``planning``:
pure), keep the result (``offsets.py``, ``pace.py``) and report it (``status.py``, ``group_membership.py``).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from types import FrameType
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from watermark_source.clock import Clock
from watermark_source.contract.stream import Connector, ProgressSink, SourceDefinition
from watermark_source.errors import InternalError, listed
from watermark_source.monitor.source_status import NO_ROWS, SourceStatus, SplitView, Status
from watermark_source.monitor.watermark_warnings import (
    Episode,
    HoldingSplit,
    LateSplit,
    Lead,
    Stand,
    Standing,
    clock_text,
    clocks_behind,
    end_text,
    future_text,
    late_text,
    lead,
    lead_text,
    moving_text,
    noted,
    reason_of,
    standing_text,
)
from watermark_source.planning.catch_up import AfterCatchUp, is_done
from watermark_source.planning.planner import Plan, plan
from watermark_source.planning.policy import MinimumRows, OnLoss, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.status_transitions import SHORTEST_IDLE_TIMEOUT
from watermark_source.planning.strategy import CLOCKS_DIFFER, Observed
from watermark_source.planning.watermark import LAST, MAX, MIN, Millis, is_moment, watermark_text
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.input_partitions import InputPartitions
from watermark_source.spark.driver.logs import Announcements, Logs
from watermark_source.spark.driver.look_ahead import FirstLooks, ReadingAhead
from watermark_source.spark.driver.observer import Observer, OpenTransactionsAtHolders, PauseMemory
from watermark_source.spark.driver.offsets import Offsets
from watermark_source.spark.driver.pace import LastPlan
from watermark_source.spark.driver.run_bounds import AvailableNowEnds, InitialOffset, StreamEnd
from watermark_source.spark.driver.status import Seen, StatusReport, is_behind, out_of_orderness, source_status
from watermark_source.spark.driver.task_reports import TaskReports
from watermark_source.spark.garbage_collector import collect_later, collect_rarely, spare_imports
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.read_tasks import ReadTask

_log = logging.getLogger(__name__)

# Warnings of what in a plan may not be what the user wants: a watermark that stands or is of the future, late rows,
# new splits, losses.


_FAR_FUTURE = 3_600_000
"""Milliseconds beyond the clock from which a watermark of the future is logged, where no cap holds it."""


_BY_OTHERS = (
    "No row of this source may move it so far (maxFutureSkew): another source of the alignment group did "
    "(idleFollows=group). Set maxFutureSkew there, too, and begin with a new checkpoint location"
)


_BY_WRITERS = (
    "A writer of the topic announced it: check its clock and its event times, and set maxFutureSkew, with which an "
    "announcement of the future waits. A watermark never goes back: begin with a new checkpoint location"
)


def warn_of(state: SourceState, before: SourceState, now: Millis, max_future_skew: int | None) -> None:
    """Log warnings of a plan that led from the state ``before`` to ``state``, at ``now`` by the wall clock."""
    added = state.splits.keys() - before.splits.keys()
    # Writers announce a watermark of the rows of partitions that are found later, too.
    by_splits = not state.use_processing_time and state.announced is None
    if added and before.watermark is not None and by_splits:
        _log.warning(
            "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
            "watermark, %s, are late", listed(added), watermark_text(before.watermark),
        )  # fmt: skip
    if is_done(state.catch_up) and not is_done(before.catch_up):
        _log.info("the logs have been read to the ends that they had at the start")
    is_first = state.run > before.run
    stands = state.use_processing_time and before.watermark is not None and is_first
    if stands and before.watermark is not None and before.watermark > now + CLOCKS_DIFFER:
        _log.warning(
            "event time is the driver's clock, %s, and stands still at the checkpoint's, %s, until the clock has come "
            "there: rows are dated so, and no window closes. Set the clock, or start with a new checkpoint location",
            watermark_text(now), watermark_text(before.watermark),
        )  # fmt: skip
    watermark, soon = state.watermark, now + max(_FAR_FUTURE, max_future_skew or 0)
    if watermark not in (LAST, MAX) and (before.watermark or MIN) <= soon < (watermark or MIN):
        _log.warning(
            "the watermark, %s, is more than an hour in the future: rows of now are late. %s",
            watermark_text(watermark),
            _future_cause(state, (watermark or MIN) - now, max_future_skew),
        )  # fmt: skip
    if is_first and not stands and before.watermark not in (None, LAST, MAX) and (before.watermark or MIN) > soon:
        _log.warning(
            "the checkpoint's watermark, %s, is more than an hour in the future: rows of now are late, and no window "
            "closes before rows with later event times come. %s",
            watermark_text(before.watermark), future_text((before.watermark or MIN) - now, max_future_skew),
        )  # fmt: skip


def _future_cause(state: SourceState, ahead: int, max_future_skew: int | None) -> str:
    if state.announced is not None:
        return _BY_WRITERS
    if state.generator is not None and max_future_skew is None:
        return (
            f"Rows of the future, or watermarkStrategy {state.generator}, advanced it. Set maxFutureSkew, with which "
            "neither can. A watermark never goes back: begin with a new checkpoint location"
        )
    return future_text(ahead, max_future_skew) if max_future_skew is None else _BY_OTHERS


class WatermarkWarnings:
    """Logs what ``monitor.watermark_warnings`` decides; nothing where time is the clock, or without markers."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._standing: Standing | None = None
        self._episode: Episode | None = None
        self._late_rows = 0
        self._late: set[Split] = set()
        """Splits whose late rows were warned of."""
        self._were_idle: set[Split] = set()
        self._were_added: set[Split] = set()
        self._ended = False
        self._set_back = False
        """Whether a clock was behind the watermark the last time that it was asked for."""
        self._lead: Lead | None = None
        self._warned_of_lead = False

    def note(self, seen: Seen, before: SourceState) -> None:
        """Take in a plan that began with the state ``before``."""
        state, options = seen.plan.state, self._options
        always_moves = options.strategy.observed is Observed.NOTHING and options.after_catch_up is None
        if not options.include_markers or always_moves or state.use_processing_time:
            return
        self._note_left_out(seen, before)
        self._warn_of_clocks(seen, before)
        if seen.counts.totals.late.rows != self._late_rows:
            self._late_rows = seen.counts.totals.late.rows
            self._warn_of_late_rows(seen, before.watermark)
        now, totals = self._clock.elapsed(), seen.counts.totals
        standing = self._standing or Standing(before.watermark, now, seen.counts.looked_again, before.watermark)
        standing = standing.at(state.watermark, totals.read, now, totals.late.rows)
        is_over = seen.plan.observation.logs.ends_are_final and not seen.plan.is_batch
        read = totals.read if state.watermark is None else totals.read - seen.counts.looked_again
        if is_over and not self._ended and standing.is_due_at_end(read):
            _log.warning("%s", end_text(self._stand(standing, now, seen), options.max_future_skew))
        elif not is_over:
            self._warn_of_standing(standing, now, seen)
        self._warn_of_lead(state.watermark, now, is_over=is_over)
        self._ended, self._standing = is_over, standing

    def _warn_of_standing(self, standing: Standing, now: Millis, seen: Seen) -> None:
        """Warn of a watermark that stands, once for each reason, then ever less often; and once it moves again."""
        patience, episode = self._options.watermark_warning_after, self._episode
        if standing.is_due(seen.counts.totals.read, now, patience):
            if episode is not None and episode.is_seen(standing, now, patience):
                return
            stand = self._stand(standing, now, seen)
            self._episode, warns = noted(episode, standing, reason_of(stand), now, patience)
            if warns:
                _log.warning("%s", standing_text(stand, self._options.max_future_skew))
        elif episode is not None and episode.is_over(standing, now, patience):
            since = self._clock.wall() - (now - episode.since)
            _log.warning("%s", moving_text(standing.watermark, episode.stands, since))
            self._episode = None

    def _warn_of_lead(self, watermark: Millis | None, now: Millis, *, is_over: bool) -> None:
        """Warn once of event times that are ahead as by a time zone, where ``warn_of`` does not."""
        options, by_clock = self._options, self._ahead(watermark)
        if self._warned_of_lead or watermark is None or by_clock > max(_FAR_FUTURE, options.max_future_skew or 0):
            return
        ahead, patience = by_clock + (out_of_orderness(options.strategy) or 0), options.watermark_warning_after
        self._lead = lead(self._lead, watermark, ahead, now, patience) if by_clock else None
        if self._lead is not None and (is_over or self._lead.is_due(now, patience)):
            self._warned_of_lead = True
            _log.warning("%s", lead_text(ahead, 0 if is_over else now - self._lead.since))

    def _note_left_out(self, seen: Seen, before: SourceState) -> None:
        """Note which splits' rows may be late because the watermark advanced without them."""
        state = seen.plan.state
        if before.watermark is not None and self._options.strategy.has_split_watermarks:
            self._were_added |= state.splits.keys() - before.splits.keys()
        if self._options.idleness.timeout is not None and seen.plan.has_rows:
            was, now = before.splits, state.splits
            self._were_idle |= {
                s for s, at in was.items()
                if at.status is SplitStatus.IDLE and s in now and now[s].status is not SplitStatus.IDLE
            }  # fmt: skip

    def _warn_of_clocks(self, seen: Seen, before: SourceState) -> None:
        """Warn once of each time that a clock which dates rows is behind the watermark."""
        options, watermark, times = self._options, before.watermark, seen.plan.observation.logs.times.reached
        if not times:
            return
        follows_group = options.idleness.follows_group
        behind = {
            split: at
            for split, at in clocks_behind(times, watermark, follows_group=follows_group).items()
            if options.strategy.at_end(times[split]) is not None
        }
        if behind and watermark is not None and not self._set_back:
            _log.warning("%s", clock_text(behind, watermark, follows_group=follows_group))
        self._set_back = bool(behind)

    def _warn_of_late_rows(self, seen: Seen, watermark: Millis | None) -> None:
        idleness, timeouts = self._options.idleness, seen.plan.observation.history.idle_timeouts
        found = [
            LateSplit(
                split,
                rows.late,
                split in self._were_idle,
                split in self._were_added,
                idleness.timeout_of(split, timeouts),
            )
            for split, rows in seen.counts.by_split.items()
            if rows.late.rows and split not in self._late
        ]
        self._late |= {each.split for each in found}
        strategy, skew = self._options.strategy, self._options.max_future_skew
        cause = attrgetter("was_idle", "was_added")
        for _, splits in groupby(sorted(found, key=cause), key=cause):
            _log.warning("%s", late_text(splits, strategy, skew, self._ahead(watermark)))

    def _ahead(self, watermark: int | None) -> int:
        """Return by how many milliseconds a watermark is ahead of the clock, 0 if it is not."""
        if watermark is None or not is_moment(watermark):
            return 0
        return max(0, watermark - self._clock.wall())

    def _stand(self, standing: Standing, now: Millis, seen: Seen) -> Stand:
        status = source_status(seen, self._options, self._format_name, self._clock.wall())
        lasted, totals, is_last = now - standing.since, seen.counts.totals, _are_last(status)
        return Stand(
            watermark=standing.watermark,
            since=status.at - lasted,
            lasted=lasted,
            rows=totals.read - standing.rows,
            late=totals.late.rows - standing.late,
            ahead=self._ahead(standing.watermark),
            holders=[self._holder(view, seen, is_last=is_last) for view in _holding(status)],
            snapshots=[each.log for each in status.snapshots],
            read_first=self._read_first(seen),
            elsewhere=None if status.group is None else status.group.slowest,
            writers=None if seen.plan.observation.announced is None else _writers(status),
            is_last=is_last,
            began_behind=not totals.read
            and status.watermark is None
            and any(s.backlog.position for s in status.splits),
            bound=status.out_of_orderness or 0,
        )

    def _read_first(self, seen: Seen) -> list[Split]:
        catch_up = seen.plan.state.catch_up
        if catch_up is None or self._options.after_catch_up is not AfterCatchUp.WATERMARK:
            return []
        return sorted(catch_up.ends)

    def _holder(self, view: SplitView, seen: Seen, *, is_last: bool) -> HoldingSplit:
        timeouts: Mapping[Split, int] = seen.plan.observation.history.idle_timeouts
        rows = seen.counts.by_split.get(view.split, NO_ROWS)
        quiet = self._options.watermark_warning_after if view.quiet is None or is_last else view.quiet
        was_read = rows.read > 0 and 2 * quiet < self._options.watermark_warning_after
        return HoldingSplit(
            view.split,
            view.why,
            view.lag,
            rows,
            self._options.idleness.timeout_of(view.split, timeouts),
            by_marks=self._options.strategy.observed is Observed.MARKS,
            is_paused=view.status is Status.PAUSED,
            has_open_transaction=view.has_open_transaction,
            is_read=not seen.plan.observation.logs.ends_are_final and (view.unobserved > 0 or was_read),
        )


def _writers(status: SourceStatus) -> list[str]:
    """Return why the watermark stands where the writers announced it."""
    if status.unannounced is not None:
        return [status.unannounced]
    return [f"{writer.name} {writer.why}" for writer in status.writers if writer.holds_back]


def _holding(status: SourceStatus) -> list[SplitView]:
    """Return the splits that the combined watermark waits for, those that no record can help first."""
    counting = [view for view in status.splits if view.status is not Status.IDLE]
    without = [view for view in counting if view.watermark is None]
    if without or not counting:
        return sorted(without, key=lambda view: (view.lag != 0, view.split))
    lowest = min(view.watermark for view in counting if view.watermark is not None)
    return [view for view in counting if view.watermark == lowest]


def _are_last(status: SourceStatus) -> bool:
    """Return whether the watermark would not advance without the splits that hold it, as far as the status has all."""
    holding = _holding(status)
    reached = [view.watermark for view in status.splits if view not in holding and view.watermark is not None]
    own = [view.watermark for view in holding if view.watermark is not None]
    ahead = bool(reached) and max(reached) > max(own, default=MIN)
    return not ahead and len(status.splits) == status.splits_total


# A query's progress, shown to other systems where the connector has a place for it.


class ShownProgress:
    """Shows each batch that is done once; nothing without a place for it."""

    def __init__(self, sink: ProgressSink | None) -> None:
        self._sink = sink
        self._is_shown = False

    def show(self, state: SourceState) -> None:
        """Show that the batch before a state is done: Spark asks for the next one only when its commit is logged.

        Spark's own word for it, ``commit``, comes when the next batch is logged: for the last one of a run never, and
        while nothing new comes not either.
        """
        if self._sink is not None and not self._is_shown:
            self._sink.record({s: t.position for s, t in state.splits.items()})
            self._is_shown = True

    def expect(self) -> None:
        """Take in that another batch is planned."""
        self._is_shown = False

    def close(self) -> None:
        """Show the last."""
        if self._sink is not None:
            self._sink.close()


# The end of a source's process: Spark sends it SIGTERM when a query stops, and does not call ``stop`` before.


def before_termination(last: Callable[[], None]) -> None:
    """Have ``last`` called when SIGTERM comes; then the signal does what it would have done.

    ``last`` interrupts whatever the main thread is doing, and Spark may send the signal twice, so it may interrupt
    itself too: it must take no lock, and must end soon by itself. Python handles signals in the main thread only;
    called in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    former = signal.getsignal(signal.SIGTERM)

    def end(number: int, _: FrameType | None) -> None:
        try:
            last()
        finally:
            signal.signal(number, former or signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)


class SourceRunner:
    """Offsets, tasks and status of one source in one query. Calls come one at a time."""

    def __init__(
        self,
        definition: SourceDefinition,
        options: EngineOptions,
        *,
        membership: Membership | None = None,
        minimum_rows: MinimumRows | None = None,
        fail_on_data_loss: bool,
    ) -> None:
        on_loss = OnLoss(
            fails=fail_on_data_loss, conditions=definition.loss_conditions, position_text=definition.position_text
        )
        policy = PlanPolicy(
            strategy=options.strategy,
            max_future_skew=options.max_future_skew,
            watermark_interval=options.watermark_interval,
            idleness=options.idleness,
            alignment=options.alignment,
            on_loss=on_loss,
            final_watermark=options.final_watermark,
            after_catch_up=options.after_catch_up,
            minimum_rows=minimum_rows,
            sends_markers=options.include_markers,
        )
        self._policy = policy
        self._fails_on_loss = fail_on_data_loss
        clock = Clock()
        self._definition = definition
        self._connector = definition.open()
        if not options.strategy.follows_highest:
            self._connector = replace(self._connector, time_index=None)
        idleness = options.idleness
        quiet = SHORTEST_IDLE_TIMEOUT if idleness.learned else idleness.timeout
        logs = Logs(self._connector, clock, policy, quiet=quiet)
        self._membership = membership or Membership.of(options)
        spare_imports()
        collect_rarely()
        self._offsets = Offsets(definition, options.source_name, self._connector.replicas)
        self._end = StreamEnd(options, fails_on_loss=fail_on_data_loss)
        self._ends = AvailableNowEnds(self._connector, logs, self._end)
        self._start = InitialOffset(self._connector, self._ends, self._offsets)
        self._reports = TaskReports(
            definition, options.strategy, options.reports, logs, positions_are_rows=self._connector.positions_are_rows
        )
        self._observer = Observer(
            self._connector,
            policy,
            clock,
            logs=logs,
            ends=self._ends,
            reports=self._reports,
            membership=self._membership,
            replica=self._offsets.replica,
            pauses=PauseMemory() if idleness.learned else None,
            looks=FirstLooks(definition.reader_ahead) if _learns_steps(self._connector, policy) else None,
            announcements=_announcements(self._connector, policy, clock),
        )
        ahead = None
        if (band := options.strategy.band) is not None:
            ahead = ReadingAhead(definition.reader_ahead, rows=band.rows, span=band.span)
        self._ahead = ahead
        self._partitions = InputPartitions(
            self._connector, options, self._reports, self._observer, fails_on_loss=fail_on_data_loss
        )
        self._last = LastPlan()
        self._idled: Set[Split] = frozenset()
        """See ``Seen.idled``."""
        self._open = OpenTransactionsAtHolders(self._connector.transactions, clock)
        self._status = StatusReport(options, definition.name, clock)
        self._warnings = WatermarkWarnings(options, definition.name, clock)
        self._progress = ShownProgress(self._connector.progress)
        before_termination(self._publish_last)

    def close(self) -> None:
        """Stop listening for reports, and publish the last plan. Connections end with the process."""
        self._reports.close()
        self._observer.close()
        self._publish_last()

    def _publish_last(self) -> None:
        self._membership.close()
        self._progress.close()

    @collect_later()
    def initial_offset(self) -> dict[str, Any]:
        """Return where a new query starts. Spark asks more than once; the answer stays the same in this process."""
        return self._start.offset()

    def freeze(self) -> None:
        """Fix the ends of this run (``Trigger.AvailableNow``)."""
        self._ends.fix()

    @collect_later()
    def latest_offset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        """Return the end of the next batch, or ``start`` if there is none."""
        self._start.check(start)
        state = self._state_at(start)
        self._progress.show(state)
        self._idled = {
            s
            for s, t in state.splits.items()
            if t.status is SplitStatus.IDLE or (s in self._idled and is_behind(t, state.watermark))
        }
        cpu = time.thread_time()
        observation = self._observer.observe(state, limit, self._last)
        if state.ended and self._last.is_first:
            self._end.check_later_rows(
                state,
                observation,
                self._definition,
                self._offsets.replica.reading,
                positions_are_rows=self._connector.positions_are_rows,
            )
        planned = plan(
            state,
            observation,
            self._policy,
            self._connector.time_index,
            rows=self._connector.row_index,
            ahead=self._ahead,
            lookups=self._observer,
            is_first=self._last.is_first,
        )
        observation = planned.observation
        warn_of(planned.state, state, observation.now, self._policy.max_future_skew)
        for loss in planned.losses:
            _log.warning("failOnDataLoss is false, so the query continues: %s", loss.text)
        self._end.note(planned, observation.logs)
        self._reports.forget(observation.seen)
        self._observer.note(planned)
        self._membership.publish(planned)
        seen = self._seen(planned)
        self._status.note(seen, state)
        self._warnings.note(seen, state)
        goes_on, offset = planned.state, dict(start)
        if planned.is_batch:
            self._progress.expect()
            # As the next process will read it from the offset.
            goes_on = replace(planned.state, group=self._membership.named(planned.state.group))
            offset = self._offsets.encode(goes_on)
        cpu = time.thread_time() - cpu
        self._last = self._last.after(planned, observation.logs, state, state=goes_on, offset=offset, cpu=cpu)
        return offset if planned.is_batch else start

    @collect_later()
    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadTask]:
        """Return the work of the batch between two offsets; at least a task for its markers."""
        before, after, relocation = self._offsets.batch(start, end)
        known = not self._start.is_unknown(start)
        return self._partitions.tasks(before, after, relocation, begin_is_known=known)

    @collect_later()
    def status(self) -> dict[str, Any] | None:
        """Return the status as JSON, ``None`` before the first plan."""
        return self._status.json()

    def _state_at(self, start: Mapping[str, Any]) -> SourceState:
        """Return the state that an offset stands for; while nothing happens, after a pause."""
        if start == self._last.offset:
            self._last.pace.wait(self._membership.wait)
            return self._last.state
        state = self._offsets.decode(start)
        if self._last.is_first:
            self._offsets.check_logs(state, fails=self._fails_on_loss)
            self._offsets.check_generator(state, self._policy.strategy)
            self._ends.expect(state.splits.keys())
            if self._policy.strategy.observed is not Observed.NOTHING:
                self._offsets.warn_of_another_time(state)
                self._offsets.warn_of_other_writers(state, announced=self._policy.strategy.announced_by is not None)
        self._ends.check(state)
        if self._ends.logs is not None and self._offsets.replica.has_moved:
            # This copy may have been behind when its ends were fixed.
            self.freeze()
        return state

    def _seen(self, planned: Plan) -> Seen:
        return Seen(
            planned,
            self._reports.rows,
            idled=self._idled,
            uncounted=not self._connector.positions_are_rows,
            snapshots=self._reports.snapshots.progress(planned.state, planned.observation.now),
            trouble=self._membership.trouble,
            store=self._membership.place,
            own_silence=self._membership.own_silence,
            open_transactions=self._open.after(planned),
        )


def _announcements(connector: Connector, policy: PlanPolicy, clock: Clock) -> Announcements | None:
    by, log = policy.strategy.announced_by, connector.announcements
    if by is None:
        return None
    if log is None:
        raise InternalError("the connector declares announcements, and has no log of them (Connector.announcements)")
    return Announcements(log, by, connector.discovery, clock)


def _learns_steps(connector: Connector, policy: PlanPolicy) -> bool:
    """Whether splits are kept together by event times that nothing looks up."""
    by_event_times = policy.strategy.observed in (Observed.HIGHEST, Observed.DISORDER)
    aligned = policy.alignment.max_drift is not None and policy.strategy.follows_highest
    return aligned and by_event_times and connector.positions_are_rows and connector.time_index is None
