"""Disorder as tasks count it: the same however a range is cut, and what a look at all rows at once shows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.executor.read_batches import observe
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.disorder import BUCKETS, SEGMENT, Counts, bound_of, exact, rows_of, summed
from watermark_source.planning.range_report import Coverage, cover
from watermark_source.planning.ranges_per_task import into_tasks
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.read_tasks import beginnings_of

SPLIT = Split("log", 0)
ORIGIN = 1_700_000_000_000


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Positions over a few segments, with gaps, and event times in disorder of one size and then of another."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    span = draw(st.integers(1, 5 * SEGMENT))
    positions = np.unique(random.integers(0, span, draw(st.integers(1, 3_000))))
    steps = draw(st.sampled_from([1, 50, 5_000]))
    forth = ORIGIN + positions * steps // 50
    sizes = [draw(st.sampled_from([0, 1, 999, 60_000, 5_000_000])) for _ in range(2)]
    back = np.where(positions < span // 2, random.integers(0, sizes[0] + 1, len(positions)), 0)
    back += np.where(positions >= span // 2, random.integers(0, sizes[1] + 1, len(positions)), 0)
    return positions, forth - back


def reported(whole: SplitRange, found: tuple[np.ndarray, np.ndarray], before: Millis | None, parts: int) -> Coverage:
    positions, times = found
    state = SourceState({SPLIT: SplitState(whole.end, whole.start, before, highest=before)})
    reports = []
    for task in into_tasks([whole], at_least=parts, multiple_of=SEGMENT):
        batches = []
        for part in task:
            inside = (positions >= part.start) & (positions < part.end)
            for at in range(0, int(inside.sum()), 700):
                micros = pa.array(times[inside][at : at + 700] * 1_000).view(pa.timestamp("us", tz="UTC"))
                where = pa.array(positions[inside][at : at + 700])
                batches.append(ReadBatch(SPLIT, len(micros), (), micros, positions=where))
        reports += observe(batches, task, None, beginnings=beginnings_of(task, state))
    return cover(whole, reports)


@given(rows(), st.integers(-3, 3), st.integers(1, 7), st.integers(0, SEGMENT))
def test_what_is_counted_does_not_depend_on_how_a_range_is_cut(
    found: tuple[np.ndarray, np.ndarray], before: int, parts: int, start: int
) -> None:
    moved = (found[0] + start, found[1])
    whole = SplitRange(SPLIT, start, int(moved[0][-1]) + 1)
    highest = None if not before else Millis(ORIGIN + before * 100_000)
    assert reported(whole, moved, highest, 1) == reported(whole, moved, highest, parts)


@given(rows(), st.integers(-3, 3), st.integers(1, 7))
def test_what_counts_is_how_far_rows_are_behind_the_highest_of_all_before(
    found: tuple[np.ndarray, np.ndarray], before: int, parts: int
) -> None:
    positions, times = found
    whole = SplitRange(SPLIT, 0, int(positions[-1]) + 1)
    highest = None if not before else Millis(ORIGIN + before * 100_000)
    behind = np.maximum(np.maximum.accumulate(times), times[0] if highest is None else highest) - times
    received = summed(exact(reported(whole, found, highest, parts).seen.segments, highest))
    if positions[-1] < SEGMENT:
        assert rows_of(received) == len(positions)
    expected = [counted(behind[part]) for part in halves_that_count(positions, times, highest)]
    assert received == summed(expected)


def halves_that_count(positions: np.ndarray, times: np.ndarray, highest: Millis | None) -> list[np.ndarray]:
    """As ``DisorderSegment`` states: all of the first, of others the second half if the first has come so far."""
    parts = [positions < SEGMENT]
    for number in range(1, int(positions[-1]) // SEGMENT + 1):
        first = (positions >= number * SEGMENT) & (positions < number * SEGMENT + SEGMENT // 2)
        earlier = [*times[positions < number * SEGMENT].tolist(), *([] if highest is None else [highest])]
        if not earlier or (first.any() and times[first].max() >= max(earlier)):
            parts.append((positions >= number * SEGMENT + SEGMENT // 2) & (positions < (number + 1) * SEGMENT))
    return parts


def counted(behind: np.ndarray) -> Counts:
    edges = [bound_of(bucket) for bucket in range(BUCKETS - 1)]
    assert all(a is not None and b is not None and a <= b for a, b in pairwise(edges))
    buckets: dict[int, int] = {}
    for each in behind.tolist():
        bucket = 0
        while bucket < BUCKETS - 1 and each * 1_000 >= top(bucket):
            bucket += 1
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return tuple(sorted(buckets.items()))


def top(bucket: int) -> int:
    """Where a bucket ends, in microseconds."""
    if not bucket:
        return 512
    doubling, quarter = divmod(bucket - 1, 4)
    return (512 << doubling) * (5 + quarter) // 4


@given(st.integers(0, 2**41))
def test_a_row_that_is_behind_by_its_buckets_bound_is_not_late(behind: int) -> None:
    micros = np.array([2**42, 2**42 - behind], np.int64)
    times = pa.array(micros).view(pa.timestamp("us", tz="UTC"))
    batch = ReadBatch(SPLIT, 2, (), times, positions=pa.array([0, 1]))
    (report,) = observe([batch], [SplitRange(SPLIT, 0, 2)], None, beginnings={})
    # Nothing is known of what lies before: of the first half nothing counts.
    assert report.segments[0].counts == ()
    state = SourceState({SPLIT: SplitState(2, 0)})
    whole = [SplitRange(SPLIT, 0, 2)]
    (report,) = observe([batch], whole, None, beginnings=beginnings_of(whole, state))
    bucket, bound = report.segments[0].counts[-1][0], bound_of(report.segments[0].counts[-1][0])
    if bound is None:
        assert bucket == BUCKETS - 1
        assert behind >= 2**40
    else:
        # The watermark is bound and 1 ms behind, in whole milliseconds.
        assert int(micros[1]) // 1_000 > int(micros[0]) // 1_000 - bound - 1
        assert bound <= 1 + 1.25 * max(behind, 512) / 1_000 + 1
