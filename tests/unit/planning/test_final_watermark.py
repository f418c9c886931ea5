"""When a stream is at its end: all is read, nothing waits to be committed, and all splits are known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning.example_states import A, at, log_of, observation
from watermark_source.eventtime.watermark import MAX
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.state import SourceState

POLICY = PlanPolicy(final_watermark=True)


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ({}, True),
        # A later run reads what the transaction holds.
        ({"uncommitted": {A}}, False),
        # There may be a partition that nobody has found.
        ({"all_found": False}, False),
        ({"ends_are_final": False}, False),
    ],
)
def test_the_end_of_time_goes_out_once_nothing_can_be_missing(seen: dict[str, Any], ends: bool) -> None:
    log = log_of([100, 200])
    found = observation(log, **{"ends_are_final": True, **seen})
    planned = plan(SourceState({A: at(2, 199)}), found, POLICY, None)
    assert (planned.state.watermark == MAX) is ends
