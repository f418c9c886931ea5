"""The runner: the source's driver side, alive in the one process Spark keeps for it while a query runs.

The life of a runner. Spark calls it from the main thread of the process, one call at a time:

1. ``SourceRunner()`` opens the connector, and the report server, whose thread takes the tasks' reports from then on.
2. ``initial_offset``: where a new query starts. ``freeze``: ``Trigger.AvailableNow`` fixes the ends of the run.
3. ``latest_offset``, again and again: ``_state_at`` decodes the offset, or waits for the next look while nothing comes;
   ``Observer.observe`` asks the connector, the tasks and the group; ``plan`` decides (``planning``: pure). While
   nothing but time passes the last plan is kept (``KeptPlan``).
4. What the plan states goes to the status (``StatusReport.note``), the log (``WatermarkWarnings.note``) and the group
   (``Membership.publish``, whose heartbeat thread writes it); of a batch ``Offsets.encode`` makes the offset.
5. ``tasks``: the work of a batch between two offsets. ``status``: the JSON of the last plan, made when Spark asks.
6. ``close``, or the signal that ends the process (``before_termination``): the group and the system learn of the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from watermark_source.clock import Clock
from watermark_source.contract.stream import Connector, SourceDefinition
from watermark_source.errors import GeneratorError
from watermark_source.planning.holds import is_behind
from watermark_source.planning.kept_plan import KeptPlan
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan, plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.snapshot_ranges import unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.status_transitions import SHORTEST_IDLE_TIMEOUT
from watermark_source.signals import LONGEST_S, TimeLimitExceeded, before_termination, time_limit
from watermark_source.spark.driver.announcements import Announcements
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.input_partitions import InputPartitions
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.look_ahead import FirstLooks, ReadingAhead
from watermark_source.spark.driver.observer import Observer, OpenTransactionsAtHolders, PauseMemory
from watermark_source.spark.driver.offsets import Offsets, check_kept
from watermark_source.spark.driver.pace import LastPlan
from watermark_source.spark.driver.plan_warnings import WatermarkWarnings, warn_of
from watermark_source.spark.driver.run_bounds import AvailableNowEnds, InitialOffset, StreamEnd
from watermark_source.spark.driver.status import StatusReport
from watermark_source.spark.driver.status_from_plan import Seen
from watermark_source.spark.driver.task_reports import TaskReports
from watermark_source.spark.garbage_collector import collect_later, collect_rarely, spare_imports
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.read_tasks import ReadTask

_log = logging.getLogger(__name__)


class SourceRunner:
    """Offsets, tasks and status of one source in one query. Calls come one at a time."""

    def __init__(
        self, definition: SourceDefinition, options: EngineOptions, membership: Membership | None = None
    ) -> None:
        clock = Clock()
        self._definition = definition
        self._connector = definition.open()
        on_loss = replace(
            options.policy.on_loss,
            conditions=definition.loss_conditions,
            position_text=definition.position_text,
            positions_are_rows=self._connector.positions_are_rows,
        )
        policy = self._policy = replace(options.policy, on_loss=on_loss)
        options = replace(options, policy=policy)
        if not policy.strategy.looks_up_times:
            self._connector = replace(self._connector, time_index=None)
        idleness = policy.idleness
        quiet = SHORTEST_IDLE_TIMEOUT if idleness.learned else idleness.timeout
        logs = Logs(self._connector, clock, policy, quiet=quiet)
        self._membership = membership or Membership(options)
        spare_imports()
        collect_rarely()
        self._offsets = Offsets(definition, options.source_name, self._connector)
        self._end = StreamEnd(options)
        self._ends = AvailableNowEnds(self._connector, logs)
        self._start = InitialOffset(self._connector, self._ends, self._offsets)
        self._reports = TaskReports(definition, policy, options.reports, logs)
        self._observer = Observer(
            connector=self._connector,
            policy=policy,
            clock=clock,
            logs=logs,
            ends=self._ends,
            reports=self._reports,
            membership=self._membership,
            replica=self._offsets.replica,
            pauses=PauseMemory() if idleness.learned else None,
            looks=FirstLooks(definition.reader_ahead) if _learns_steps(self._connector, policy) else None,
            announcements=Announcements.of(self._connector, policy, clock),
        )
        ahead = policy.strategy.rows_ahead
        self._ahead = None if ahead is None else ReadingAhead(definition.reader_ahead, rows=ahead)
        self._partitions = InputPartitions(self._connector, options, self._reports, self._observer)
        self._last = LastPlan()
        self._ended = 0.0
        """CPU time of the thread when the last plan had been made."""
        self._idled: Set[Split] = frozenset()
        """See ``Seen.idled``."""
        self._open = OpenTransactionsAtHolders(self._connector.transactions, policy, clock)
        self._status = StatusReport(options, definition.name, clock)
        self._warnings = WatermarkWarnings(options, definition.name, clock)
        before_termination(self._publish_last)

    def close(self) -> None:
        """Stop listening for reports, and publish the last plan. Connections end with the process."""
        self._reports.server.close()
        self._observer.close()
        self._publish_last()

    def _publish_last(self) -> None:
        self._membership.close()
        if self._connector.progress is not None:
            self._connector.progress.close()

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
        if self._ends.logs is not None and unfinished(state.snapshots):
            self._ends.move()
        self._show_processed(state)
        if self._last.kept is None or state is not self._last.state:
            self._idled = {
                s
                for s, t in state.splits.items()
                if t.status is SplitStatus.IDLE or (s in self._idled and is_behind(t, state.watermark))
            }
        # Without a batch between them, what Spark does with offsets between two looks is part of their price.
        begun = time.thread_time() if self._last.was_batch or self._last.is_first else self._ended
        observation = self._observer.observe(state, limit, self._last)
        if state.ended and self._last.is_first:
            self._end.check_later_rows(state, observation, self._definition, self._offsets.replica.reading)
        if self._ahead is not None:
            self._ahead.ids = observation.logs.ids
        kept = None if self._last.kept is None else self._last.kept.again(state, observation)
        planned = self._plan(state, observation) if kept is None else kept.plan
        observation = planned.observation
        warn_of(planned.state, state, observation.now, self._policy.max_future_skew, self._definition.words)
        for loss in planned.losses:
            _log.warning("failOnDataLoss is false, so the query continues: %s", loss.text)
        self._end.note(planned, observation.logs)
        self._reports.forget(observation.seen)
        self._observer.logs.note(planned)
        self._membership.publish(planned)
        seen = self._seen(planned)
        self._status.note(seen, state)
        self._warnings.note(seen, state)
        next_state, offset = planned.state, dict(start)
        if planned.is_batch:
            # As the next process will read it from the offset.
            next_state = replace(planned.state, group=self._membership.named(planned.state.group))
            offset = self._offsets.encode(next_state)
        self._ended = time.thread_time()
        self._last = self._last.after(
            planned,
            state,
            state=next_state,
            offset=offset,
            cpu=self._ended - begun,
            kept=kept or KeptPlan.of(planned, state, self._policy),
        )
        return offset if planned.is_batch else start

    def _plan(self, state: SourceState, observation: Observation) -> Plan:
        with _class_limit(self._policy.strategy.users_class):
            return plan(
                state,
                observation,
                self._policy,
                self._connector.time_index,
                rows=self._connector.row_index,
                ahead=self._ahead,
                lookups=self._observer,
                is_first=self._last.is_first,
            )

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
            self._offsets.check_logs(state, fails=self._policy.on_loss.fails)
            with _class_limit(self._policy.strategy.users_class):
                check_kept(state, self._policy.strategy)
            self._ends.expect(state.splits.keys(), state.ids)
            if not self._policy.strategy.is_clock:
                self._offsets.warn_of_another_time(state)
                self._offsets.warn_of_other_writers(state, announced=self._policy.strategy.announced_by is not None)
        self._end.check(state, is_run=self._ends.logs is not None)
        if self._ends.logs is not None and self._offsets.replica.has_moved:
            # This copy may have been behind when its ends were fixed.
            self.freeze()
        return state

    def _show_processed(self, state: SourceState) -> None:
        """Show once that the batch before a state is done: Spark asks for the next one only when its commit is logged.

        Spark's own word for it, ``commit``, comes when the next batch is logged: for the last one of a run never, and
        while nothing new comes not either.
        """
        if self._connector.progress is not None and (self._last.is_first or self._last.was_batch):
            self._connector.progress.record({s: t.position for s, t in state.splits.items()})

    def _seen(self, planned: Plan) -> Seen:
        return Seen(
            planned,
            self._reports.rows,
            words=self._definition.words,
            idled=self._idled,
            snapshots=self._reports.snapshots.progress(planned.state, planned.observation.now),
            trouble=self._membership.trouble,
            store=self._membership.place,
            own_silence=self._membership.own_silence,
            open_transactions=self._open.after(planned),
        )


def _learns_steps(connector: Connector, policy: PlanPolicy) -> bool:
    """Whether splits are kept together by event times that nothing looks up."""
    aligned = policy.alignment.max_drift is not None and policy.strategy.behind_highest is not None
    return aligned and connector.positions_are_rows and connector.time_index is None


@contextmanager
def _class_limit(name: str | None) -> Iterator[None]:
    """Raise ``GeneratorError`` if the user's strategy, where there is one, does not return: no batch would come."""
    if name is None:
        yield
        return
    try:
        with time_limit(LONGEST_S):
            yield
    except TimeLimitExceeded:
        raise GeneratorError(
            f"watermarkStrategy {name} has not returned for {LONGEST_S:g} seconds while a batch was planned; its "
            "methods must return at once, without waiting for anything"
        ) from None
