"""What a plan leaves for the next one."""

from __future__ import annotations

import time

import pytest

from tests.unit.planning.example_states import A, at, log_of, observation
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import Ingestion
from watermark_source.spark.driver.pace import LastPlan, Pace


@pytest.mark.parametrize(("position", "looks_at_once"), [(0, True), (2, False)])
def test_only_rows_let_the_next_look_come_at_once(position: int, looks_at_once: bool) -> None:
    """In silence a watermark that follows the clock makes a batch each second."""
    log = log_of([100, 200])
    state = SourceState({A: at(position)})
    seen = observation(log, reached={A: 5_000}, rest=None)
    planned = plan(state, seen, PlanPolicy(strategy=Ingestion(1_000)), None)
    assert planned.is_batch
    assert planned.has_rows is looks_at_once
    last = LastPlan(pace=Pace(last_batch=time.monotonic() - 100))
    after = last.after(planned, state, state=planned.state, offset={}, cpu=0.0)
    assert (after.pace.next_look <= time.monotonic()) is looks_at_once
    assert after.without_rows_at == (None if looks_at_once else seen.logs.asked_at)
    assert after.rows_at == (seen.logs.asked_at if looks_at_once else None)


@pytest.mark.parametrize(
    ("is_first", "reached", "prices"),
    [(True, {}, (0.0, 0.0)), (False, {A: 5_000}, (0.0, 0.0)), (False, {}, (0.0, 1.0))],
)
def test_only_looks_after_the_first_plan_that_give_no_batch_have_a_price(
    is_first: bool, reached: dict[Split, int], prices: tuple[float, float]
) -> None:
    log = log_of([100, 200])
    state = SourceState({A: at(2)})
    planned = plan(state, observation(log, reached=reached, rest=None), PlanPolicy(strategy=Ingestion(1_000)), None)
    assert planned.is_batch is bool(reached)
    last = LastPlan(None if is_first else {})
    assert last.after(planned, state, state=planned.state, offset={}, cpu=1.0).pace.cpu == prices


def test_a_run_with_fixed_ends_does_not_wait_after_a_batch_without_rows() -> None:
    log = log_of([100, 200])
    state = SourceState({A: at(2)})
    seen = observation(log, reached={A: 5_000}, rest=None, ends_are_final=True)
    planned = plan(state, seen, PlanPolicy(strategy=Ingestion(1_000)), None)
    assert planned.is_batch
    assert not planned.has_rows
    last = LastPlan({}, pace=Pace(last_batch=time.monotonic() - 100, cpu=(1.0, 1.0)))
    assert last.after(planned, state, state=planned.state, offset={}, cpu=0.0).pace.next_look <= time.monotonic()
