"""What a plan begins with: what was learned is in force in all of it, and where a split learns its step."""

from __future__ import annotations

import pytest

from tests.unit.planning.example_states import A, log_of, observation
from watermark_source.planning.backlog import learned_step
from watermark_source.planning.disorder import MILLION, Learned, RangeSummary
from watermark_source.planning.planner import known_before
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import Percentile
from watermark_source.planning.watermark import Millis


def test_the_bound_that_was_learned_is_in_force_in_all_that_follows() -> None:
    percentile = Percentile(on_time=MILLION // 2, rows=1_000, most=500)
    policy = PlanPolicy(strategy=percentile)
    state = SourceState({A: SplitState(1, 1, highest=Millis(50))}, learned=Learned(7))
    known = known_before(state, observation(log_of([50])), policy, has_time_index=True, has_row_index=False)
    assert known.learned == Learned(7)
    assert known.policy.strategy.bound == 7


@pytest.mark.parametrize(
    ("has_index", "step", "learns"), [(False, None, True), (True, None, False), (True, 700, True), (False, 700, True)]
)
def test_a_step_is_learned_where_no_index_tells_how_far_rows_lead_or_one_is_in_use(
    has_index: bool, step: int | None, learns: bool
) -> None:
    policy = PlanPolicy(alignment=Alignment(max_drift=60_000))
    state = SourceState({A: SplitState(10_000, 0, Millis(100), step=step)})
    seen = {A: RangeSummary(Millis(20_101))}
    observed = observation(log_of(range(10_000)), seen=seen)
    known = known_before(state, observed, policy, has_time_index=has_index, has_row_index=False)
    wanted = learned_step(step, rows=10_000, advanced=20_000, drift=60_000) if learns else None
    assert known.splits[A].step == wanted
