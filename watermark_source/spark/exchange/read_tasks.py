"""Read tasks: how the ranges of a batch are laid into Spark's input partitions.

A split is the unit of decisions, a task the unit of work. A Spark task costs about 25 ms however little it reads, and
40 ms more where Spark talks to its Python processes over TCP, so small ranges share one; a big range is a task of its
own, or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.spark.columns.markers import Marker
from watermark_source.spark.connector.replicas import Relocation
from watermark_source.spark.connector.stream import Connector
from watermark_source.spark.exchange.report_protocol import ReportAddress

SMALL = 100_000
"""Ranges are put together up to so many positions."""
BIG = 2_000_000
"""A range of more positions than this is cut, so that one long log still uses every core."""
SHARE = 4
"""A range of more than this part of a batch is cut too, unless it is small."""
SLACK = SMALL // 10
"""Fewer positions than this are no piece of their own where a range would be cut for a small batch's sake."""


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


class TaskWork(NamedTuple):
    """What of a batch one task reads."""

    ranges: tuple[SplitRange, ...]
    whole: SplitRange | None = None
    """As in ``ReadTask``."""


def tasks_of(
    connector: Connector,
    ranges: Sequence[SplitRange],
    snapshot: SnapshotBatch | None,
    relocation: Relocation | None,
    *,
    at_least: int | None,
    at_most: int | None,
    multiple_of: int = 1,
) -> list[TaskWork]:
    """Lay all that a batch reads into tasks, as its source's positions allow."""
    if connector.positions_are_rows:
        return [
            TaskWork(each) for each in into_tasks(ranges, at_least=at_least, at_most=at_most, multiple_of=multiple_of)
        ]
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


def into_tasks(
    ranges: Sequence[SplitRange], *, at_least: int | None = None, at_most: int | None = None, multiple_of: int = 1
) -> list[tuple[SplitRange, ...]]:
    """Lay ranges into tasks, keeping their order.

    Args:
        ranges: what the batch reads.
        at_least: make so many tasks if there are enough positions.
        at_most: put no more positions than this into one.
        multiple_of: cut ranges only behind a multiple of so many positions.
    """
    total = sum(r.size for r in ranges)
    if at_least is None and at_most is None and total <= SHARE * (SMALL + SLACK):
        return _as_few_as_hold(ranges, total, multiple_of)
    big, small = max(SMALL, min(BIG, -(-total // SHARE))), SMALL
    if at_least is not None:
        # Rounded down: tasks no bigger than this are never fewer than asked for.
        fair = max(1, total // at_least)
        big, small = min(big, fair), min(small, fair)
    if at_most is not None:
        big, small = min(big, at_most), min(small, at_most)
    tasks: list[tuple[SplitRange, ...]] = []
    open_task: list[SplitRange] = []
    filled = 0
    for piece in (piece for r in ranges for piece in _cut(r, big, multiple_of)):
        size = piece.end - piece.start
        if open_task and filled + size > small:
            tasks.append(tuple(open_task))
            open_task, filled = [], 0
        open_task.append(piece)
        filled += size
    if open_task:
        tasks.append(tuple(open_task))
    return tasks


def _as_few_as_hold(ranges: Sequence[SplitRange], total: int, unit: int) -> list[tuple[SplitRange, ...]]:
    """Lay a small batch into equal tasks: of few rows a task costs more than reading them."""
    if not ranges:
        return []
    size = -(-total // max(1, -(-total // (SMALL + SLACK))))
    size = -(-size // unit) * unit
    tasks: list[list[SplitRange]] = [[]]
    room = size
    for whole in ranges:
        rest = whole
        while rest.size > room + SLACK:
            if room > SLACK and (cut := room // unit * unit):
                tasks[-1].append(rest._replace(end=rest.start + cut))
                rest = rest._replace(start=rest.start + cut)
            tasks.append([])
            room = size
        tasks[-1].append(rest)
        room -= rest.size
    return [tuple(task) for task in tasks]


def _cut(whole: SplitRange, big: int, unit: int) -> list[SplitRange]:
    # An empty range is one piece: a log without rows may have some when it is read.
    pieces = max(1, -(-whole.size // max(big // unit * unit, unit)))
    if pieces == 1:
        return [whole]
    units = -(-whole.size // unit)
    edges = [min(whole.start + units * i // pieces * unit, whole.end) for i in range(pieces + 1)]
    return [SplitRange(whole.split, a, b) for a, b in pairwise(edges)]
