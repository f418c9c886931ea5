"""Caught up with the ends found at the start: what is recorded, when it is reached, and what begins then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.driver import Driver
from tests.unit.planning.example_states import NOW, A, B, C, at, log_of, observed
from watermark_source.errors import OffsetError
from watermark_source.planning.catch_up import begins, is_done
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.group import MemberStatus, OtherMember, OtherMembers
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.policy import AfterCatchUp, Alignment, Idleness, OnLoss, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import CatchUp, SourceState, SplitStatus
from watermark_source.planning.strategy import Bounded, Percentile, ProcessingTime
from watermark_source.planning.watermark import MAX, MIN, Millis

CODEC = OffsetCodec(source="aligned-kafka", name="users")
FIRST = PlanPolicy(after_catch_up=AfterCatchUp.WATERMARK)
FIRST_ON_CLOCK = replace(FIRST, strategy=ProcessingTime())
THEN_CLOCK = PlanPolicy(after_catch_up=AfterCatchUp.CLOCK)
SKIPS = OnLoss(fails=False)
NEW = SourceState(splits={A: at(0), B: at(0)})


def planned(state: SourceState, ends: Mapping[Split, int], policy: PlanPolicy, **changes: Any) -> Plan:
    seen = {r.split: RangeSummary(Millis(100 * r.end)) for r in ranges_of(state)}
    return plan(state, observed(**{"now": NOW, "ends": ends, "seen": seen, **changes}), policy, None)


def reread(state: SourceState) -> SourceState:
    """Return the state as a new process reads it."""
    return CODEC.decode(json.loads(json.dumps(CODEC.encode(state))))


@pytest.mark.parametrize("policy", [FIRST, THEN_CLOCK])
def test_it_is_reached_by_the_ends_of_the_start_and_then_by_those_found_there(policy: PlanPolicy) -> None:
    state = planned(NEW, {A: 10, B: 4}, policy, max_rows=6).state
    assert state.catch_up == CatchUp({A: 10, B: 4})
    seen: list[CatchUp | None] = []
    while not is_done(state.catch_up):
        state = planned(reread(state), {A: 99, B: 4} if len(seen) < 4 else {A: 200, B: 9}, policy, max_rows=8).state
        seen.append(state.catch_up)
    found_there = next(at for at in seen if at is not None and at.again)
    assert found_there == CatchUp({A: 99}, again=True)
    # With the plan that follows the last of them: its rows have been processed by then.
    assert state.splits[A].observed >= 99
    assert CODEC.encode(state)["catch_up"] == {"again": True}


def test_a_row_that_the_cleaner_may_have_removed_is_before_the_second_ends() -> None:
    first = planned(NEW, {A: 10, B: 4}, FIRST_ON_CLOCK).state
    second = planned(first, {A: 12, B: 4}, FIRST_ON_CLOCK).state
    assert second.catch_up == CatchUp({A: 12}, again=True)
    assert second.watermark is None
    third = planned(second, {A: 15, B: 4}, FIRST_ON_CLOCK).state
    assert is_done(third.catch_up)
    assert third.use_processing_time


@pytest.mark.parametrize("policy", [FIRST, FIRST_ON_CLOCK])
def test_before_there_is_no_watermark_and_the_group_waits(policy: PlanPolicy) -> None:
    policy = replace(policy, alignment=Alignment(max_drift=None if policy is FIRST_ON_CLOCK else 1_000_000))
    state, members = NEW, []
    while state.watermark is None:
        made = planned(state, {A: 10, B: 4}, policy, max_rows=5)
        members.append(made.member().status)
        assert (made.state.watermark is None) == (made.member().status is MemberStatus.HOLDING)
        state = reread(made.state)
    assert members[:-1] == [MemberStatus.HOLDING] * (len(members) - 1)
    assert [t.observed for t in state.splits.values()] == [10, 4]
    assert state.watermark == (NOW - 1 if policy.strategy == ProcessingTime() else 399)
    assert members[-1] in (MemberStatus.CLOCK, MemberStatus.ACTIVE)


def test_no_drift_ends_the_first_reading_before_its_end() -> None:
    """A split at its end holds back the others of its group; here nothing has a watermark yet that could be ahead."""
    policy = replace(FIRST, alignment=Alignment(max_drift=10))
    log = log_of(range(0, 10_000, 1_000), [])
    driver = Driver(log, policy)
    driver.run()
    assert is_done(driver.state().catch_up)
    assert driver.state().splits[A].position == 10


@pytest.mark.parametrize("policy", [FIRST, FIRST_ON_CLOCK, replace(FIRST, final_watermark=True)])
def test_a_run_with_an_end_catches_up_before_it_is_over(policy: PlanPolicy) -> None:
    state, made = NEW, None
    while made is None or made.is_batch:
        made = planned(state, {A: 10, B: 4}, policy, max_rows=5, ends_are_final=True)
        assert made.state.watermark is None or [t.position for t in made.state.splits.values()] == [10, 4]
        state = reread(made.state)
    assert is_done(state.catch_up)
    assert state.watermark == (MAX if policy.final_watermark else NOW - 1 if policy is FIRST_ON_CLOCK else 399)


def test_of_two_that_are_read_to_their_ends_first_none_waits_for_the_other() -> None:
    others = OtherMembers(MIN, OtherMember("prices"), 1)
    assert planned(NEW, {A: 10, B: 4}, FIRST_ON_CLOCK, others=others).has_rows
    assert not planned(NEW, {A: 10, B: 4}, PlanPolicy(strategy=ProcessingTime()), others=others).has_rows


def test_an_empty_log_has_caught_up_at_once_and_one_batch_records_it() -> None:
    first = planned(NEW, {A: 0, B: 0}, FIRST)
    assert first.is_batch
    assert is_done(first.state.catch_up)
    assert not planned(reread(first.state), {A: 0, B: 0}, FIRST).is_batch


def test_a_split_found_later_does_not_matter() -> None:
    state = planned(NEW, {A: 10, B: 4}, FIRST).state
    state = planned(state, {A: 10, B: 4, C: 1_000}, FIRST, added={C: 0}, max_rows=1).state
    assert C in state.splits
    assert C not in CatchUp({A: 10, B: 4}).ends
    first_ends = planned(NEW, {A: 10, B: 4}, FIRST, max_rows=1).state.catch_up
    later = planned(planned(NEW, {A: 10, B: 4}, FIRST, max_rows=1).state, {A: 10, B: 4, C: 9}, FIRST, added={C: 0})
    assert later.state.catch_up == first_ends


def test_nothing_is_recorded_before_every_end_is_known() -> None:
    state = planned(NEW, {A: 0}, FIRST, unknown=frozenset({B})).state
    assert state.catch_up is None
    assert state.watermark is None
    assert planned(state, {A: 0, B: 7}, FIRST).state.catch_up == CatchUp({B: 7})


def test_rows_committed_behind_an_open_transaction_are_before_the_first_ends() -> None:
    """Readers of committed data see neither until the transaction is over: the log seems to end before them."""
    unanswered = planned(NEW, {A: 10, B: 4}, FIRST, open_ends={A: 13, B: None}).state
    assert unanswered.catch_up is None
    state = planned(unanswered, {A: 10, B: 4}, FIRST, open_ends={A: 13, B: 4}).state
    assert state.catch_up == CatchUp({A: 13})
    for _ in range(3):
        state = planned(reread(state), {A: 10, B: 4}, FIRST).state
        assert state.watermark is None
        assert state.catch_up == CatchUp({A: 13})
    state = planned(reread(state), {A: 14, B: 4}, FIRST).state
    assert state.watermark is None
    for _ in range(2):
        state = planned(reread(state), {A: 14, B: 4}, FIRST).state
    assert is_done(state.catch_up)
    assert state.splits[A].observed == 14


def test_the_second_ends_are_those_that_every_broker_returns() -> None:
    state = planned(NEW, {A: 10, B: 4}, FIRST).state
    waits = planned(state, {A: 10}, FIRST, unknown=frozenset({B})).state
    assert waits.catch_up == CatchUp({})
    assert not is_done(waits.catch_up)
    assert planned(reread(waits), {A: 10, B: 9}, FIRST).state.catch_up == CatchUp({B: 9}, again=True)


@pytest.mark.parametrize(
    ("ends", "changes"),
    [
        ({A: 30, B: 4}, {"earliest": {A: 20}}),
        ({A: 3, B: 4}, {}),
        ({B: 4}, {}),
    ],
    ids=["expired", "shorter", "gone"],
)
def test_rows_that_were_lost_count_as_read(ends: Mapping[Split, int], changes: dict[str, Any]) -> None:
    policy = replace(FIRST, on_loss=SKIPS)
    state = planned(NEW, {A: 10, B: 4}, policy, max_rows=10).state
    assert state.splits[A].position > 3
    found = planned(state, ends, policy, **changes)
    assert found.losses
    assert found.state.catch_up is not None
    assert found.state.catch_up.again or A not in found.state.catch_up.ends


def test_other_offsets_are_what_they_were() -> None:
    state = planned(NEW, {A: 10, B: 4}, PlanPolicy()).state
    assert state.catch_up is None
    assert "catch_up" not in CODEC.encode(state)


@pytest.mark.parametrize(
    "broken",
    [[], {"end": {}}, {"again": False}, {"ends": []}, {"ends": {"a": 1}}, {"ends": {"a": {"0": -1}}},
     {"ends": {"a": {"00": 1}}}],
)  # fmt: skip
def test_a_damaged_record_of_it_is_refused(broken: object) -> None:
    with pytest.raises(OffsetError, match=r"catch_up|split number"):
        CODEC.decode({**CODEC.encode(NEW), "catch_up": broken})


def test_what_was_written_is_what_is_read() -> None:
    for catch_up in (CatchUp({}), CatchUp({A: 5, Split("b", 10): 7}), CatchUp({A: 5}, again=True)):
        assert reread(replace(NEW, catch_up=catch_up)).catch_up == catch_up


def test_a_checkpoint_that_has_sent_a_watermark_is_not_read_to_its_end_first() -> None:
    state = replace(NEW, watermark=Millis(5))
    with pytest.raises(OffsetError, match="whenCaughtUp is watermark, and the checkpoint was begun without it"):
        planned(state, {A: 1, B: 1}, FIRST)
    assert planned(state, {A: 1, B: 1}, THEN_CLOCK).state.catch_up == CatchUp({A: 1, B: 1})


def test_history_by_event_times_that_has_sent_a_watermark_is_not_read_to_its_end_first() -> None:
    """Both options record the same ends: those of one are none of the other's."""
    state = planned(planned(NEW, {A: 10, B: 4}, THEN_CLOCK, max_rows=6).state, {A: 10, B: 4}, THEN_CLOCK).state
    assert state.watermark is not None
    assert not is_done(state.catch_up)
    with pytest.raises(OffsetError, match="a watermark has been sent before the logs were read to their ends"):
        planned(reread(state), {A: 10, B: 4}, FIRST)


def test_what_came_after_a_first_reading_is_history_for_an_option_that_is_added_later() -> None:
    state = NEW
    while not is_done(state.catch_up):
        state = planned(state, {A: 10, B: 4}, FIRST).state
    assert begins(state, AfterCatchUp.CLOCK)
    state = planned(reread(state), {A: 1_000, B: 400}, THEN_CLOCK, max_rows=700).state
    assert state.catch_up == CatchUp({A: 1_000, B: 400})
    positions = []
    while not state.use_processing_time:
        positions.append(state.splits[A].position)
        assert not begins(state, AfterCatchUp.CLOCK)
        state = planned(reread(state), {A: 1_000, B: 400}, THEN_CLOCK, max_rows=700).state
    assert positions[-1] == 1_000
    assert not begins(state, AfterCatchUp.CLOCK)


@pytest.mark.parametrize("policy", [FIRST, FIRST_ON_CLOCK])
def test_a_run_that_ends_before_the_ends_of_the_start_holds_no_other(policy: PlanPolicy) -> None:
    """Rows behind an open transaction are no part of it: a source that waited for them would never end its run."""
    state = planned(NEW, {A: 10, B: 4}, policy, open_ends={A: 13, B: 4}, max_rows=6).state
    made = planned(reread(state), {A: 10, B: 4}, policy, ends_are_final=True, max_rows=6)
    assert made.member().status is MemberStatus.HOLDING
    while made.has_rows:
        made = planned(reread(made.state), {A: 10, B: 4}, policy, ends_are_final=True)
    assert made.member().status is MemberStatus.FINISHED
    assert not made.is_batch
    assert made.state.watermark is None
    # The next run reads on, and the others wait again.
    made = planned(reread(made.state), {A: 14, B: 4}, policy, ends_are_final=True)
    assert made.member().status is MemberStatus.HOLDING
    while made.is_batch:
        made = planned(reread(made.state), {A: 14, B: 4}, policy, ends_are_final=True)
    assert is_done(made.state.catch_up)


# Processing time once caught up.


def test_time_is_the_events_and_then_the_clock_and_stays_it() -> None:
    policy = replace(THEN_CLOCK, strategy=Bounded(5), alignment=Alignment(max_drift=1_000))
    state = NEW
    for _ in range(20):
        made = planned(state, {A: 10, B: 4}, policy, max_rows=5)
        state = reread(made.state)
        if state.use_processing_time:
            break
        assert (state.watermark or 0) < NOW - 1
    assert made.is_batch
    assert state.watermark == NOW - 1
    assert made.member().status is MemberStatus.CLOCK
    # Neither disorder nor alignment matters any more: event times of new rows are an hour apart.
    later = planned(state, {A: 50, B: 90}, policy, now=Millis(NOW + 5_000)).state
    assert (later.use_processing_time, later.watermark) == (True, NOW + 4_999)
    assert [later.splits[s].position for s in (A, B)] == [50, 90]


@pytest.mark.parametrize("flipped", [False, True])
def test_on_the_clock_no_split_is_idle_from_before_the_flip(flipped: bool) -> None:
    """FLIP-326: an input that uses processing time is considered active; a checkpoint may have another status."""
    policy = replace(THEN_CLOCK, idleness=Idleness(timeout=1_000))
    state = planned(planned(NEW, {A: 10, B: 4}, policy).state, {A: 10, B: 4}, policy).state
    assert state.use_processing_time
    idle = replace(state.splits[B], status=SplitStatus.IDLE, since=Millis(NOW - 5_000))
    state = replace(state, splits={**state.splits, B: idle})
    if not flipped:
        state = replace(state, use_processing_time=False, watermark=Millis(500), catch_up=CatchUp({}))
    made = planned(reread(state), {A: 10, B: 4}, policy, now=Millis(NOW + 60_000))
    assert made.state.use_processing_time
    assert {at.status for at in made.state.splits.values()} == {SplitStatus.ACTIVE}
    assert made.is_batch


def test_a_replay_flips_in_the_same_batch() -> None:
    """The offset has the decision; a process that plans from an offset before the flip plans it again."""
    driver = Driver(log_of(range(100, 2_000, 100), [50, 60]), THEN_CLOCK)
    flips = []
    for step in range(8):
        driver.step()
        if step % 2:
            driver.restart()
        flips.append(driver.state().use_processing_time)
    assert flips == sorted(flips)
    assert flips[-1]


def test_what_was_learned_of_disorder_is_not_kept_on_the_clock() -> None:
    policy = replace(THEN_CLOCK, strategy=Percentile(999_000, 20_000, 5_000))
    state = NEW
    for _ in range(5):
        state = planned(state, {A: 10, B: 4}, policy).state
        assert reread(state) == state or not state.use_processing_time
    assert state.use_processing_time
    assert state.learned is None
    assert reread(state) == state


def test_a_watermark_later_than_the_clock_is_refused_at_the_flip() -> None:
    state = planned(planned(NEW, {A: 10, B: 4}, THEN_CLOCK).state, {A: 10, B: 4}, THEN_CLOCK).state
    before = replace(state, catch_up=CatchUp({}), use_processing_time=False, watermark=Millis(NOW + 60_001))
    with pytest.raises(OffsetError, match=r"caught up with a watermark of 2023-.*, later than the driver's clock"):
        planned(before, {A: 10, B: 4}, THEN_CLOCK)
    assert planned(replace(before, watermark=Millis(NOW + 60_000)), {A: 10, B: 4}, THEN_CLOCK).state.use_processing_time


def test_without_the_option_a_checkpoint_on_the_clock_is_refused() -> None:
    state = planned(planned(NEW, {A: 1, B: 1}, THEN_CLOCK).state, {A: 1, B: 1}, THEN_CLOCK).state
    assert state.use_processing_time
    with pytest.raises(OffsetError, match=r"\(whenCaughtUp clock, .*the option is not set any more"):
        planned(state, {A: 1, B: 1}, PlanPolicy())
