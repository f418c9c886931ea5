"""Planned ends where members of the group are elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.log import SimulatedLog
from tests.unit.planning.example_states import A, B, at, backlog, log_of, observation
from watermark_source.planning.backlog import Limit
from watermark_source.planning.group import NO_OTHERS, OtherMember, OtherMembers, drift_in_force, incomplete
from watermark_source.planning.group_limit import STORE, TO_COME, Aligned, aligned_ends
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.strategy import ProcessingTime
from watermark_source.planning.watermark import MIN, Millis

DRIFT_10 = PlanPolicy(alignment=Alignment(max_drift=10))
CLICKS = OtherMember("clicks")


def others(minimum: int) -> OtherMembers:
    return OtherMembers(Millis(minimum), CLICKS, 1)


def aligned(
    splits: dict[Split, SplitState],
    log: SimulatedLog,
    seen: OtherMembers,
    policy: PlanPolicy = DRIFT_10,
    **changes: Any,
) -> Aligned:
    index, reads_alone = changes.pop("index", True), changes.pop("reads_alone", False)
    return aligned_ends(
        splits,
        observation(log, others=seen, **changes),
        backlog(log, splits, policy, index=index, others=seen, **changes),
        reads_alone=reads_alone,
    )


def test_the_slowest_elsewhere_sets_the_limit() -> None:
    log = log_of([100, 110, 111, 200])
    found = aligned({A: at(0)}, log, others(100))
    assert found.limit == Limit(Millis(110), CLICKS)
    # The watermark of an event at 111 is 110.
    assert found.ends == {A: 3}


def test_who_is_behind_sets_it_for_the_others() -> None:
    log = log_of([100, 110, 111, 200])
    assert aligned({A: at(0)}, log, others(5_000)).limit == Limit(Millis(209), A)


def test_a_member_elsewhere_goes_by_its_name_and_no_one_holds_nothing() -> None:
    assert str(OtherMember("clicks", Millis(5))) == "clicks"
    assert OtherMembers(None, None, 0, None, awaited=False) == NO_OTHERS
    assert not NO_OTHERS.hold


def test_others_that_do_not_count_set_none() -> None:
    log = log_of([100, 200])
    assert aligned({A: at(0)}, log, OtherMembers(members=3)).limit == Limit(Millis(209), A)


def test_nothing_is_read_while_somebody_holds_the_group() -> None:
    log = log_of([100, 200], [50, 60])
    for policy in (DRIFT_10, PlanPolicy(strategy=ProcessingTime())):
        found = aligned({A: at(0), B: at(1, 49)}, log, OtherMembers(MIN, CLICKS, 1), policy)
        assert (found.limit, found.ends) == (Limit(MIN, CLICKS), {A: 0, B: 1})
    # With the time index the others learn all the same where this source begins.
    assert aligned({A: at(0), B: at(1, 49)}, log, OtherMembers(MIN, CLICKS, 1)).reached == {A: 99}


def test_who_is_waited_for_is_named() -> None:
    log = log_of([100])
    for seen, slowest in (
        (incomplete(others(5), None), STORE),
        (incomplete(others(5), None, awaited=True), TO_COME),
        (replace(others(5), minimum=MIN), CLICKS),
    ):
        assert aligned({A: at(0)}, log, seen).limit == Limit(MIN, slowest)


def test_of_two_that_hold_the_group_each_reads_its_own_snapshot() -> None:
    log = log_of([100, 200])
    seen = OtherMembers(MIN, CLICKS, 1)
    given: dict[str, Any] = {"chunks": {"t": (None,)}, "reads_alone": True}
    assert aligned({A: at(0)}, log, seen, **given).ends == {A: 2}
    assert aligned({A: at(0)}, log, incomplete(seen, None), **given).ends == {A: 0}
    # One for which no one waits lets its log run ahead of no one.
    assert aligned({A: at(0)}, log, others(99), **given).ends == {A: 2}
    assert aligned({A: at(0)}, log, seen, chunks={"t": (None,)}).ends == {A: 0}
    assert aligned({A: at(0)}, log, others(99), chunks={"t": (None,)}).ends == {A: 1}


def test_trigger_once_waits_for_no_one() -> None:
    log = log_of([100, 200])
    assert aligned({A: at(0)}, log, OtherMembers(MIN, CLICKS, 1), one_batch=True) == Aligned(None, {A: 2})


def test_the_limit_of_before_holds_to_the_row_while_the_store_does_not_answer() -> None:
    log = log_of([100, 110, 111, 200], [5_000])
    splits = {A: at(0), B: at(0)}
    found = aligned(splits, log, incomplete(others(100), Millis(109)))
    # Not even the one row beyond a gap.
    assert (found.limit, found.ends) == (Limit(Millis(109), STORE), {A: 2, B: 0})
    assert aligned(splits, log, incomplete(others(100), None)).ends == {A: 0, B: 0}
    # Nor is there one where the limit is the same as before.
    held = {A: at(1, 99)}
    assert aligned(held, log_of([100, 5_000]), incomplete(others(99), Millis(109))).ends == {A: 1}
    # A limit that is lower still counts.
    assert aligned(splits, log, incomplete(others(80), Millis(109))).limit == Limit(Millis(90), CLICKS)


def test_of_members_that_wait_for_each_other_over_a_gap_each_goes_on_by_one_row() -> None:
    log = log_of([100, 5_000, 5_001], [100, 7_000])
    splits = {A: at(1, 99), B: at(1, 99)}
    # The one whose next row is the earliest.
    assert aligned(splits, log, others(99)).ends == {A: 2, B: 1}
    assert aligned(splits, log_of([100, 7_000], [100, 5_000]), others(99)).ends == {A: 1, B: 2}
    # Who is ahead of the one elsewhere waits for it.
    assert aligned(splits, log, others(98)).ends == {A: 1, B: 1}
    # And so does everybody for a split without rows, unless it has come to the end of its run.
    short = log_of([100, 5_000], [100])
    assert aligned({A: at(1, 120), B: at(1, 99)}, short, others(99)).ends == {A: 1}
    assert aligned({A: at(1, 99), B: at(1, 49)}, short, others(99), ends_are_final=True).ends == {A: 2}
    # Of this source's splits it is the slowest, whichever split has the earliest next row.
    assert aligned({A: at(1, 99), B: at(1, 105)}, log_of([100, 5_000], [106, 4_000]), others(99)).ends == {A: 2, B: 1}


def test_over_a_gap_a_log_goes_on_beside_the_snapshot_of_a_table_that_was_found_later() -> None:
    log, table = log_of([100, 5_000], []), Split("t", 0)
    log.splits[table] = log.splits.pop(B)
    splits = {A: at(1, 99), table: at(0)}
    chunks: dict[str, Any] = {"chunks": {"t": (None,)}, "ends": {A: 2, table: 1}}
    assert aligned(splits, log, others(99), **chunks).ends == {A: 2, table: 1}
    assert aligned(splits, log, others(98), **chunks).ends == {A: 1, table: 1}


def test_what_is_reached_is_reported_for_the_end_of_the_log_and_the_limit() -> None:
    log = log_of([100, 105], [100, 300])
    found = aligned({A: at(0), B: at(1, 100)}, log, others(100))
    # All of A up to 105; of B nothing is left up to the limit.
    assert (found.ends, found.reached) == ({A: 2, B: 1}, {A: 104, B: 110})
    assert aligned({A: at(0)}, log, others(100), index=False).reached == {}
    # The limit is enough where a log's newest row is not known, and rows that are older take no watermark back.
    assert aligned({B: at(1, 100)}, log, others(100), newest={}).reached == {B: 110}
    assert aligned({A: at(1, 99)}, log_of([100, 50]), others(200), newest={A: Millis(50)}).reached == {A: 99}


def test_a_row_beyond_a_gap_is_reported_when_it_has_been_seen() -> None:
    """It may be none, as a transaction's control record, which is of the broker's clock among rows of the past."""
    log = log_of([100, 5_000, 101])
    # As the limit makes it cross a gap, and as the slowest of those that wait for each other.
    for watermark, minimum in ((50, 100), (99, 99)):
        crossed = aligned({A: at(1, watermark)}, log, others(minimum))
        assert (crossed.ends, crossed.reached) == ({A: 2}, {A: minimum + 10})
    # With the rows before it, none of which has been seen yet.
    crossed = aligned({A: at(0)}, log, others(200))
    assert (crossed.ends, crossed.reached) == ({A: 2}, {A: 210})


def test_the_first_row_of_a_split_is_reported_at_once() -> None:
    assert aligned({A: at(0)}, log_of([5_000, 5_001]), others(100)).reached == {A: 4_999}


def test_an_idle_split_is_not_the_slowest() -> None:
    log = log_of([100, 5_000], [50])
    splits = {A: at(1, 99), B: at(1, 49, status=SplitStatus.IDLE)}
    assert aligned(splits, log, others(99)).ends == {A: 2}


def test_the_lowest_drift_of_the_members_is_in_force_and_a_source_without_one_takes_none() -> None:
    low = OtherMembers(drift=5, drift_of="clicks")
    assert [drift_in_force(own, low) for own in (10, 5, 1, None)] == [5, 5, 1, None]
    assert drift_in_force(10, NO_OTHERS) == 10
