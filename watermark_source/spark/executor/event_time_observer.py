"""Event-time observer: what a task observes of event times in its ranges, for the progress report that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watermark_source.arrow_columns import booleans, integers, is_valid
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import InternalError
from watermark_source.planning.disorder import BUCKETS, SEGMENT, DisorderSegment
from watermark_source.planning.generator import Own
from watermark_source.planning.range_report import BOUNDS_MS, NO_ROWS, LateRows, RangeReport, RowTotals
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.markers import in_micros
from watermark_source.spark.read_tasks import Beginning, ReadTask

# Counting disorder in a task: how far rows of a range are behind the highest event time before them, in columns.


_Longs = npt.NDArray[np.int64]
_HALF: Final = SEGMENT // 2
# A double shows exponent and mantissa: of 2^9 and more, shifted so far, buckets with four to a doubling.
_SHIFT: Final = 50
_BELOW_FIRST: Final = ((1023 + 9) << 2) - 1


class DisorderCount:
    """Counts how disordered the rows of one split are; they come in the order of positions."""

    def __init__(self, start: int, beginning: Beginning | None) -> None:
        """Begin where the first of a task's ranges does.

        ``beginning``: what lies before it, if that is known: so of the range itself, not of a part of it.
        """
        self._start = start
        self._segments: list[DisorderSegment] = []
        self._half = -1
        self._highest: int | None = None
        self._before: int | None = None
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts_all = beginning is not None
        if beginning is not None:
            self._half = 0
            self._highest = self._before = None if beginning.highest is None else beginning.highest * 1_000

    def add(self, micros: _Longs, positions: _Longs) -> None:
        """Take in the event times of the rows that come next, in microseconds, and where they are."""
        first, last = (int(at - self._start) // _HALF for at in (positions[0], positions[-1]))
        if first == last:
            self._add(micros, first)
            return
        halves = (positions - self._start) // _HALF
        edges = np.flatnonzero(np.diff(halves)) + 1
        for at, part in zip([0, *edges.tolist()], np.split(micros, edges), strict=True):
            self._add(part, int(halves[at]))

    def segments(self) -> tuple[DisorderSegment, ...]:
        """Return all segments that rows were in."""
        return (*self._segments, self._segment()) if self._half >= 0 else ()

    def _add(self, micros: _Longs, half: int) -> None:
        if half // 2 != self._half // 2:
            self._begin_segment()
        if half != self._half and not self._counts_all:
            self._before = self._highest
        self._half = half
        if half % 2 or self._counts_all:
            self._count(micros)
        else:
            highest = int(micros.max())
            self._highest = highest if self._highest is None else max(highest, self._highest)

    def _begin_segment(self) -> None:
        if self._half >= 0:
            self._segments.append(self._segment())
        self._highest = self._before = None
        self._counts = np.zeros(BUCKETS, np.int64)
        self._counts_all = False

    def _count(self, micros: _Longs) -> None:
        highest = np.maximum.accumulate(micros)
        if self._highest is not None and self._highest > micros[0]:
            np.maximum(highest, self._highest, out=highest)
        behind = highest - micros
        buckets = (behind.astype(np.float64).view(np.int64) >> _SHIFT) - _BELOW_FIRST
        np.clip(buckets, 0, BUCKETS - 1, out=buckets)
        self._counts += np.bincount(buckets, minlength=BUCKETS)
        self._highest = int(highest[-1])

    def _segment(self) -> DisorderSegment:
        (found,) = self._counts.nonzero()
        counts = tuple(zip(found.tolist(), self._counts[found].tolist(), strict=True))
        return DisorderSegment(_millis(self._before), _millis(self._highest), counts)


class Summing(NamedTuple):
    """A user's class that sums up rows, and how it sees their columns."""

    by: Own
    """Calls it."""
    columns: Sequence[str]
    """Names, the system's own first."""

    @classmethod
    def of(cls, by: str | None, columns: Sequence[str]) -> Summing | None:
        """Return it for ``ReadTask.summarized_by``."""
        return None if by is None else cls(Own(by), columns)

    def with_rows(self, before: str | None, batch: ReadBatch, cap: int | None) -> str | None:
        """Return the summary of a split with the rows of a batch behind others, except for those beyond the cap."""
        names = [*self.columns[: len(batch.columns)], EVENT_TIME]
        rows = pa.RecordBatch.from_arrays([*batch.columns, batch.event_time], names=names)
        if cap is not None:
            counted = (integers(batch.event_time) <= cap) | ~is_valid(batch.event_time)
            rows = rows.filter(booleans(counted))
        return self.by.merged(batch.split, before, self.by.summary_of(batch.split, rows) if rows.num_rows else None)


@dataclass(slots=True)
class _SplitCounts:
    """What was seen of one split; times are in microseconds."""

    rows: RowTotals = NO_ROWS
    highest: int | None = None
    marked: int | None = None
    summary: str | None = None

    def add_time(self, micros: int) -> None:
        """Count an event time, in microseconds."""
        self.highest = micros if self.highest is None else max(micros, self.highest)


_NOTHING: Final = _SplitCounts()


class EventTimeObserver:
    """Watches the event times of a task's ranges, column by column. Of a split's ranges the first has all its rows."""

    def __init__(self, task: ReadTask, summing: Summing | None = None) -> None:
        self._ranges = task.ranges
        self._summing = summing
        self._disorder = None if task.beginnings is None else _disorder_counts(task.ranges, task.beginnings)
        self._late_at = None if task.late_at is None else in_micros(task.late_at)
        # Event times are microseconds in the columns; a whole millisecond at the cap still counts.
        self._cap = None if task.future_cap is None else task.future_cap * 1_000 + 999
        self._counts: defaultdict[Split, _SplitCounts] = defaultdict(_SplitCounts)

    def observe(self, batch: ReadBatch) -> None:
        """Take in a batch's event times."""
        counts = self._counts[batch.split]
        # Some connectors do not count rows without an event time, or date them by another time.
        undated = max(batch.undated, batch.event_time.null_count)
        counts.rows += RowTotals(read=batch.rows, undated=undated, malformed=batch.malformed)
        dated = batch.event_time.drop_null() if batch.event_time.null_count else batch.event_time
        micros = integers(dated)
        if batch.reached is not None and (self._cap is None or batch.reached <= self._cap):
            counts.add_time(batch.reached)
        if batch.marks is not None:
            self._observe_marks(counts, batch.marks)
        if self._summing is not None:
            counts.summary = self._summing.with_rows(counts.summary, batch, self._cap)
        if not len(micros):
            return
        if self._late_at is not None and micros.min() <= self._late_at:
            counts.rows += RowTotals(late=late_among(micros, self._late_at))
        highest, is_counted = int(micros.max()), None
        if self._cap is not None and highest > self._cap:
            is_counted = micros <= self._cap
            counted = micros[is_counted]
            if batch.marks is None:
                counts.rows += RowTotals(future=len(micros) - len(counted))
            if not len(counted):
                return
            micros, highest = counted, int(counted.max())
        counts.add_time(highest)
        if self._disorder is not None:
            if batch.positions is None:
                raise InternalError("watermarkStrategy percentile needs the positions of rows (ReadBatch.positions)")
            positions = integers(
                batch.positions.filter(batch.event_time.is_valid()) if batch.event_time.null_count else batch.positions
            )
            self._disorder[batch.split].add(micros, positions if is_counted is None else positions[is_counted])

    def _observe_marks(self, counts: _SplitCounts, marks: pa.Array) -> None:
        micros = integers(marks)
        if self._cap is not None:
            counted = micros[micros <= self._cap]
            counts.rows += RowTotals(future=len(micros) - len(counted))
            micros = counted
        if len(micros):
            highest = int(micros.max())
            counts.marked = highest if counts.marked is None else max(highest, counts.marked)

    def reports(self) -> Iterator[RangeReport]:
        """Yield what was seen, a report a range."""
        reported: set[Split] = set()
        for r in self._ranges:
            seen, disorder = self._counts.get(r.split, _NOTHING), None
            if r.split in reported:
                seen = _SplitCounts(highest=seen.highest, marked=seen.marked)
            elif self._disorder is not None:
                disorder = self._disorder.get(r.split)
            reported.add(r.split)
            yield RangeReport(
                range=r,
                max_event_time=_millis(seen.highest),
                rows=seen.rows,
                marked=_millis(seen.marked),
                segments=() if disorder is None else disorder.segments(),
                summary=seen.summary,
            )


def _disorder_counts(ranges: Sequence[SplitRange], beginnings: Mapping[Split, Beginning]) -> dict[Split, DisorderCount]:
    first = {each.split: each.start for each in reversed(ranges)}
    here = {split: beginning for split, beginning in beginnings.items() if beginning.position == first.get(split)}
    return {split: DisorderCount(start, here.get(split)) for split, start in first.items()}


def late_among(micros: npt.NDArray[np.int64], late_at: int) -> LateRows:
    """Return which of event times are late, all in microseconds."""
    # The whole range of times may lie between the two, and their sum may be beyond 64 bits.
    behind = (late_at - micros[micros <= late_at]).view(np.uint64) // 1_000
    buckets = np.searchsorted(BOUNDS_MS, behind)
    counts = np.bincount(buckets, minlength=len(BOUNDS_MS) + 1)
    return LateRows(tuple(counts.tolist()), int(behind.max()), int(behind.sum(dtype=np.float64)))


def _millis(micros: int | None) -> Millis | None:
    return None if micros is None else Millis(micros // 1_000)
