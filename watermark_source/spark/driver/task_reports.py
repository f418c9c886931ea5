"""What the tasks of the last batch saw: their reports, and a second look where there is none."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from watermark_source.contract.stream import Relocation, Snapshots, SnapshotSize, SourceDefinition
from watermark_source.errors import DataLossError, EventTimeError, UnknownSplitError, UnsupportedFormatError
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.planner import ranges_of
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.range_report import NO_ROWS, Coverage, RowTotals
from watermark_source.planning.snapshot_ranges import last_batch, snapshot_split, unfinished
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import TasksObserve
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.executor.event_time_observer import EventTimeObserver, Summing
from watermark_source.spark.executor.reading import batches_of
from watermark_source.spark.options import ReportOptions
from watermark_source.spark.read_tasks import ReadTask, beginnings_of, expected_logs, have_times
from watermark_source.status_model.source_status import SnapshotProgress

_log = logging.getLogger(__name__)

# Reading again what no task reported: the driver reads event times, and logs what may be wrong.


def reread_task(
    wanted: SplitRange, state: SourceState, relocation: Relocation | None, policy: PlanPolicy, late_at: Millis | None
) -> ReadTask:
    """Return the task that reads a range of the last planned batch, which ends in ``state``, again.

    Unless positions are rows (``policy.on_loss``), a task can begin to read its log only where a range begins.
    """
    by_positions = relocation is None or relocation.left_out is None
    learns = policy.strategy.tasks_observe is TasksObserve.DISORDER
    if relocation is not None and late_at is not None:
        # The floor dates the rows as the task dated them.
        relocation = replace(relocation, floor=Millis(late_at + 1))
    return ReadTask(
        ranges=(wanted,),
        future_cap=state.future_cap,
        late_at=late_at,
        snapshot=last_batch(state),
        relocation=relocation,
        whole=wanted if by_positions and not policy.on_loss.positions_are_rows else None,
        beginnings=beginnings_of([wanted], state) if learns else None,
        logs=expected_logs([wanted], state),
        summarized_by=policy.strategy.summarized_by,
    )


class ReadingAgain:
    """Reads ranges again that no task reported. One for each run of a query."""

    def __init__(self, definition: SourceDefinition, book: ReportBook, server: ReportServer) -> None:
        self._definition = definition
        self._book = book
        self._server = server
        self._warned: set[bool] = set()
        """For each logged warning, whether connections of other programs were the reason."""

    def cover(self, again: ReadTask, missing: Coverage, *, reports_due: bool) -> Coverage:
        """Read the missing parts of a task's one range again, as far as they still exist, and return its coverage.

        ``reports_due``: tasks report to this process. Reports to an earlier process were lost with it.
        """
        (wanted,), parts = again.ranges, missing.missing
        shown = wanted.shown(self._definition.position_text)
        _log.info("no report about %s; looking at %d positions again", shown, sum(part.size for part in parts))
        if reports_due:
            self._warn()
        definition, summing = self._definition, Summing.of(again.summarized_by, self._definition.columns.names)
        # A user's class sees the columns that it saw in the task.
        reader = definition.observing_reader if summing is None else definition.range_reader
        try:
            for part in parts:
                of_part = replace(again, ranges=(part,))
                observer = EventTimeObserver(of_part, summing)
                for batch in batches_of(reader, of_part):
                    observer.observe(batch)
                self._book.add(observer.reports())
        except (DataLossError, EventTimeError, UnknownSplitError, UnsupportedFormatError) as error:
            # The rows were delivered, and can no longer be read, or had another event time then: the next range
            # advances the watermark.
            _log.warning("%s cannot be looked at again, its watermark stays: %s", shown, error)
        return self._book.cover(wanted)

    def _warn(self) -> None:
        """Warn once for each reason why ranges that no task reported are read twice."""
        strangers = self._server.strangers()
        if (strangers is not None) in self._warned:
            return
        self._warned.add(strangers is not None)
        where, port = " or ".join(self._server.address.hosts), self._server.address.port
        remedy = "If executors cannot reach that address, set reportAddress"
        if strangers is not None:
            remedy = (
                f"Meanwhile connections of others than this query's tasks were closed there: {strangers}. Keep them "
                "away from that port; reportAddress names others"
            )
        _log.warning(
            "no task reported what it read to %s, port %d, so the driver reads it again by itself. %s",
            where, port, remedy,
        )  # fmt: skip


# How many rows this run of a query has read, and of how many the event time does not count.


@dataclass(slots=True)
class RowCounts:
    """Numbers of rows that one run has read."""

    totals: RowTotals = NO_ROWS
    by_split: dict[Split, RowTotals] = field(default_factory=dict)
    """Totals of the splits that had rows."""
    looked_again: int = 0
    """Rows of ``totals`` that an earlier run had read last: their event times are needed again."""

    def add(self, split: Split, rows: RowTotals) -> None:
        """Count the rows of a range of a split."""
        if rows.read:
            self.totals += rows
            self.by_split[split] = self.by_split.get(split, NO_ROWS) + rows


# How many rows this run has read of each snapshot, and how fast: shown to users, and decides nothing.


@dataclass(slots=True)
class _Count:
    size: SnapshotSize
    before: int
    """Chunks of earlier runs."""
    rows: int = 0
    began: Millis | None = None
    """When it was planned first; ``None`` if an earlier run began it."""
    since: Millis | None = None
    """When the first batch was done: processes that start, and code that is compiled, make that one slow."""
    first_rows: int = 0


class SnapshotCount:
    """Rows that one run of a query has read of each snapshot."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def add_snapshots(self, logs: Set[str], state: SourceState, snapshots: Snapshots) -> None:
        """Add unfinished snapshots; the size of each is requested once."""
        new = logs - self._counts.keys()
        if new:
            sizes = snapshots.sizes(new)
            for log in new:
                begun = state.splits.get(snapshot_split(log))
                size = sizes.get(log, SnapshotSize(None, None))
                self._counts[log] = _Count(size, 0 if begun is None else begun.position)

    def forget(self, logs: Set[str]) -> None:
        """Remove snapshots that end before they were read to their end."""
        for log in logs:
            self._counts.pop(log, None)

    def add(self, log: str, rows: int) -> None:
        """Add the rows that a batch read of a snapshot."""
        if log in self._counts:
            self._counts[log].rows += rows

    def progress(self, state: SourceState, now: Millis) -> tuple[SnapshotProgress, ...]:
        """Return each snapshot's progress after the batch that ends in ``state``; none once all ended before it."""
        frontiers, complete = state.snapshots.frontiers, state.snapshots.complete or frozenset()
        if not frontiers:
            return ()
        going_on, begun = unfinished(state.snapshots).keys(), frontiers.keys() | complete
        found = []
        for log, count in sorted((log, self._counts[log]) for log in self._counts.keys() & begun):
            at = state.splits.get(snapshot_split(log), SplitState(0, 0))
            if count.began is None and not count.before:
                count.began = now
            if count.since is None and count.rows:
                count.since, count.first_rows = now, count.rows
            found.append(_progress(log, count, at, now, done=log not in going_on))
        return tuple(found)


def _progress(log: str, count: _Count, at: SplitState, now: Millis, *, done: bool) -> SnapshotProgress:
    chunk_rows = count.size.chunk_rows or 0
    read = count.rows + count.before * chunk_rows
    rows = read + (at.position - at.observed) * chunk_rows
    if done and count.size.rows is not None:
        # The last chunk has fewer.
        rows = max(read, min(rows, count.size.rows))
    passed = 0 if count.since is None else now - count.since
    later = count.rows - count.first_rows
    return SnapshotProgress(
        log=log,
        rows=rows,
        chunks=at.position,
        expected=None if count.size.rows is None else max(rows, count.size.rows),
        rate=1_000 * later // passed if later and passed > 0 else None,
        done=done,
        began=count.began,
    )


class TaskReports:
    """Receives reports until closed, and counts the rows they name."""

    def __init__(self, definition: SourceDefinition, policy: PlanPolicy, address: ReportOptions, logs: Logs) -> None:
        self._book = ReportBook()
        self.server = ReportServer(self._book, host=address.host, ports=address.ports)
        self._reading_again = ReadingAgain(definition, self._book, self.server)
        self._logs = logs
        self._policy = policy
        self.late_at: Millis | None = None
        """The watermark that the last batch of this process began with."""
        self.rows = RowCounts()
        self.snapshots = SnapshotCount()

    def forget(self, splits: Iterable[Split]) -> None:
        """Drop the reports about splits: they are part of their watermarks now."""
        self._book.forget(*splits)

    def collect(
        self, state: SourceState, known: Set[Split], relocation: Relocation | None, *, is_first: bool
    ) -> dict[Split, RangeSummary]:
        """Return what is in each split's last range, looking again at what no task reported.

        Args:
            state: as of the last batch.
            known: splits that exist.
            relocation: which copy of the log is read, and from where.
            is_first: the first plan of a process: reports to an earlier one went with it.
        """
        seen: dict[Split, RangeSummary] = {}
        last = ranges_of(state)
        covered = self._book.cover_each(last)
        previewed: Mapping[Split, Millis] = {}
        strategy = self._policy.strategy
        if is_first and strategy.tasks_observe is TasksObserve.HIGHEST and strategy.summarized_by is None:
            previewed = self._logs.highest([w for w, c in zip(last, covered, strict=True) if c.missing])
        for wanted, reported in zip(last, covered, strict=True):
            coverage = reported
            at = previewed.get(wanted.split)
            if at is not None and (state.future_cap is None or at <= state.future_cap):
                coverage = Coverage(RangeSummary(at), NO_ROWS)
            if not have_times([wanted], state):
                coverage = coverage._replace(seen=replace(coverage.seen, highest=None, summaries=()))
                self.snapshots.add(wanted.split.log, coverage.rows.read)
            elif coverage.missing and wanted.split in known and strategy.tasks_observe.is_needed:
                again = reread_task(wanted, state, relocation, self._policy, self.late_at)
                coverage = self._reading_again.cover(again, coverage, reports_due=not is_first)
            seen[wanted.split] = coverage.seen
            self.rows.add(wanted.split, coverage.rows)
            self.rows.looked_again += coverage.rows.read - reported.rows.read if is_first else 0
        return seen
