"""A plan that found nothing to do is the next plan too, until something else is seen or a split has been quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.planning.example_states import NOW, A, B, at, log_of, observation
from watermark_source.planning.group import NO_OTHERS, Peer
from watermark_source.planning.kept_plan import KeptPlan
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import AfterCatchUp, Idleness, PlanPolicy
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import Bounded, Ingestion, ProcessingTime
from watermark_source.planning.watermark import MAX, Millis

LOG = log_of([100, 200], [300])
QUIET = Millis(NOW - 1_000)
STATE = SourceState({A: at(2, 199, since=QUIET), B: at(1, 299, since=QUIET)}, watermark=Millis(199))
POLICY = PlanPolicy(idleness=Idleness(timeout=5_000), max_future_skew=60_000)


def seen(**changes: Any) -> Any:
    return observation(LOG, **{"earliest": {}, **changes})


def kept(policy: PlanPolicy = POLICY, state: SourceState = STATE, **changes: Any) -> KeptPlan | None:
    return KeptPlan.of(plan(state, seen(**changes), policy, LOG), state, policy)


def test_a_plan_without_anything_to_do_holds_until_the_first_split_turns_idle() -> None:
    found = kept()
    assert found is not None
    assert found.until == QUIET + 5_000
    later = seen(now=Millis(NOW + 3_000))
    again = found.again(found.plan.state, later)
    assert again is not None
    assert again.plan == plan(found.plan.state, later, POLICY, LOG)
    assert again.plan.state.future_cap == NOW + 63_000
    assert again.again(again.plan.state, seen(now=Millis(QUIET + 5_001))) is None
    assert plan(found.plan.state, seen(now=Millis(QUIET + 5_001)), POLICY, LOG).is_batch


def test_without_an_idle_timeout_it_holds_while_nothing_else_is_seen() -> None:
    found = kept(PlanPolicy())
    assert found is not None
    assert found.until == MAX


@pytest.mark.parametrize(
    "changes",
    [
        {"ends": {A: 3, B: 1}},
        {"ends": {A: 2}},
        {"ends": {A: 2}, "unknown": frozenset({B})},
        {"ids": {"log": "another"}},
        {"silent": frozenset({A})},
        {"others": replace(NO_OTHERS, minimum=Millis(100), members=1)},
        {"max_rows": 5},
        {"idle_timeouts": {A: 1}},
        {"all_found": False},
        {"reached": {A: Millis(5_000)}},
    ],
    ids=str,
)
def test_it_holds_no_longer_once_something_else_is_seen(changes: dict[str, Any]) -> None:
    found = kept()
    assert found is not None
    assert found.again(found.plan.state, seen(**changes)) is None


def test_what_the_status_alone_says_of_other_sources_changes_no_plan() -> None:
    found, peer = kept(), Peer("other", "active", None, 100, True)
    assert found is not None
    again = found.again(found.plan.state, seen(others=replace(NO_OTHERS, peers=(peer,))))
    assert again is not None
    assert again.plan.observation.others.peers == (peer,)


def test_it_is_not_of_another_state() -> None:
    found = kept()
    assert found is not None
    assert found.again(replace(STATE, future_cap=found.plan.state.future_cap), seen()) is None


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (PlanPolicy(strategy=ProcessingTime()), {}),
        (PlanPolicy(strategy=Ingestion(1_000)), {"reached": {A: Millis(150), B: Millis(150)}}),
        (PlanPolicy(after_catch_up=AfterCatchUp.CLOCK), {}),
        (POLICY, {"followed": Millis(100)}),
        (POLICY, {"all_found": False}),
        (POLICY, {"ends": {A: 3, B: 1}}),
        (POLICY, {"ends": {A: 2}, "unknown": frozenset({B})}),
        (POLICY, {"now": Millis(QUIET + 5_001)}),
    ],
    ids=[
        "the clock",
        "arrivals",
        "the clock once caught up",
        "announcements",
        "an unfinished look-up",
        "rows left",
        "an end that is not known",
        "a split that turns idle",
    ],
)
def test_no_plan_is_kept_that_may_change_by_itself(policy: PlanPolicy, changes: dict[str, Any]) -> None:
    assert kept(policy, **changes) is None


def test_a_split_that_has_just_been_read_to_its_end_is_planned_again() -> None:
    """Only then is it known since when it is quiet."""
    state = replace(STATE, splits={**STATE.splits, A: at(2, 199)})
    assert kept(PlanPolicy(strategy=Bounded()), state) is None
