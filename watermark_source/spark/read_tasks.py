"""Read tasks: the message to one task of a batch, as Spark's input partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from watermark_source.contract.lineage import ExpectedLogs
from watermark_source.contract.stream import Relocation
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.markers import Marker
from watermark_source.spark.report_protocol import ReportAddress


class Beginning(NamedTuple):
    """The beginning of a range in a split, and the rows before it."""

    position: int
    highest: Millis | None
    """Highest event time of the rows before it; ``None`` if there are none."""


@dataclass
class ReadTask(InputPartition):
    """The work of one task. Everything in it follows from the batch's two offsets, except the address for reports."""

    ranges: tuple[SplitRange, ...]
    markers: tuple[Marker, ...] = ()
    future_cap: Millis | None = None
    clock: Millis | None = None
    """Event time of every row, with processing-time watermarks."""
    late_at: Millis | None = None
    """The watermark that the batch begins with: rows at or before it are late."""
    report_to: ReportAddress | None = None
    snapshot: SnapshotBatch | None = None
    """The state of snapshots that a task needs; ``None`` for a source without snapshots."""
    relocation: Relocation | None = None
    """Which copy of the log to read, and from where, for a system with replicas."""
    whole: SplitRange | None = None
    """The range that the only range is a piece of: reading begins and ends at its bounds."""
    beginnings: Mapping[Split, Beginning] | None = None
    """Beginnings of ranges, where they are known; ``None`` if the strategy does not learn from disorder."""
    logs: ExpectedLogs | None = None
    """Which logs the ranges are of; ``None`` for a system without ``Lineage``."""
    summarized_by: str | None = None
    """The user's class that sums up the rows; ``None``: none does."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the ranges log by log, as numbers: ten thousand objects would take longer than all else here."""
        logs = [(log, _numbers_of(ranges)) for log, ranges in groupby(self.ranges, key=lambda r: r.split.log)]
        _, *others = (getattr(self, each.name) for each in fields(self))
        return _unpickled, (logs, *others)


def _numbers_of(ranges: Iterable[SplitRange]) -> list[int]:
    return [number for r in ranges for number in (r.split.number, r.start, r.end)]


def _unpickled(logs: Iterable[tuple[str, Sequence[int]]], *others: Any) -> ReadTask:
    ranges = (
        SplitRange(Split(log, number), start, end)
        for log, numbers in logs
        for number, start, end in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    )
    return ReadTask(tuple(ranges), *others)


def expected_logs(ranges: Iterable[SplitRange], state: SourceState) -> ExpectedLogs | None:
    """Return which logs ranges are of, as far as ``state`` reaches."""
    ids: dict[str, str] = {}
    epochs: dict[Split, int] = {}
    for split, _, end in ranges:
        if split.log in state.ids:
            ids[split.log] = state.ids[split.log]
        at = state.splits.get(split)
        if at is not None and at.epoch is not None and end <= at.position:
            epochs[split] = at.epoch.number
    return ExpectedLogs(ids, epochs) if ids or epochs else None


def have_times(ranges: Iterable[SplitRange], state: SourceState) -> bool:
    """Return whether the rows of ranges that end in ``state`` are of any time: those of snapshots are not."""
    return all(each.split.log not in state.snapshots.frontiers for each in ranges)


def beginnings_of(ranges: Iterable[SplitRange], state: SourceState) -> dict[Split, Beginning]:
    """Return the known beginnings of the ranges that were planned last; ``state`` is as of their end.

    A split without a highest event time, as after another strategy, has none.
    """
    known: dict[Split, Beginning] = {}
    for each in ranges:
        at = state.splits.get(each.split)
        if at is not None and each.start == at.observed and (at.highest is not None or at.watermark is None):
            known[each.split] = Beginning(at.observed, at.highest)
    return known
