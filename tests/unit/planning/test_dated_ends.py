"""A log whose system dates its rows: what is read to an end shows its time with the batch, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning.example_states import NOW, A, B, at, log_of, observation
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.snapshot_ranges import snapshot_split
from watermark_source.planning.state import SnapshotState, SourceState
from watermark_source.planning.strategy import Bounded, Ingestion
from watermark_source.planning.watermark import Millis

_DATED = {"reached": {A: NOW}}


def _planned(policy: PlanPolicy | None = None, **changes: Any) -> SourceState:
    state = SourceState(splits={A: at(0, 50)}, watermark=Millis(50))
    return plan(state, observation(log_of([100, 200]), **{**_DATED, **changes}), policy or PlanPolicy(), None).state


def test_rows_up_to_the_end_carry_the_time_that_was_reported_before_it() -> None:
    planned = _planned()
    assert planned.watermark == NOW - 1
    # Of what was not read yet the split states nothing: alignment and idleness follow rows.
    assert planned.splits[A].watermark == 50
    assert _planned(PlanPolicy(strategy=Bounded(30))).watermark == NOW - 31


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (PlanPolicy(), {"max_rows": 1}),
        (PlanPolicy(), {"reached": {}}),
        (PlanPolicy(), {"waiting": {A}}),
        (PlanPolicy(), {"uncommitted": {A}}),
        (PlanPolicy(), {"all_found": False}),
        (PlanPolicy(strategy=Ingestion(0)), {}),
    ],
)
def test_nothing_is_reported_where_rows_may_be_left(policy: PlanPolicy, changes: dict[str, Any]) -> None:
    assert _planned(policy, **changes).watermark == 50


def test_a_clock_that_is_ahead_of_the_drivers_is_reported_up_to_the_cap() -> None:
    policy = PlanPolicy(max_future_skew=1_000)
    assert _planned(policy, reached={A: NOW + 60_000}).watermark == NOW + 999


def test_it_waits_for_splits_whose_time_is_unknown() -> None:
    log = log_of([100], [100])
    state = SourceState(splits={A: at(0, 50), B: at(0, 60)}, watermark=Millis(50))
    assert plan(state, observation(log, **_DATED), PlanPolicy(), None).state.watermark == 60


def test_beside_a_snapshot_that_was_found_later_the_log_is_reported_one_batch_later() -> None:
    table = snapshot_split("t")
    state = SourceState(
        splits={A: at(0, 50), table: at(0)}, watermark=Millis(50),
        snapshots=SnapshotState(frontiers={"t": ()}, complete=frozenset()),
    )  # fmt: skip
    seen = observation(log_of([100, 200]), ends={A: 2, table: 1}, chunks={"t": (None,)}, **_DATED)
    beside = plan(state, seen, PlanPolicy(), None).state
    assert beside.snapshots.frontiers
    assert beside.watermark == 50
