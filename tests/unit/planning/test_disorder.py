"""Which rows were counted rightly, and what the buckets stand for."""

from __future__ import annotations

import pytest

from watermark_source.planning.disorder import BUCKETS, DisorderSegment, bound_of, exact, rows_of, summed
from watermark_source.planning.watermark import Millis

FEW = ((0, 1),)


def segment(before: int | None, highest: int | None) -> DisorderSegment:
    first, last = (None if time is None else Millis(time) for time in (before, highest))
    return DisorderSegment(first, last, FEW)


@pytest.mark.parametrize(("before", "counts"), [(None, False), (49, False), (50, True), (51, True)])
def test_a_segment_counts_if_it_had_come_as_far_as_all_before_it(before: int | None, counts: bool) -> None:
    assert list(exact([segment(before, 60)], Millis(50))) == ([FEW] if counts else [])
    assert list(exact([segment(before, 60)], None)) == [FEW]
    # What lies before it are the segments before it too, and what lay before those.
    assert list(exact([segment(None, 50), segment(before, 60)], None)) == ([FEW, FEW] if counts else [FEW])
    assert list(exact([segment(None, 40), segment(before, 60)], Millis(50))) == ([FEW] if counts else [])
    assert list(exact([segment(None, None), segment(before, 60)], Millis(50))) == ([FEW] if counts else [])


def test_counts_are_summed_by_bucket() -> None:
    assert summed([((1, 2), (5, 1)), ((0, 7), (5, 3))]) == ((0, 7), (1, 2), (5, 4))
    assert rows_of(((0, 7), (1, 2), (5, 4))) == 13
    assert (summed([]), rows_of(())) == ((), 0)


def test_the_bound_of_a_bucket_is_its_end_in_whole_milliseconds() -> None:
    assert [bound_of(bucket) for bucket in (0, 1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3, 3]
    assert bound_of(BUCKETS - 2) == -(-(2**40) // 1_000)
    assert bound_of(BUCKETS - 1) is None
