"""When a stream is at its end: all is read, nothing waits to be committed, and all splits are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.planning.example_states import A, B, C, at, log_of, observation
from watermark_source.planning.combined_watermark import come_since, is_at_its_end
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import MAX, Millis

POLICY = PlanPolicy(final_watermark=True)


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ({}, True),
        # A later run reads what the transaction holds.
        ({"uncommitted": {A}}, False),
        # There may be a partition that no one has found.
        ({"all_found": False}, False),
        ({"ends": {A: 2, B: 1}}, False),
        ({"ends_are_final": False}, False),
    ],
)
def test_the_end_of_time_goes_out_once_nothing_can_be_missing(seen: dict[str, Any], ends: bool) -> None:
    log = log_of([100, 200])
    found = observation(log, **{"ends_are_final": True, **seen})
    planned = plan(SourceState({A: at(2, 199)}), found, POLICY, None)
    assert (planned.state.watermark == MAX) is ends
    # Unless it is wished, a run with an end is not the stream's last.
    assert plan(SourceState({A: at(2, 199)}), found, PlanPolicy(), None).state.watermark != MAX


def test_rows_that_the_group_holds_back_are_still_to_be_read() -> None:
    logs = observation(log_of([100, 200]), ends_are_final=True).logs
    assert is_at_its_end({A: at(2, 199)}, logs)
    assert not is_at_its_end({A: at(1, 99)}, logs)


def test_it_goes_out_twice_then_once_from_each_process_and_nothing_after_it() -> None:
    logged, seen = SourceState({A: SplitState(2, 1, Millis(199))}, watermark=MAX, run=3), observation(log_of([1, 2, 3]))
    again = plan(logged, seen, POLICY, None, is_first=True)
    assert again.is_batch
    assert again.state == SourceState({A: at(2, 199)}, watermark=MAX, ended=True, run=4)
    after = plan(again.state, seen, POLICY, None)
    assert (after.is_batch, after.state) == (False, again.state)
    reported = plan(again.state, seen, POLICY, None, is_first=True)
    assert (reported.is_batch, reported.state) == (True, replace(again.state, run=5))


def test_what_lies_behind_an_end_is_reported() -> None:
    logs = observation(log_of([1, 2, 3], [4], [5, 6]), added={B: 1}).logs
    assert come_since(SourceState({A: at(2)}), logs) == [SplitRange(A, 2, 3), SplitRange(C, 0, 2)]
