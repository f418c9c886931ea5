"""The runner: the source's driver side, alive in the one process Spark keeps for it while a query runs.

A plan goes through four hands: *asking* (``asking.py``: what the connector, the tasks and the group say), *deciding*
(``planning``: pure), *remembering* (``offsets.py``, ``last_plan.py``) and *telling* (``telling.py``, the group).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from watermark_source.clock import Clock
from watermark_source.errors import listed
from watermark_source.eventtime.disorder import STRETCH
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.moments import watermark_text
from watermark_source.planning.combined import when_read, with_rows
from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.snapshot import snapshot_batch
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.columns.markers import markers_between
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.asking import Asking
from watermark_source.spark.driver.fixed_ends import FixedEnds
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.last_plan import LastPlan
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.look_ahead import ReadingAhead
from watermark_source.spark.driver.offsets import Offsets
from watermark_source.spark.driver.pause_memory import PauseMemory
from watermark_source.spark.driver.query_start import QueryStart
from watermark_source.spark.driver.reaching_back import reaching_back
from watermark_source.spark.driver.status import Seen
from watermark_source.spark.driver.stream_end import StreamEnd
from watermark_source.spark.driver.task_reports import TaskReports
from watermark_source.spark.driver.telling import ShownProgress, StatusReport
from watermark_source.spark.driver.termination import before_termination
from watermark_source.spark.exchange.packs import Pack, TaskWork, beginnings_of, tasks_of
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.options.policy import plan_policy
from watermark_source.spark.startup.collector import collect_later, collect_rarely, spare_imports

_log = logging.getLogger(__name__)


_FAR_FUTURE = 3_600_000
"""Milliseconds after which a watermark of the future is told, where nothing keeps it from there."""


class SourceRunner:
    """Offsets, packs and status of one source in one query. Calls come one at a time."""

    def __init__(
        self,
        definition: SourceDefinition,
        options: EngineOptions,
        *,
        membership: Membership | None = None,
        minimum_rows: MinimumRows | None = None,
        fail_on_data_loss: bool,
    ) -> None:
        self._options = options
        self._policy = plan_policy(
            options,
            minimum_rows=minimum_rows,
            fail_on_data_loss=fail_on_data_loss,
            loss_conditions=definition.loss_conditions,
            position_text=definition.position_text,
        )
        clock = Clock()
        self._connector = definition.open()
        logs = Logs(self._connector, clock, self._policy)
        self._membership = membership or Membership(options)
        spare_imports()
        collect_rarely()
        self._offsets = Offsets(definition, options.source_name, self._connector.copies)
        self._ends = FixedEnds(self._connector, logs, StreamEnd(options))
        self._start = QueryStart(self._connector, self._ends, self._offsets)
        self._reports = TaskReports(definition, options, logs, anywhere=self._connector.positions_are_rows)
        self._asking = Asking(
            self._connector,
            self._policy,
            clock,
            logs=logs,
            ends=self._ends,
            reports=self._reports,
            membership=self._membership,
            whereabouts=self._offsets.whereabouts,
            pauses=PauseMemory() if options.idle_learned else None,
        )
        self._ahead = None
        if options.lookahead_rows is not None:
            reader = definition.observing_reader
            self._ahead = ReadingAhead(reader, rows=options.lookahead_rows, span=options.lookahead_time)
        self._last = LastPlan()
        self._status = StatusReport(options, definition.name, clock)
        self._progress = ShownProgress(self._connector.progress)
        before_termination(self._tell_last)

    def close(self) -> None:
        """Stop listening for reports, and tell others the last. Connections end with the process."""
        self._reports.close()
        self._asking.close()
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
        cpu = time.thread_time()
        observation = self._asking.observe(state, limit, self._last)
        planned = self._plan(state, observation)
        if planned.newest_matters and not observation.newest:
            observation = self._asking.dated(observation, state)
            planned = self._plan(state, observation)
        planned, splits = self._with_rows(planned, state)
        self._warn(planned, state, observation.now)
        self._reports.forget(observation.seen)
        self._asking.note(planned)
        self._membership.tell(planned)
        self._status.note(self._seen(planned, splits, observation))
        goes_on, offset = planned.state, dict(start)
        if planned.is_batch:
            self._progress.expect()
            # As the next process will read it from the offset.
            goes_on = self._membership.named(planned.state)
            offset = self._offsets.encode(goes_on)
        cpu = time.thread_time() - cpu
        self._last = self._last.after(planned, observation, state, state=goes_on, offset=offset, cpu=cpu)
        return offset if planned.is_batch else start

    @collect_later()
    def packs(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Pack]:
        """Return the work of the batch between two offsets; at least a pack for its markers."""
        before, after, relocation = self._offsets.batch(start, end)
        self._ends.note(after)
        snapshot = snapshot_batch(before, after)
        ranges = ranges_of(after) if self._start.is_unknown(start) else self._ranges_since(before, after)
        laid = tasks_of(
            self._connector,
            ranges,
            snapshot,
            relocation,
            at_least=self._options.min_partitions,
            at_most=self._options.max_records_per_partition,
            stretch=STRETCH if self._options.percentile is not None else 1,
        )
        markers = markers_between(before, after) if self._options.include_markers else ()
        if not laid and markers:
            laid = [TaskWork(())]
        clock, late_at = None, before.watermark
        if after.use_processing_time:
            late_at = None
            if after.watermark is not None:
                clock = Millis(after.watermark + 1)
        self._reports.late_at = late_at
        return [
            Pack(
                ranges=each.ranges,
                markers=markers if number == 0 else (),
                future_cap=after.future_cap,
                clock=clock,
                late_at=late_at,
                report_to=self._reports.address,
                snapshot=snapshot,
                relocation=relocation,
                whole=each.whole,
                beginnings=beginnings_of(each.ranges, after) if self._options.percentile is not None else None,
            )
            for number, each in enumerate(laid)
        ]

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
            self._ends.expect(state.splits.keys())
        self._ends.check(state)
        if self._ends.logs is not None and self._offsets.whereabouts.has_moved:
            # This copy may have been behind when its ends were fixed.
            self.freeze()
        return state

    def _plan(self, state: SourceState, observation: Observation) -> Plan:
        index, rows = self._connector.time_index, self._connector.row_index
        announce = self._last.is_first
        return plan(state, observation, self._policy, index, rows=rows, ahead=self._ahead, announce=announce)

    def _with_rows(self, planned: Plan, before: SourceState) -> tuple[Plan, Mapping[Split, SplitState]]:
        """Let a batch carry the watermark of its own rows, and return what the splits will be when it is read.

        As far as that can be known before.
        """
        splits = planned.counting
        if planned.has_rows and (reached := self._asking.reached(planned.state)):
            splits = when_read(planned.state, reached, self._policy)
            planned = replace(planned, state=with_rows(planned.state, before, splits, self._policy))
        return planned, splits

    def _seen(self, planned: Plan, splits: Mapping[Split, SplitState], observation: Observation) -> Seen:
        return Seen(
            planned,
            splits,
            observation,
            self._reports.rows,
            uncounted=not self._connector.positions_are_rows,
            snapshots=self._reports.snapshots.progress(planned.state, observation.now),
            trouble=self._membership.trouble,
            store=self._membership.place,
        )

    def _warn(self, planned: Plan, before: SourceState, now: Millis) -> None:
        added = planned.state.splits.keys() - before.splits.keys()
        if added and before.watermark is not None and not self._policy.use_processing_time:
            _log.warning(
                "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
                "watermark, %s, are late", listed(added), watermark_text(before.watermark),
            )  # fmt: skip
        watermark, soon = planned.state.watermark, now + _FAR_FUTURE
        if self._policy.max_future_skew is None and (before.watermark or MIN) <= soon < (watermark or MIN):
            _log.warning(
                "the watermark, %s, is more than an hour in the future: rows of now are late. A clock may be wrong; "
                "with maxFutureSkew (1 hour, say) such a row would be counted and move no watermark",
                watermark_text(watermark),
            )  # fmt: skip
        for loss in planned.losses:
            _log.warning("failOnDataLoss is false, going on: %s", loss.text)

    def _ranges_since(self, before: SourceState, after: SourceState) -> list[SplitRange]:
        """Return the ranges of a batch, from where it begins.

        The last planned ranges may be only its end: an offset of Spark's own source plans none, and with asynchronous
        progress tracking Spark leaves offsets out of its log and does several batches again as one.
        """
        first = {s: t.position for s, t in before.splits.items()}
        first.update(self._asking.added(after.splits.keys() - first.keys(), after.frontiers.keys()))
        leaves_out = self._connector.positions_are_rows and not self._policy.fail_on_data_loss
        return ranges_of(reaching_back(first, after, self._connector.bounds.earliest_positions if leaves_out else None))
