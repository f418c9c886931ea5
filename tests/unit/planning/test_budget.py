from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.driver import START, Driver
from tests.simulation.log import SimulatedLog
from tests.unit.planning.example_states import A, B, C, at, backlog, log_of, observation
from watermark_source.planning.budget import budgeted_ends
from watermark_source.planning.group import NO_OTHERS, incomplete
from watermark_source.planning.group_limit import aligned_ends
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.split import SAMPLE, Split, SplitRange
from watermark_source.planning.state import SplitState
from watermark_source.planning.watermark import Millis

FREE = PlanPolicy()


def cut(
    log: SimulatedLog,
    splits: dict[Split, SplitState],
    budget: int | None,
    *,
    policy: PlanPolicy = FREE,
    index: bool = True,
    **changes: object,
) -> dict[Split, int]:
    found = backlog(log, splits, policy, index=index, max_rows=budget, **changes)
    return budgeted_ends(found, found.ends, budget).ends


def test_a_backlog_within_the_budget_is_read_whole() -> None:
    log = log_of([1, 2], [3])
    assert cut(log, {A: at(0), B: at(0)}, 3) == {A: 2, B: 1}
    assert cut(log, {A: at(0), B: at(0)}, None) == {A: 2, B: 1}
    assert cut(log_of(range(100), range(100)), {A: at(0), B: at(0)}, 200) == {A: 100, B: 100}


def test_all_splits_end_at_one_event_time() -> None:
    log = log_of(range(1_000), range(0, 10_000, 10))
    ends = cut(log, {A: at(0), B: at(0)}, 110)
    assert 88 <= sum(ends.values()) <= 110
    assert ends[B] == -(-ends[A] // 10)


def test_a_split_ahead_in_event_time_waits() -> None:
    log = log_of(range(100), range(5_000, 5_100))
    assert cut(log, {A: at(0), B: at(10, 5_009)}, 50)[B] == 10


def test_what_a_split_reads_behind_a_row_that_was_passed_is_not_shown_until_the_limit_is_beyond_that_row() -> None:
    """A log whose first row is later than those that follow is read from its second row on."""
    log = log_of([1_800, *range(0, 3_000, 3)], range(0, 3_000, 3))
    found = backlog(log, {A: at(1, -1), B: at(0, -1)}, PlanPolicy(alignment=Alignment(max_drift=100)), max_rows=100)
    assert not found.up_to(Millis(4_000)).blind
    budgeted = budgeted_ends(found, found.ends, 100)
    assert budgeted.ends[A] > 1
    assert budgeted.reached.keys() == {B}


def test_rows_of_one_millisecond_go_to_the_lowest_watermark_first() -> None:
    log = log_of([7] * 100, [7] * 100, [7] * 100)
    assert cut(log, {A: at(0, 5), B: at(0), C: at(0, 4)}, 120) == {A: 0, B: 100, C: 20}


def test_with_alignment_no_split_reads_several_rows_of_a_millisecond_while_another_reads_none_of_it() -> None:
    log = log_of([7, 7], [6, 7])
    assert cut(log, {A: at(0), B: at(0)}, 3, policy=PlanPolicy(alignment=Alignment(max_drift=0))) == {A: 1, B: 2}


def test_with_alignment_a_row_within_the_drift_waits_for_its_turn_be_its_split_the_lowest() -> None:
    log, splits = log_of([7], [7], [9]), {A: at(0, 4), B: at(0, 5), C: at(0, 3)}
    assert cut(log, splits, 1, policy=PlanPolicy(alignment=Alignment(max_drift=10))) == {A: 1, B: 0, C: 0}


def test_what_is_left_before_a_full_millisecond_is_filled_up() -> None:
    log = log_of([1, 2, *[3] * 1_000], [1])
    assert cut(log, {A: at(0), B: at(0)}, 100) == {A: 99, B: 1}


def test_budget_one_is_used() -> None:
    log = log_of([5, 6], [4, 9])
    assert cut(log, {A: at(0), B: at(0)}, 1) == {A: 0, B: 1}


def test_rows_behind_a_far_future_event_come_in_their_turn() -> None:
    log = log_of([10**15, *range(1_000)], range(1_000))
    policy = PlanPolicy(max_future_skew=0)
    assert cut(log, {A: at(1), B: at(0)}, 100, policy=policy)[A] >= 50
    assert cut(log, {A: at(2, -1), B: at(0)}, 100, policy=policy)[A] >= 50


def test_what_holds_the_watermark_reads_its_next_row_whenever_that_is() -> None:
    log = log_of([10**15, *range(1_000)], range(1_000), range(500, 1_000))
    for budget in (1, 100):
        ends = cut(log, {A: at(0), B: at(100, 98)}, budget)
        assert ends[A] == 1
        assert 0.8 * budget <= sum(ends.values()) - 100 <= budget
    # Not one that is level with those that read, nor one whose turn comes in order.
    assert cut(log, {A: at(0), B: at(0)}, 100)[A] == 0
    in_order = cut(log, {B: at(400, 398), C: at(0, 397)}, 200)
    assert in_order[B] == 500 + in_order[C]
    assert in_order[C] > 1


def test_what_is_read_out_of_turn_is_half_of_the_budget_at_most_and_the_lowest_watermarks_first() -> None:
    log = log_of(range(1_000), *([10**15] for _ in range(9)))
    ahead = [s for s in log.splits if s != A]
    splits = {A: at(100, 99), **{s: at(0, s.number) for s in ahead}}
    for budget, most in ((1, 1), (10, 5), (100, 9)):
        ends = cut(log, splits, budget)
        assert [s.number for s in ahead if ends[s]] == [*range(1, most + 1)]
        assert 0.8 * budget <= sum(ends.values()) - 100 <= budget


@pytest.mark.parametrize("budget", [1, 100])
@pytest.mark.parametrize("skew", [None, 1_000])
def test_a_row_of_the_future_stops_neither_its_split_nor_the_watermark(budget: int, skew: int | None) -> None:
    """With a skew its split continues beside the others, and without it has their watermark continue."""
    times = range(START, START + 1_000)
    policy = PlanPolicy(max_future_skew=skew)
    driver = Driver(log_of([START + 3_000_000, *times], times), policy, max_rows=budget)
    batches = 12 if budget == 100 else 40
    for _ in range(batches):
        driver.step()
    watermark = driver.state().watermark
    assert watermark is not None
    # Half of what fits into the batches but the first few, of one split or of both.
    assert watermark >= START + min(999, (batches - 4) * budget // 4)
    driver.run()
    assert sum(len(rows) for batch in driver.batches for rows in batch.rows.values()) == 2_001


def test_a_budget_takes_nothing_that_alignment_does_not_allow() -> None:
    """Before a row of 1 000, which lies before the start, the index cannot show where rows of A are from."""
    log, splits = log_of([1_000, 10, 20, *range(5_000, 6_000)], range(3_000)), {A: at(1), B: at(0)}
    policy = PlanPolicy(alignment=Alignment(max_drift=200))
    last: dict[str, Any] = {"others": incomplete(NO_OTHERS, Millis(1_499))}
    allowed = aligned_ends(splits, observation(log, **last), backlog(log, splits, policy, **last)).ends
    assert allowed == {A: 3, B: 1_501}
    found = budgeted_ends(backlog(log, splits, policy, max_rows=100, **last), allowed, 100).ends
    assert found[A] == 3
    assert 78 <= found[B] <= 98


def test_where_not_one_row_may_be_beyond_the_limit_a_budget_takes_none_over_a_gap() -> None:
    """While the store does not answer: the other rows fill the budget, and the limit of before holds."""
    log, splits = log_of(range(1_000), [0, 5_000]), {A: at(200, 198), B: at(1, -1)}
    policy = PlanPolicy(alignment=Alignment(max_drift=200))
    last: dict[str, Any] = {"others": incomplete(NO_OTHERS, Millis(1_199))}
    allowed = aligned_ends(splits, observation(log, **last), backlog(log, splits, policy, **last)).ends
    assert allowed == {A: 1_000, B: 1}
    for budget in (1, 10, 300):
        waiting = backlog(log, splits, policy, max_rows=budget, **last)
        found = budgeted_ends(waiting, allowed, budget).ends
        assert found[B] == 1
        assert 0.8 * budget <= found[A] - 200 <= budget
    # Where the group answers that row is read.
    assert cut(log, splits, 300, policy=policy)[B] == 2


def test_without_a_time_index_the_budget_is_shared_by_backlog() -> None:
    log = log_of(range(100), range(300))
    assert cut(log, {A: at(0), B: at(0)}, 40, index=False, newest={}) == {A: 10, B: 30}


def test_without_a_time_index_the_lowest_watermark_gets_the_last_position() -> None:
    log = log_of(range(2), range(300), range(300))
    assert cut(log, {A: at(0, 9), B: at(0, 4), C: at(0)}, 2, index=False, newest={}) == {A: 0, B: 1, C: 1}
    assert cut(log, {A: at(0, 9), B: at(0, 4), C: at(0)}, 1, index=False, newest={}) == {A: 0, B: 0, C: 1}


@pytest.mark.parametrize(
    ("behind", "other", "budget", "ends"),
    [
        pytest.param(100, 100, 61, {A: 30, B: 31}, id="half each"),
        pytest.param(100, 10, 60, {A: 50, B: 10}, id="what the others leave"),
        pytest.param(10, 100, 60, {A: 10, B: 50}, id="no more than there is"),
        pytest.param(100, 100, 1, {A: 0, B: 1}, id="the others first"),
        pytest.param(100, 0, 60, {A: 60}, id="all where there are no others"),
    ],
)
def test_splits_that_no_one_waits_for_have_what_the_others_leave_or_half(
    behind: int, other: int, budget: int, ends: dict[Split, int]
) -> None:
    log = log_of(range(behind), range(1_000, 1_000 + other))
    shared = backlog(log, {A: at(0), B: at(0)}, FREE, index=False, max_rows=budget)
    assert budgeted_ends(shared, shared.ends, budget, apart={A}).ends == ends
    looked_up = backlog(log, {A: at(0), B: at(0)}, FREE, max_rows=budget)
    found = budgeted_ends(looked_up, looked_up.ends, budget, apart={A}).ends
    assert sum(found.values()) <= budget
    assert all(found[split] >= int(0.8 * end) for split, end in ends.items())


def test_a_log_without_a_newest_event_time_is_searched_all_the_same() -> None:
    log = log_of(range(1_000), range(1_000))
    ends = cut(log, {A: at(0), B: at(0)}, 100, newest={})
    assert ends[A] == ends[B]
    assert 80 <= sum(ends.values()) <= 100


def test_positions_without_a_row_are_read_too() -> None:
    log = log_of([], [])
    log.splits[A].end = 50
    assert sum(cut(log, {A: at(0)}, 10).values()) == 10


def test_a_newest_event_time_known_of_few_splits_is_a_guess_only() -> None:
    log = log_of(range(100), range(0, 100_000_000, 100_000))
    ends = cut(log, {A: at(0), B: at(0)}, 900, newest={A: 99})
    assert ends[A] == 100
    assert 620 <= ends[B] <= 800
    assert len(log.asked) <= 25


@pytest.mark.parametrize("times", [range(0, 500, 10), [2**n for n in range(50)]], ids=["even", "doubling"])
def test_many_splits_with_the_same_event_times_take_two_look_ups_at_most(times: Sequence[int]) -> None:
    many = 2 * SAMPLE
    log = log_of(*(times for _ in range(many)))
    for budget in (many, 3 * many + many // 2, 25 * many):
        log.asked.clear()
        ends = cut(log, {s: at(0) for s in log.splits}, budget)
        assert 0.8 * budget <= sum(ends.values()) <= budget
        assert max(ends.values()) - min(ends.values()) <= 1
        assert [size for size in log.asked if size > SAMPLE] in ([many], [many, many])


@pytest.mark.parametrize(
    ("times", "most"),
    [
        ([range(10_000), range(10_000)], 2),
        ([range(0, 100_000, 10), range(0, 1_000_000, 100)], 5),
        ([[*range(5_000), *range(3_600_000, 3_605_000)], range(0, 3_600_000, 720)], 8),
        ([[0, *range(3_600_000, 3_605_000)], [1, *range(3_600_500, 3_605_000)]], 8),
        ([[*range(5_000), 10**14], range(5_000)], 19),
    ],
    ids=["even", "skewed", "with a gap", "with a gap in all", "with a row ages ahead"],
)
def test_the_search_asks_the_index_a_few_times_only(times: Sequence[Sequence[int]], most: int) -> None:
    log = log_of(*times)
    for budget in (10, 100, 1_000):
        log.asked.clear()
        assert sum(cut(log, {A: at(0), B: at(0)}, budget).values()) >= 0.8 * budget
        assert len(log.asked) <= most


def test_rows_of_one_millisecond_go_to_everybody_before_anybody_gets_a_second() -> None:
    driver = Driver(
        log_of([1_000], [999, 1_000], [1_000, 1_000]), PlanPolicy(alignment=Alignment(max_drift=0)), max_rows=2
    )
    driver.run()
    read = [{s.number: len(rows) for s, rows in batch.rows.items()} for batch in driver.batches if batch.rows]
    assert read == [{0: 1, 1: 1}, {1: 1, 2: 1}, {2: 1}]


class Sized:
    """``RowIndex`` of a log whose rows take ten positions each, and that can be cut after every second one."""

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        return min(wanted.start + 20 * max(1, rows // 2), wanted.end)


def test_where_positions_are_not_rows_the_budget_is_of_rows() -> None:
    log = log_of(range(1_000))
    counted = replace(backlog(log, {A: at(0)}, FREE, max_rows=50), rows=Sized())
    assert budgeted_ends(counted, counted.ends, 50).ends == {A: 500}
    assert budgeted_ends(counted, {A: 300}, 50).ends == {A: 300}
    assert budgeted_ends(counted, counted.ends, 1).ends == {A: 20}
    # A row takes a position at least.
    assert budgeted_ends(counted, {A: 40}, 50).ends == {A: 40}
