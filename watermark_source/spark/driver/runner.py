"""The runner: the source's driver side, alive in the one process Spark keeps for it while a query runs.

A plan goes through four hands: it is asked what the connector, the tasks and the group say (``observer.py``), decided
(``batch_planner.py``, and ``planning``: pure), remembered (``offsets.py``, ``last_plan.py``) and reported
(``status_report.py``, ``progress_to_sink.py``, ``group_membership.py``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from watermark_source.clock import Clock
from watermark_source.planning.learned_idle_timeout import SHORTEST
from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import OnLoss, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.spark.connector.stream import Connector, SourceDefinition
from watermark_source.spark.driver.available_now import AvailableNowEnds
from watermark_source.spark.driver.batch_planner import BatchPlanner
from watermark_source.spark.driver.first_look import FirstLooks
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.initial_offset import InitialOffset
from watermark_source.spark.driver.input_partitions import InputPartitions
from watermark_source.spark.driver.last_plan import LastPlan
from watermark_source.spark.driver.look_ahead import ReadingAhead
from watermark_source.spark.driver.observed_logs import Logs
from watermark_source.spark.driver.observer import Observer
from watermark_source.spark.driver.offsets import Offsets
from watermark_source.spark.driver.pause_memory import PauseMemory
from watermark_source.spark.driver.plan_warnings import WatermarkWarnings, warn_of
from watermark_source.spark.driver.progress_to_sink import ShownProgress
from watermark_source.spark.driver.status_from_plan import Seen, is_behind
from watermark_source.spark.driver.status_report import StatusReport
from watermark_source.spark.driver.stream_end import StreamEnd
from watermark_source.spark.driver.task_reports import TaskReports
from watermark_source.spark.driver.termination import before_termination
from watermark_source.spark.exchange.read_tasks import ReadTask
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.startup.garbage_collector import collect_later, collect_rarely, spare_imports


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
            idleness=options.idleness,
            alignment=options.alignment,
            on_loss=on_loss,
            final_watermark=options.final_watermark,
            minimum_rows=minimum_rows,
            sends_markers=options.include_markers,
        )
        self._strategy = options.strategy
        self._fails_on_loss = fail_on_data_loss
        clock = Clock()
        self._definition = definition
        self._connector = definition.open()
        idleness = options.idleness
        quiet = SHORTEST if idleness.learned else idleness.timeout
        logs = Logs(self._connector, clock, options.strategy, quiet=quiet)
        self._membership = membership or Membership.of(options)
        spare_imports()
        collect_rarely()
        self._offsets = Offsets(definition, options.source_name, self._connector.replicas)
        self._end = StreamEnd(options, fails_on_loss=fail_on_data_loss)
        self._ends = AvailableNowEnds(self._connector, logs, self._end)
        self._start = InitialOffset(self._connector, self._ends, self._offsets)
        self._reports = TaskReports(
            definition, options.strategy, options.reports, logs, anywhere=self._connector.positions_are_rows
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
        )
        ahead = None
        if (far := options.look_ahead) is not None:
            ahead = ReadingAhead(definition.reader_ahead, rows=far.rows, span=far.time)
        self._planner = BatchPlanner(self._connector, policy, self._observer, ahead)
        self._partitions = InputPartitions(
            self._connector, options, self._reports, self._observer, fails_on_loss=fail_on_data_loss
        )
        self._last = LastPlan()
        self._idled: Set[Split] = frozenset()
        """See ``Seen.idled``."""
        self._status = StatusReport(options, definition.name, clock)
        self._warnings = WatermarkWarnings(options, definition.name, clock)
        self._progress = ShownProgress(self._connector.progress)
        before_termination(self._tell_last)

    def close(self) -> None:
        """Stop listening for reports, and tell others the last. Connections end with the process."""
        self._reports.close()
        self._observer.close()
        self._tell_last()

    def _tell_last(self) -> None:
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
            anywhere, reading = self._connector.positions_are_rows, self._offsets.replica.reading
            self._end.look(state, observation, self._definition, reading, enters_anywhere=anywhere)
        observation, planned, splits = self._planner.decide(state, observation, announce=self._last.is_first)
        warn_of(planned, state, observation.now, self._strategy)
        self._end.note(planned, observation.logs)
        self._reports.forget(observation.seen)
        self._observer.note(planned)
        self._membership.tell(planned)
        seen = self._seen(planned, splits, observation)
        self._status.note(seen)
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
            self._last.pace.wait()
            return self._last.state
        state = self._offsets.decode(start)
        if self._last.is_first:
            self._offsets.check_logs(state, fails=self._fails_on_loss)
            self._ends.expect(state.splits.keys())
            if not self._strategy.use_processing_time:
                self._offsets.warn_of_another_time(state)
        self._ends.check(state)
        if self._ends.logs is not None and self._offsets.replica.has_moved:
            # This copy may have been behind when its ends were fixed.
            self.freeze()
        return state

    def _seen(self, planned: Plan, splits: Mapping[Split, SplitState], observation: Observation) -> Seen:
        return Seen(
            planned,
            splits,
            observation,
            self._reports.rows,
            idled=self._idled,
            uncounted=not self._connector.positions_are_rows,
            snapshots=self._reports.snapshots.progress(planned.state, observation.now),
            trouble=self._membership.trouble,
            store=self._membership.place,
        )


def _learns_steps(connector: Connector, policy: PlanPolicy) -> bool:
    """Whether splits are kept together by event times that nothing looks up."""
    by_event_times = not (policy.strategy.punctuated or policy.strategy.use_processing_time)
    aligned = policy.alignment.max_drift is not None
    return aligned and by_event_times and connector.positions_are_rows and connector.time_index is None
