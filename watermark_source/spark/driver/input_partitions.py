"""InputPartitions: what Spark's tasks read in a batch, from the states at its two ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.contract.stream import Connector, Relocation
from watermark_source.errors import listed
from watermark_source.planning.disorder import SEGMENT
from watermark_source.planning.planner import ranges_of
from watermark_source.planning.ranges_per_task import into_tasks
from watermark_source.planning.snapshot_ranges import SnapshotBatch, snapshot_batch
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import TasksObserve
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.observer import Observer
from watermark_source.spark.driver.task_reports import TaskReports
from watermark_source.spark.markers import markers_between
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.read_tasks import ReadTask, beginnings_of, expected_logs, have_times

_log = logging.getLogger(__name__)

# Ranges that go back further than the last plan: to where the batch begins, and not beyond where its logs do.


def reaching_back(
    starts: Mapping[Split, int], after: SourceState, earliest: Callable[[Set[Split]], Mapping[Split, int]] | None
) -> SourceState:
    """Return ``after`` with ranges that go back to ``starts``.

    ``earliest``: where logs begin now. It is given where rows that are gone are no error: they may be so many that
    to look for them would take thousands of tasks, and a plan that went past them has read none of them.
    """
    # Positions only decrease here: a log that was created again begins before the position its predecessor had.
    back = {s: start for s, start in starts.items() if s in after.splits and start < after.splits[s].observed}
    if back and earliest is not None:
        begins = earliest(back.keys())
        gone = {s: min(begins.get(s, 0), after.splits[s].observed) for s in back}
        skipped = [SplitRange(s, start, gone[s]) for s, start in back.items() if start < gone[s]]
        if skipped:
            _log.warning("failOnDataLoss=false: skipping %s, which the log no longer holds", listed(skipped))
        back = {s: max(start, gone[s]) for s, start in back.items()}
    if not back:
        return after
    return replace(
        after, splits={**after.splits, **{s: replace(after.splits[s], observed=start) for s, start in back.items()}}
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InputPartitions:
    """Makes read tasks; their content follows from the two states alone, except the address for reports."""

    connector: Connector
    options: EngineOptions
    reports: TaskReports
    observer: Observer

    def tasks(
        self, before: SourceState, after: SourceState, relocation: Relocation | None, *, begin_is_known: bool
    ) -> list[ReadTask]:
        """Return the work of the batch between two states; at least a task for its markers.

        ``begin_is_known``: ``before`` has the positions where the batch begins, and not only the ranges planned last.
        """
        strategy = self.options.policy.strategy
        counts_disorder = strategy.tasks_observe is TasksObserve.DISORDER
        snapshot = snapshot_batch(before, after)
        ranges = self._ranges_since(before, after) if begin_is_known else ranges_of(after)
        laid = self._laid(ranges, snapshot, relocation, step=SEGMENT if counts_disorder else 1)
        markers = markers_between(before, after) if self.options.policy.sends_markers else ()
        if not laid and markers:
            laid = [TaskWork(())]
        on_clock = after.use_processing_time
        late_at = self.reports.late_at = None if on_clock else before.watermark
        clock = Millis(after.watermark + 1) if on_clock and after.watermark is not None else None
        return [
            ReadTask(
                ranges=each.ranges,
                markers=markers if number == 0 else (),
                future_cap=after.future_cap,
                clock=clock,
                late_at=late_at,
                report_to=self.reports.server.address,
                snapshot=snapshot,
                relocation=relocation,
                whole=each.whole,
                beginnings=beginnings_of(each.ranges, after) if counts_disorder else None,
                logs=expected_logs(each.ranges, after),
                summarized_by=strategy.summarized_by if have_times(each.ranges, after) else None,
            )
            for number, each in enumerate(laid)
        ]

    def _ranges_since(self, before: SourceState, after: SourceState) -> list[SplitRange]:
        """Return the ranges of a batch, from where it begins.

        The last planned ranges may be only its end: an offset of Spark's own source plans none, and with asynchronous
        progress tracking Spark leaves offsets out of its log and does several batches again as one.
        """
        is_of_rows = self.connector.positions_are_rows
        anew = {log for log, known in before.ids.items() if is_of_rows and after.ids.get(log, known) != known}
        first = {s: 0 if s.log in anew else t.position for s, t in before.splits.items()}
        first.update(self.observer.added(after.splits.keys() - first.keys(), after.snapshots.frontiers.keys()))
        leaves_out = is_of_rows and not self.options.policy.on_loss.fails
        return ranges_of(reaching_back(first, after, self.connector.bounds.earliest_positions if leaves_out else None))

    def _laid(
        self, ranges: Sequence[SplitRange], snapshot: SnapshotBatch | None, relocation: Relocation | None, *, step: int
    ) -> list[TaskWork]:
        """Lay all that a batch reads into tasks, as its source's positions allow; cut only at multiples of ``step``."""
        connector, at_least = self.connector, self.options.min_partitions
        if connector.positions_are_rows:
            at_most = self.options.max_records_per_partition
            parts = into_tasks(ranges, at_least=at_least, at_most=at_most, multiple_of=step)
            return [TaskWork(each) for each in parts]
        chunks = () if snapshot is None else tuple(snapshot.chunks)
        together = connector.snapshots is not None and connector.snapshots.one_moment
        of_chunks = [chunks] if together and chunks else [(each,) for each in chunks]
        logs = [each for each in ranges if each.split not in {chunk.split for chunk in chunks}]
        if connector.cutter is None or (relocation is not None and relocation.left_out is not None):
            pieces = [Piece(each, each) for each in logs]
        else:
            pieces = [piece for each in logs for piece in connector.cutter.pieces(each, at_least)]
        of_logs = [TaskWork((piece.range,), None if piece.range == piece.whole else piece.whole) for piece in pieces]
        return [*of_logs, *map(TaskWork, of_chunks)]


class TaskWork(NamedTuple):
    """What of a batch one task reads."""

    ranges: tuple[SplitRange, ...]
    whole: SplitRange | None = None
    """See ``ReadTask.whole``."""
