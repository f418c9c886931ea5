"""Read tasks: what one task of a batch is sent, as Spark's input partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from watermark_source.contract.stream import Relocation
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.columns import Marker
from watermark_source.spark.report_protocol import ReportAddress


class Beginning(NamedTuple):
    """Where a range of a split begins, and what came before."""

    position: int
    highest: Millis | None
    """Highest event time of the rows before it; ``None`` if there are none."""


@dataclass
class ReadTask(InputPartition):
    """One task's work. Everything in it follows from the batch's two offsets, but for where to report."""

    ranges: tuple[SplitRange, ...]
    markers: tuple[Marker, ...]
    future_cap: Millis | None
    clock: Millis | None
    """Event time of every row, with processing-time watermarks."""
    late_at: Millis | None
    """The watermark that the batch begins with: rows at or before it are late."""
    report_to: ReportAddress | None
    snapshot: SnapshotBatch | None = None
    """What a task must know of snapshots; ``None`` of a source that takes none."""
    relocation: Relocation | None = None
    """Of a system with replicas."""
    whole: SplitRange | None = None
    """Where the log of the only range can be entered and left, if the range is a piece of it."""
    beginnings: Mapping[Split, Beginning] | None = None
    """Of the ranges that begin here and of which that is known; ``None``: nobody learns from disorder."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the ranges log by log, as numbers: ten thousand of them as objects take longer than all else here."""
        logs = [(log, _numbers_of(ranges)) for log, ranges in groupby(self.ranges, key=lambda r: r.split.log)]
        others = (self.markers, self.future_cap, self.clock, self.late_at, self.report_to)
        return _unpickled, (logs, *others, self.snapshot, self.relocation, self.whole, self.beginnings)


def _numbers_of(ranges: Iterable[SplitRange]) -> list[int]:
    return [number for r in ranges for number in (r.split.number, r.start, r.end)]


def _unpickled(logs: Iterable[tuple[str, Sequence[int]]], *others: Any) -> ReadTask:
    ranges = (
        SplitRange(Split(log, number), start, end)
        for log, numbers in logs
        for number, start, end in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    )
    return ReadTask(tuple(ranges), *others)


def beginnings_of(ranges: Iterable[SplitRange], state: SourceState) -> dict[Split, Beginning]:
    """Return what is known of where ranges begin that were planned last, ``state`` being as of their end.

    Where the highest event time is not known, as after another strategy, nothing is.
    """
    known: dict[Split, Beginning] = {}
    for each in ranges:
        at = state.splits.get(each.split)
        if at is not None and each.start == at.observed and (at.highest is not None or at.watermark is None):
            known[each.split] = Beginning(at.observed, at.highest)
    return known
