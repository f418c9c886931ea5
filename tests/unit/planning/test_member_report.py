"""What a source reports to its group after a plan."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.log import SimulatedLog
from tests.unit.planning.example_states import NOW, A, B, at, log_of, observation
from watermark_source.planning.group import GroupMember, MemberStatus, OtherMember, OtherMembers, counts_with
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Alignment, GroupHold, MinimumRows, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SnapshotState, SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import ProcessingTime
from watermark_source.planning.watermark import MIN, Millis

DRIFT_10 = PlanPolicy(alignment=Alignment(max_drift=10))
HELD = OtherMembers(MIN, OtherMember("users"), 1)


def member(
    splits: dict[Split, SplitState], log: SimulatedLog, policy: PlanPolicy = DRIFT_10, *, index: bool = True,
    frontiers: dict[str, tuple[()]] | None = None, **changes: object,
) -> GroupMember:  # fmt: skip
    state = SourceState(
        splits=splits,
        snapshots=SnapshotState(frontiers=frontiers or {}, complete=None if frontiers is None else frozenset()),
    )
    return plan(state, observation(log, **changes), policy, log if index else None).member()


def active(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


def test_it_counts_with_what_its_slowest_split_has_when_the_batch_is_read() -> None:
    assert member({A: at(0), B: at(0)}, log_of([100, 105], [100, 900])) == active(104)


def test_a_split_that_is_read_up_to_the_limit_holds_no_one_below_it() -> None:
    users = OtherMembers(Millis(98), OtherMember("users"), 1)
    assert member({B: at(1, 99)}, log_of([], [100, 900]), others=users) == active(108)


def test_what_a_row_limit_cuts_counts_with_the_time_up_to_which_all_is_read() -> None:
    assert member({A: at(1, 99)}, log_of([100, 105, 106]), max_rows=1) == active(104)
    # One row of a millisecond is enough, whatever else is of it.
    assert member({A: at(1, 99)}, log_of([100, 105, 105]), max_rows=1) == active(104)
    assert member({A: at(1, 99)}, log_of([100, 105, 106]), max_rows=1, index=False) == active(99)


def test_without_an_index_it_counts_with_what_it_has_seen() -> None:
    assert member({A: at(1, 99), B: at(1, 79)}, log_of([100, 105], [80, 90]), index=False) == active(79)


@pytest.mark.parametrize("index", [True, False])
def test_a_source_that_is_held_before_its_first_row_says_where_it_begins_if_it_can(index: bool) -> None:
    found = member({A: at(0)}, log_of([100]), others=HELD, index=index)
    assert found == (active(99) if index else GroupMember(MemberStatus.STARTING))


def test_a_row_of_the_future_moves_no_watermark_and_earlier_ones_may_come_after_it() -> None:
    capped = PlanPolicy(alignment=Alignment(max_drift=10), max_future_skew=1_000)
    for beyond in (1_000 + 5, 5_000):
        assert member({A: at(1, 99)}, log_of([100, 105, NOW + beyond]), capped) == active(99)
        # Over a gap, after which it is read.
        behind = OtherMembers(Millis(5_000), OtherMember("users"), 1)
        assert member({A: at(1, 99)}, log_of([100, NOW + beyond, 200]), capped, others=behind) == active(99)
        held = member({A: at(0)}, log_of([NOW + beyond, 200]), capped, others=HELD)
        assert held == GroupMember(MemberStatus.STARTING)
    assert member({A: at(1, 99)}, log_of([100, NOW + 900]), capped) == active(NOW + 899)


def test_a_source_whose_first_range_was_not_yet_seen_is_still_starting() -> None:
    assert member({A: at(0)}, log_of([100, 200]), index=False) == GroupMember(MemberStatus.STARTING)


def test_a_split_that_does_not_answer_may_be_the_oldest_of_all() -> None:
    """Its own source waits for it, too; once it is idle no one does."""
    log = log_of([50], [100, 105])
    away: dict[str, Any] = {"ends": {B: 2}, "newest": {B: Millis(105)}, "unknown": frozenset({A})}
    assert member({A: at(0), B: at(1, 99)}, log, **away) == GroupMember(MemberStatus.STARTING)
    assert member({A: at(0, status=SplitStatus.IDLE), B: at(1, 99)}, log, **away) == active(104)
    assert member({A: at(1, 49), B: at(1, 99)}, log, **away) == active(49)


def test_rows_that_wait_for_more_count_with_when_they_begin_and_never_wait_where_no_one_can_know() -> None:
    patient = PlanPolicy(alignment=Alignment(max_drift=10), minimum_rows=MinimumRows(5, Millis(60_000)))
    splits, log = {A: at(1, 399), B: at(0)}, log_of([400], [200, 300])
    assert member(splits, log, patient, since_rows=Millis(0)) == active(199)
    blind = plan(SourceState(splits=splits), observation(log, since_rows=Millis(0)), patient, None)
    assert (blind.waits_for_more, blind.has_rows) == (False, True)
    seen = {A: at(1, 399), B: at(1, 199)}
    assert plan(SourceState(splits=seen), observation(log, since_rows=Millis(0)), patient, None).waits_for_more


def test_without_rows_it_waits_for_its_first_or_has_the_group_wait() -> None:
    assert member({A: at(0)}, log_of([])) == GroupMember(MemberStatus.WAITING)
    # A log that does not answer may have any.
    assert member({A: at(0)}, log_of([]), ends={}, unknown={A}) == GroupMember(MemberStatus.STARTING)
    patient = PlanPolicy(alignment=Alignment(max_drift=10, hold=GroupHold.FIRST_WATERMARK))
    assert member({A: at(0)}, log_of([]), patient) == GroupMember(MemberStatus.HOLDING)
    assert member({A: at(0)}, log_of([]), patient, ends={}, unknown={A}) == GroupMember(MemberStatus.HOLDING)
    assert member({A: at(1, 99)}, log_of([100]), patient) == active(99)
    # A partition that is new is not the source's first.
    idle = at(1, 99, status=SplitStatus.IDLE, since=Millis(5))
    assert member({A: idle, B: at(0)}, log_of([100], []), patient) == GroupMember(MemberStatus.WAITING)


def test_who_starts_comes_before_all_that_have_a_watermark_and_does_not_hold_the_group() -> None:
    counting = {status: counts_with(GroupMember(status, Millis(99))) for status in MemberStatus}
    assert counting.pop(MemberStatus.HOLDING) == MIN
    assert counting.pop(MemberStatus.STARTING) == MIN + 1
    assert counting.pop(MemberStatus.ACTIVE) == 99
    assert set(counting.values()) == {None}


def test_idle_and_finished_sources_say_so() -> None:
    def idle(*watermarks: int | None) -> GroupMember:
        splits = {
            s: at(1, w, status=SplitStatus.IDLE, since=Millis(5)) for s, w in zip((A, B), watermarks, strict=False)
        }
        return member(splits, log_of([100], [50]))

    assert idle(99, 49) == GroupMember(MemberStatus.IDLE, Millis(99))
    assert idle(0) == GroupMember(MemberStatus.IDLE, Millis(0))
    assert idle(None, -1) == GroupMember(MemberStatus.IDLE, Millis(-1))
    assert idle(None) == GroupMember(MemberStatus.IDLE)
    assert member({A: at(1, 99)}, log_of([100]), ends_are_final=True) == GroupMember(MemberStatus.FINISHED)
    # What has come to the end of its run holds no one.
    log = log_of([50], [100, 105, 106])
    assert member({A: at(1, 49), B: at(1, 99)}, log, ends_are_final=True, max_rows=1) == active(104)


def test_a_snapshot_holds_the_group_unless_asked_not_to() -> None:
    splits = {Split("t", 0): at(0), A: at(0)}
    log = log_of([])
    given = {"frontiers": {"t": ()}, "ends": {Split("t", 0): 1, A: 0}, "chunks": {"t": (None,)}, "waiting": {A}}
    assert member(splits, log, **given) == GroupMember(MemberStatus.HOLDING)  # type: ignore[arg-type]
    free = PlanPolicy(alignment=Alignment(max_drift=10, hold=GroupHold.NOTHING))
    assert member(splits, log, free, **given) == GroupMember(MemberStatus.WAITING)  # type: ignore[arg-type]


def test_a_source_on_the_clock_is_ahead_of_no_one() -> None:
    assert member({A: at(0)}, log_of([100]), PlanPolicy(strategy=ProcessingTime())) == GroupMember(MemberStatus.CLOCK)


def test_a_run_with_an_end_goes_on_while_the_group_lets_it_read_nothing() -> None:
    log = log_of([100])
    state = SourceState(splits={A: at(0)})
    first = plan(state, observation(log, others=HELD, ends_are_final=True), DRIFT_10, log)
    again = plan(first.state, observation(log, others=HELD, ends_are_final=True), DRIFT_10, log)
    assert (first.is_batch, first.has_rows, first.state.group.held) == (True, False, 1)
    assert (again.is_batch, again.state.group.held) == (True, 2)
    # Otherwise there is always another look.
    assert not plan(again.state, observation(log, others=HELD), DRIFT_10, log).is_batch
