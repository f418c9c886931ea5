"""Time that passes without rows: whose clock moves a watermark, and when a batch goes out for it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.planning.example_states import NOW, A, B, C, at, log_of, observation
from watermark_source.planning.combined_watermark import at_rest, clock_of, reached_by, tick_is_due, watermark_of_batch
from watermark_source.planning.group import FIRST, OtherMember, OtherMembers, incomplete
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split_watermarks import SplitWatermarks
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Bounded, Ingestion, ProcessingTime, WatermarkStrategy
from watermark_source.planning.watermark import MIN, Millis

INTERVAL = 1_000
POLICY = PlanPolicy(strategy=Bounded(10), watermark_interval=INTERVAL)
CLICKS = OtherMember("clicks")


@pytest.mark.parametrize(
    ("seen", "sent", "moves"),
    [
        pytest.param({}, 100, True, id="after a rest"),
        pytest.param({"rest": 999}, 100, False, id="after a short one"),
        pytest.param({"rest": None}, 100, False, id="without one"),
        pytest.param({"rest": None}, None, True, id="the first at once"),
        pytest.param({"rest": None, "ends_are_final": True}, 100, True, id="in a run that has an end"),
        pytest.param({}, 3_988, True, id="more than an interval on"),
        pytest.param({}, 3_989, False, id="an interval on"),
        pytest.param({"ends": {A: 6}}, 100, False, id="there are rows"),
        pytest.param({"waiting": {A}}, 100, False, id="there are rows that wait"),
        pytest.param({"uncommitted": {A}}, 100, False, id="there are rows in an open transaction"),
        pytest.param({"reached": {A: Millis(91), B: Millis(5_000)}}, None, False, id="it is as far already"),
    ],
)
def test_a_split_at_rest_goes_by_its_systems_clock(seen: dict[str, Any], sent: int | None, moves: bool) -> None:
    given = {"ends": {A: 5}, "reached": {A: Millis(5_000)}, "rest": 1_000, **seen}
    last = None if sent is None else Millis(sent)
    found = at_rest({A: at(5, 80)}, last, observation(log_of([]), **given), POLICY)
    assert found == ({A: at(5, 4_989)} if moves else {})


def test_one_that_has_rows_keeps_no_other_from_going_by_the_clock() -> None:
    seen = observation(log_of(range(5)), ends={A: 9, B: 5}, reached={A: Millis(5_000), B: Millis(5_000)}, rest=1_000)
    moved = at_rest({A: at(5, 90), B: at(5, 90)}, Millis(100), seen, POLICY)
    assert {s: t.watermark for s, t in moved.items()} == {B: 4_989}


def test_how_far_the_clock_takes_it() -> None:
    def reached(
        to: int,
        split: SplitState,
        strategy: WatermarkStrategy = POLICY.strategy,
        **policy: Any,
    ) -> dict[Any, SplitState]:
        seen = observation(log_of([]), ends={A: 5}, reached={A: Millis(to)}, rest=1_000)
        return at_rest({A: split}, Millis(100), seen, PlanPolicy(strategy=strategy, **policy))

    assert reached(5_000, at(5)) == {A: at(5, 4_989)}
    assert reached(5_000, at(5), Ingestion(0, 10)) == {A: at(5, 4_999)}
    assert reached(NOW + 9, at(5), max_future_skew=5) == {A: at(5, NOW - 6)}
    assert reached(5_000, at(5), ProcessingTime()) == {}
    # The rows that were read last are not in its watermark yet.
    assert reached(5_000, SplitState(5, 3, Millis(80))) == {}


@pytest.mark.parametrize(
    ("others", "reached"),
    [
        pytest.param(OtherMembers(Millis(5_000), CLICKS, 1), 5_000, id="the lowest of those that count"),
        pytest.param(OtherMembers(idle=Millis(6_000)), 6_000, id="the highest of those that are idle"),
        pytest.param(
            OtherMembers(Millis(5_000), CLICKS, 2, idle=Millis(6_000)), 5_000, id="those that count come first"
        ),
        pytest.param(OtherMembers(), None, id="nobody"),
        pytest.param(OtherMembers(MIN, CLICKS, 1, idle=Millis(6_000)), None, id="one that holds the group"),
        pytest.param(OtherMembers(FIRST, CLICKS, 1, idle=Millis(6_000)), None, id="one that has no watermark yet"),
        pytest.param(
            incomplete(OtherMembers(Millis(5_000)), Millis(9_000)), None, id="nobody knows whether that is all"
        ),
    ],
)
def test_with_whom_a_source_goes_on(others: OtherMembers, reached: int | None) -> None:
    assert reached_by(others) == reached


@pytest.mark.parametrize(
    ("followed", "changes", "watermark"),
    [
        pytest.param(5_000, {}, 5_000, id="as far as they have come"),
        pytest.param(None, {}, 200, id="how far is not known"),
        pytest.param(1_100, {}, 200, id="an interval on"),
        pytest.param(1_101, {}, 1_101, id="more than an interval on"),
        pytest.param(5_000, {"own": 5_000}, 5_000, id="no further than its own"),
        pytest.param(5_000, {"own": 6_000}, 6_000, id="behind its own"),
        pytest.param(5_000, {"own": None}, 5_000, id="it has none of its own"),
        pytest.param(5_000, {"rest": 999}, 200, id="without a rest"),
        pytest.param(5_000, {"ends_are_final": True}, 200, id="in a run that has an end"),
        pytest.param(5_000, {"status": SplitStatus.ACTIVE}, 200, id="not all are idle"),
        pytest.param(5_000, {"unknown": {B}}, 5_000, id="of one that is idle its end is not told"),
    ],
)
def test_while_all_splits_are_idle_it_goes_on_with_the_others(
    followed: int | None, changes: dict[str, Any], watermark: int
) -> None:
    own, status = changes.pop("own", 200), changes.pop("status", SplitStatus.IDLE)
    splits = {A: at(5, 80, status=SplitStatus.IDLE), B: at(5, 80, status=status)}
    seen = observation(
        log_of([]), followed=None if followed is None else Millis(followed), **{"rest": 1_000, **changes}
    )
    before = SourceState(splits, watermark=Millis(100))
    policy = replace(POLICY, idleness=Idleness(timeout=1, follows_group=True))
    # Without a split no one has to be waited for either.
    for known in (splits, {}) if status is SplitStatus.IDLE else (splits,):
        table = SplitWatermarks(known, combined=None if own is None else Millis(own))
        found = watermark_of_batch(before, table, seen, policy, on_clock=False, is_last=False, has_rows=False)
        assert found == watermark


@pytest.mark.parametrize("follows", [True, False])
def test_only_if_it_is_wished_it_goes_on_with_the_others(follows: bool) -> None:
    log = log_of(range(5))
    seen = observation(log, followed=Millis(5_000), rest=1_000)
    before = SourceState({A: at(5, 80, status=SplitStatus.IDLE)}, watermark=Millis(100))
    policy = replace(POLICY, idleness=Idleness(timeout=1, follows_group=follows))
    assert plan(before, seen, policy, None).state.watermark == (5_000 if follows else 100)


def test_it_goes_on_with_no_one_while_the_end_of_a_new_split_is_not_reported() -> None:
    seen = observation(log_of(range(5)), followed=Millis(5_000), rest=1_000, unknown={C})
    before = SourceState({A: at(5, 80, status=SplitStatus.IDLE)}, watermark=Millis(100))
    policy = replace(POLICY, idleness=Idleness(timeout=1, follows_group=True))
    assert plan(before, seen, policy, None).state.watermark == 100


def test_the_clock_is_one_millisecond_back_and_never_goes_back() -> None:
    assert clock_of(SourceState(), NOW) == NOW - 1
    assert clock_of(SourceState(watermark=Millis(NOW - 2)), NOW) == NOW - 1
    assert clock_of(SourceState(watermark=Millis(NOW + 5)), NOW) == NOW + 5


def test_a_tick_goes_out_with_rows_or_after_more_than_an_interval_and_a_rest() -> None:
    def due(last: int | None, *, has_rows: bool = False, **seen: Any) -> bool:
        state = SourceState(watermark=None if last is None else Millis(last))
        return tick_is_due(state, observation(log_of([]), **{"rest": 1_000, **seen}), INTERVAL, has_rows=has_rows)

    assert due(None)
    assert due(NOW, has_rows=True)
    assert due(NOW - 1_001)
    assert not due(NOW - 1_000)
    assert not due(NOW - 1_001, rest=999)
    assert not due(NOW - 1_001, rest=None)
    assert not due(NOW - 1_001, ends_are_final=True)
