"""Disorder row by row, held against the exact one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.monitor.profile import Disorder

times = st.lists(st.integers(0, 10**6) | st.sampled_from([0, 127, 128, 10**9, 2**53, 2**62]), max_size=60)


def behind(millis: Sequence[int]) -> list[int]:
    highest, found = -1, []
    for at in millis:
        highest = max(highest, at)
        found.append(highest - at)
    return found


def disorder(millis: Sequence[int], *, cut: int = 7) -> Disorder:
    made = Disorder()
    for begin in range(0, len(millis), cut):
        made.add(np.array(millis[begin : begin + cut], np.int64))
    return made


@given(times, st.integers(1, 60))
def test_however_the_rows_come_the_disorder_is_the_same(millis: list[int], cut: int) -> None:
    one, other = disorder(millis), disorder(millis, cut=cut)
    assert (one.rows, one.highest, one.longest) == (other.rows, other.highest, other.longest)
    assert one.longest == max(behind(millis), default=0)
    assert [one.bound_for(p / 20) for p in range(20)] == [other.bound_for(p / 20) for p in range(20)]


@given(times, st.sampled_from([0.0, 0.001, 0.05, 0.5]))
def test_a_bound_makes_no_more_rows_late_than_was_wished_and_is_hardly_larger_than_need_be(
    millis: list[int], late: float
) -> None:
    made, exact = disorder(millis), sorted(behind(millis))
    bound = made.bound_for(late)
    assert sum(each > bound for each in exact) <= late * len(exact)
    needed = exact[len(exact) - 1 - int(late * len(exact))] if exact else 0
    assert needed <= bound <= needed * (1 + 1 / 64) + 1


@given(times, st.integers(0, 2 * 10**6))
def test_the_share_of_late_rows_is_that_of_a_bound_within_a_bucket(millis: list[int], bound: int) -> None:
    made, exact = disorder(millis), behind(millis)
    least = sum(each > bound * (1 + 1 / 64) + 1 for each in exact)
    most = sum(each > bound for each in exact)
    assert least <= round(made.late_with(bound) * len(exact)) <= most
    assert sum(made.shares([0, 10, 1_000])) == pytest.approx(made.late_with(0))


def test_without_rows_nothing_is_late() -> None:
    made = Disorder()
    assert (made.late_with(0), made.bound_for(0.1), made.bound_for(0)) == (0.0, 0, 0)
