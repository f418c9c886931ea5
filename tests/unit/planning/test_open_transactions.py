"""Which splits a plan treats as read to their end, so that they are asked for rows of open transactions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import NOW, A, B, at, observed
from watermark_source.planning.combined_watermark import passed_over
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import MAX, Millis

ACTIVE = at(5, 90)
IDLE = at(5, 80, status=SplitStatus.IDLE)
READS = SplitState(9, 5, Millis(80))
BEFORE = SourceState({A: IDLE, B: ACTIVE}, watermark=Millis(90))
NONE: dict[Split, int] = {}


@pytest.mark.parametrize(
    ("splits", "watermark", "asked"),
    [
        pytest.param({A: IDLE, B: ACTIVE}, 90, NONE, id="nothing moves"),
        pytest.param({A: IDLE, B: READS}, 90, NONE, id="rows that move nothing yet"),
        pytest.param({A: IDLE, B: READS}, 100, {A: 5}, id="rows move the watermark"),
        pytest.param({A: IDLE, B: ACTIVE}, 100, {A: 5}, id="it moves without rows: by others, or only now by rows"),
        pytest.param({A: IDLE, B: replace(IDLE, watermark=Millis(90))}, 90, {B: 5}, id="one turns idle"),
        pytest.param({A: IDLE, B: IDLE}, 95, {A: 5, B: 5}, id="one turns idle, and so the other one is the last"),
        pytest.param({A: READS, B: ACTIVE}, 100, NONE, id="it has rows: it is waited for"),
        pytest.param({A: IDLE, B: ACTIVE}, MAX, {A: 5, B: 5}, id="the end of the stream"),
    ],
)
def test_who_is_asked(splits: dict[Split, SplitState], watermark: int, asked: dict[Split, int]) -> None:
    logs = observed(NOW, {A: 5, B: 5}).logs
    assert passed_over(BEFORE, SourceState(splits, Millis(watermark)), logs) == asked


def test_whom_the_clock_takes_on_is_asked() -> None:
    moved = SourceState({A: IDLE, B: at(5, 95)}, watermark=Millis(90))
    logs = observed(NOW, {A: 5, B: 5}, reached={A: NOW, B: NOW}).logs
    assert passed_over(BEFORE, moved, logs) == {B: 5}
    assert passed_over(BEFORE, moved, observed(NOW, {A: 5, B: 5}).logs) == NONE
    assert passed_over(SourceState(), moved, logs) == {A: 5, B: 5}


def test_a_split_that_is_idle_when_it_is_found_is_asked() -> None:
    logs = observed(NOW, {A: 5, B: 5}).logs
    assert passed_over(replace(BEFORE, splits={B: ACTIVE}), BEFORE, logs) == {A: 5}


def test_no_one_is_asked_again_nor_where_it_does_not_matter() -> None:
    moved = SourceState({A: IDLE, B: ACTIVE}, watermark=Millis(100))
    assert passed_over(BEFORE, moved, observed(NOW, {A: 6, B: 5}).logs) == NONE
    assert passed_over(BEFORE, moved, observed(NOW, {B: 5}).logs) == NONE
    assert passed_over(BEFORE, moved, observed(NOW, {A: 5}, uncommitted={A}).logs) == NONE
    assert passed_over(BEFORE, replace(moved, use_processing_time=True), observed(NOW, {A: 5}).logs) == NONE
    assert (
        passed_over(replace(BEFORE, watermark=MAX), replace(moved, watermark=MAX), observed(NOW, {A: 5}).logs) == NONE
    )
