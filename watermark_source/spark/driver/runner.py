"""The runner: the source's driver side, alive in the one process Spark keeps for it while a query runs.

It asks the connector, lets the planner decide, and keeps between two calls what the last offset does not hold.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from watermark_source.clock import Clock
from watermark_source.errors import OffsetError, StartMismatchError, listed
from watermark_source.eventtime.watermark import Millis
from watermark_source.moments import watermark_text
from watermark_source.planning.combined import when_read, with_rows
from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.observation import Observation
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.report import Coverage
from watermark_source.planning.rest import Rest
from watermark_source.planning.snapshot import snapshot_batch, snapshot_split, unfinished
from watermark_source.planning.split import SAMPLE, Split, sample
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.columns.markers import markers_between
from watermark_source.spark.connector.snapshots import Snapshots
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.backlog import exceeds, splits_behind, uncommitted
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.polling import Pace
from watermark_source.spark.driver.reaching_back import reaching_back
from watermark_source.spark.driver.relocation import Whereabouts
from watermark_source.spark.driver.row_counts import RowCounts
from watermark_source.spark.driver.second_look import SecondLook, again_of
from watermark_source.spark.driver.snapshot_chunks import with_chunks
from watermark_source.spark.driver.snapshot_count import SnapshotCount
from watermark_source.spark.driver.status import Seen, source_status
from watermark_source.spark.driver.termination import before_termination
from watermark_source.spark.exchange.packs import Pack, TaskWork, tasks_of
from watermark_source.spark.exchange.reports import ReportBook, ReportServer
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.options.policy import plan_policy
from watermark_source.spark.startup.collector import collect_later, collect_rarely, spare_imports

_log = logging.getLogger(__name__)


_STATUS_INTERVAL = 1.0
"""Seconds a status is kept while there is no batch."""
_OFFSETS_OF_A_BATCH = 2


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
        self._definition = definition
        self._options = options
        self._policy = plan_policy(
            options,
            minimum_rows=minimum_rows,
            fail_on_data_loss=fail_on_data_loss,
            loss_conditions=definition.loss_conditions,
            position_text=definition.position_text,
        )
        self._clock = Clock()
        self._connector = definition.open()
        self._logs = Logs(self._connector, self._clock, self._policy)
        self._whereabouts = Whereabouts(self._connector.copies)
        self._membership = membership or Membership(options)
        self._codec = OffsetCodec(source=definition.name, name=options.source_name)
        spare_imports()
        collect_rarely()
        self._book = ReportBook()
        self._server = ReportServer(self._book, host=options.report_host, ports=options.report_ports)
        self._second_look = SecondLook(definition, self._book, self._server)
        self._initial: dict[str, Any] | None = None
        self._no_start: StartMismatchError | None = None
        """Why a new query cannot start: its options do not fit what there is now."""
        self._offset: dict[str, Any] | None = None
        self._decoded: deque[tuple[Mapping[str, Any], SourceState]] = deque(maxlen=_OFFSETS_OF_A_BATCH)
        self._state = SourceState()
        self._frozen: Observation | None = None
        """The logs as a run of ``Trigger.AvailableNow`` found them: what comes while it reads is not part of it."""
        self._listed_first: Set[str] | None = None
        """What there was to take snapshots of, before those ends were asked for."""
        self._announced = False
        self._is_behind = False
        """Whether the last plan left rows for the next."""
        self._newest_mattered = False
        """Then they probably do again, and planning twice would cost more."""
        self._rows_at: Millis | None = None
        self._rest = Rest()
        self._progress_shown = False
        self._pace = Pace()
        self._counts = RowCounts()
        self._late_at: Millis | None = None
        """Of the last batch that this process gave out."""
        self._copied = SnapshotCount()
        self._seen: Seen | None = None
        self._status: dict[str, Any] | None = None
        self._status_until = 0.0
        before_termination(self._tell_last)

    def close(self) -> None:
        """Stop listening for reports, and tell others the last. Connections end with the process."""
        self._server.close()
        self._tell_last()

    def _tell_last(self) -> None:
        self._membership.close()
        if self._connector.progress is not None:
            self._connector.progress.close()

    @collect_later()
    def initial_offset(self) -> dict[str, Any]:
        """Return where a new query starts. Spark asks more than once; the answer stays the same in this process."""
        if self._initial is None:
            snapshots = self._connector.snapshots
            takes_snapshots = snapshots is not None and snapshots.come_first
            tables = self._listed(snapshots) if snapshots is not None and takes_snapshots else frozenset()
            splits = self._connector.discovery.discover()
            try:
                starts = self._connector.starts.initial_positions(splits)
            except StartMismatchError as error:
                # Not if the first batch is logged already: its end says what it reads, whatever has come since.
                starts, self._no_start = {}, error
            if self._frozen is not None and self._no_start is None:
                # Rows and splits may have come since the ends were fixed; the run reads none of them.
                ends = {s: max(start, self._frozen.ends.get(s, start)) for s, start in starts.items()}
                self._frozen = replace(self._frozen, ends=ends)
            positions = {**starts, **{snapshot_split(log): 0 for log in tables}}
            self._initial = self._encode(
                SourceState(
                    splits={s: SplitState(p, p) for s, p in sorted(positions.items())},
                    frontiers=dict.fromkeys(sorted(tables), ()),
                    complete=frozenset() if takes_snapshots else None,
                    origin=self._whereabouts.beginning(),
                )
            )
        return self._initial

    def freeze(self) -> None:
        """Fix the ends of this run (``Trigger.AvailableNow``)."""
        if self._connector.snapshots is not None:
            self._listed_first = self._connector.snapshots.logs()
        self._frozen = self._logs.of_run()

    @collect_later()
    def latest_offset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        """Return the end of the next batch, or ``start`` if there is none."""
        if self._no_start is not None and start == self._initial:
            raise self._no_start
        if start == self._offset:
            self._pace.wait()
            state = self._state
        else:
            state = self._whereabouts.here(self._decode(start))
            if self._frozen is not None and self._whereabouts.has_moved:
                # This copy may have been behind when its ends were fixed.
                self.freeze()
        self._show_progress(state)
        cpu = time.thread_time()
        observation = self._observe(state, limit)
        if self._newest_mattered and not observation.newest:
            observation = self._logs.dated(observation, splits_behind(state, observation.ends))
        planned = self._plan(state, observation)
        if planned.newest_matters and not observation.newest:
            observation = self._logs.dated(observation, splits_behind(state, observation.ends))
            planned = self._plan(state, observation)
        self._newest_mattered = planned.newest_matters
        splits = planned.state.splits
        if planned.has_rows and (reached := self._logs.reached(ranges_of(planned.state))):
            splits = when_read(planned.state, reached, self._policy)
            planned = replace(planned, state=with_rows(planned.state, state, splits, self._policy))
        added = planned.state.splits.keys() - state.splits.keys()
        if added and state.watermark is not None and not self._policy.use_processing_time:
            _log.warning(
                "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
                "watermark, %s, are late", listed(added), watermark_text(state.watermark),
            )  # fmt: skip
        for loss in planned.losses:
            _log.warning("failOnDataLoss is false, going on: %s", loss.text)
        self._book.forget(*observation.highest)
        self._announced = True
        if planned.has_rows:
            self._rows_at = observation.asked_at
            self._logs.note_rows()
        self._membership.tell(planned)
        self._rest = self._rest.after(is_batch=planned.is_batch, asked_at=observation.asked_at)
        self._state = planned.state
        uncounted = not self._connector.positions_are_rows
        self._is_behind = bool(splits_behind(planned.state, observation.ends))
        copied = self._copied.progress(planned.state, observation.now)
        trouble, store = self._membership.trouble, self._membership.place
        self._seen = Seen(planned, splits, observation, self._counts, uncounted, copied, trouble, store)
        held = planned.state.held > state.held
        self._pace = self._pace.after(is_batch=planned.is_batch, held=held, cpu=time.thread_time() - cpu)
        if not planned.is_batch:
            self._offset = dict(start)
            return start
        self._status = None
        self._progress_shown = False
        # As the next process will read it from the offset.
        self._state = self._membership.named(planned.state)
        self._offset = self._encode(self._state)
        return self._offset

    @collect_later()
    def packs(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Pack]:
        """Return the work of the batch between two offsets; at least a pack for its markers."""
        before, after = self._decode(start), self._decode(end)
        if self._definition.foreign_positions(start) is None and self._definition.foreign_positions(end) is not None:
            raise OffsetError(
                "the checkpoint goes from this source's offsets back to another source's: its log of offsets was put "
                "together from two. Restore the checkpoint, or start with a new checkpoint location."
            )
        before, after, relocation = self._whereabouts.batch(before, after)
        snapshot = snapshot_batch(before, after)
        starts_unknown = self._no_start is not None and start == self._initial
        ranges = ranges_of(after if starts_unknown else self._since(before, after))
        laid = tasks_of(
            self._connector,
            ranges,
            snapshot,
            relocation,
            at_least=self._options.min_partitions,
            at_most=self._options.max_records_per_partition,
        )
        markers = markers_between(before, after) if self._options.include_markers else ()
        if not laid and markers:
            laid = [TaskWork(())]
        clock, self._late_at = None, before.watermark
        if after.use_processing_time:
            self._late_at = None
            if after.watermark is not None:
                clock = Millis(after.watermark + 1)
        return [
            Pack(
                ranges=each.ranges,
                markers=markers if number == 0 else (),
                future_cap=after.future_cap,
                clock=clock,
                late_at=self._late_at,
                report_to=self._server.address,
                snapshot=snapshot,
                relocation=relocation,
                whole=each.whole,
            )
            for number, each in enumerate(laid)
        ]

    @collect_later()
    def status(self) -> dict[str, Any] | None:
        """Return the status as JSON, ``None`` before the first plan; while nothing happens the same for a second."""
        if self._seen is not None and (self._status is None or time.monotonic() >= self._status_until):
            self._status = source_status(self._seen, self._options, self._definition.name, self._clock.now()).to_json()
            self._status_until = time.monotonic() + _STATUS_INTERVAL
        return self._status

    def _show_progress(self, state: SourceState) -> None:
        """Show that the batch before a state is done: Spark asks for the next one only when its commit is logged.

        Spark's own word for it, ``commit``, comes when the next batch is logged: for the last one of a run never, and
        while nothing new comes not either.
        """
        if self._connector.progress is not None and not self._progress_shown:
            self._connector.progress.processed({s: t.position for s, t in state.splits.items()})
            self._progress_shown = True

    def _encode(self, state: SourceState) -> dict[str, Any]:
        state = self._whereabouts.named(state)
        offset = self._codec.encode(state)
        self._decoded.append((offset, state))
        return offset

    def _decode(self, offset: Mapping[str, Any]) -> SourceState:
        for known, state in self._decoded:
            if known == offset:
                return state
        foreign = self._definition.foreign_positions(offset)
        if foreign is not None:
            _log.warning(
                "The checkpoint is of Spark's own source. If its query had a watermark, that goes on to hold, and rows "
                "behind it are late, until this source's has passed it"
            )
            return SourceState(splits={s: SplitState(position=p, observed=p) for s, p in foreign.items()})
        return self._codec.decode(offset)

    def _since(self, before: SourceState, after: SourceState) -> SourceState:
        """Return ``after`` with ranges that go back to ``before``.

        The last planned ranges may be only the end of the batch: an offset of Spark's own source plans none, and
        with asynchronous progress tracking Spark leaves offsets out of its log and does several batches again as one.
        """
        first = {s: t.position for s, t in before.splits.items()}
        first.update(self._added(after.splits.keys() - first.keys(), after.frontiers.keys()))
        leaves_out = self._connector.positions_are_rows and not self._policy.fail_on_data_loss
        return reaching_back(first, after, self._connector.bounds.earliest_positions if leaves_out else None)

    def _observe(self, state: SourceState, limit: ReadLimit) -> Observation:
        snapshots = None if state.complete is None else self._connector.snapshots
        listed_before = frozenset() if snapshots is None else self._listed(snapshots)
        logs = self._frozen
        if logs is None:
            logs = self._logs.now(state)
            behind = splits_behind(state, logs.ends)
            if not self._connector.positions_are_rows or not exceeds(state, logs.ends, limit):
                logs = self._logs.previewed(logs, behind)
            else:
                # Without alignment they only tell how far away the end of a long backlog may be.
                logs = self._logs.dated(logs, behind if self._policy.max_drift is not None else sample(behind, SAMPLE))
        if snapshots is not None:
            to_end, first = isinstance(limit, ReadAllAvailable), not self._announced
            may_wait = not self._whereabouts.has_moved
            logs = with_chunks(logs, state, snapshots, listed_before, to_end=to_end, first=first, may_wait=may_wait)
            self._copied.forget(logs.dropped)
            self._copied.meet((unfinished(state).keys() | logs.found) - logs.dropped, state, snapshots)
        return replace(
            logs,
            now=self._clock.now(),
            uncommitted=uncommitted(state, logs, self._policy, self._connector.transactions),
            earliest=self._earliest(state, logs.ends, limit),
            added=self._added(logs.ends.keys() - state.splits.keys(), logs.found),
            others=self._membership.others(state),
            highest=self._last_ranges(state, logs.ends.keys() | logs.unknown),
            max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            since_rows=None if self._rows_at is None else Millis(logs.asked_at - self._rows_at),
            rest=self._rest.lasted(logs.asked_at),
            one_batch=isinstance(limit, ReadAllAvailable) or self._whereabouts.has_moved,
        )

    def _listed(self, snapshots: Snapshots) -> Set[str]:
        """Return what there was to take snapshots of before the ends were asked for that are planned with.

        Not later: what came in whole after those ends, by another name before, is not in the log behind them.
        """
        return snapshots.logs() if self._listed_first is None else self._listed_first

    def _added(self, splits: Set[Split], snapshots: Set[str]) -> Mapping[Split, int]:
        """Return where splits begin that are new."""
        begun = {split for split in map(snapshot_split, snapshots) if split in splits}
        others = splits - begun
        positions = self._connector.starts.added_positions(others) if others else {}
        return {**positions, **dict.fromkeys(begun, 0)}

    def _plan(self, state: SourceState, observation: Observation) -> Plan:
        index, rows = self._connector.time_index, self._connector.row_index
        return plan(state, observation, self._policy, index, rows=rows, announce=not self._announced)

    def _earliest(self, state: SourceState, ends: Mapping[Split, int], limit: ReadLimit) -> Mapping[Split, int]:
        """Ask where the logs begin when retention may have passed us: after a time away, and with a long backlog."""
        has_backlog = exceeds(state, ends, limit) if self._connector.positions_are_rows else self._is_behind
        if self._announced and not has_backlog:
            return {}
        behind = splits_behind(state, ends) & state.splits.keys()
        return self._connector.bounds.earliest_positions(behind) if behind else {}

    def _last_ranges(self, state: SourceState, known: Set[Split]) -> dict[Split, Millis | None]:
        """Return the highest event time of each split's last range, looking again at what no task reported."""
        seen: dict[Split, Millis | None] = {}
        last = ranges_of(state)
        covered = self._book.cover_each(last)
        told: Mapping[Split, Millis] = {}
        if not self._announced and not self._policy.use_processing_time:
            # Reports to an earlier process went with it.
            told = self._logs.highest([w for w, c in zip(last, covered, strict=True) if c.missing])
        for wanted, reported in zip(last, covered, strict=True):
            coverage = reported
            at = told.get(wanted.split)
            if at is not None and (state.future_cap is None or at <= state.future_cap):
                coverage = Coverage(at, rows=0, future_rows=0, missing=())
            if wanted.split.log in state.frontiers:
                # Rows of a snapshot are not of any time.
                coverage = coverage._replace(max_event_time=None)
                self._copied.add(wanted.split.log, coverage.rows)
            elif coverage.missing and wanted.split in known and not self._policy.use_processing_time:
                anywhere = self._connector.positions_are_rows
                moved = self._whereabouts.reading
                again = again_of(wanted, state, moved, late_at=self._late_at, enters_anywhere=anywhere)
                coverage = self._second_look.at(again, coverage, reports_due=self._announced)
            seen[wanted.split] = coverage.max_event_time
            self._counts.add(wanted.split, coverage)
        return seen
