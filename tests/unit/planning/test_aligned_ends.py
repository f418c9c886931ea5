from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.driver import Driver
from tests.simulation.log import SimulatedLog
from tests.unit.planning.example_states import NOW, A, B, C, at, backlog, log_of, observation
from watermark_source.planning.backlog import BLIND_STEP, Limit, backlog_of
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.group_limit import Aligned, aligned_ends, group_limit
from watermark_source.planning.observation import FirstLook
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.split import IndexEntry, Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import MAX, MIN, Millis

DRIFT_10 = PlanPolicy(alignment=Alignment(max_drift=10))
FAR = 10**15


def limit(splits: dict[Split, SplitState], log: object, policy: PlanPolicy = DRIFT_10, **changes: object) -> object:
    seen = observation(log, **changes)  # type: ignore[arg-type]
    return group_limit(splits, seen, backlog(log, splits, policy, **changes))  # type: ignore[arg-type]


def ends(
    splits: dict[Split, SplitState],
    log: object,
    policy: PlanPolicy = DRIFT_10,
    *,
    index: bool = True,
    **changes: object,
) -> dict[Split, int]:
    seen = observation(log, **changes)  # type: ignore[arg-type]
    return aligned_ends(splits, seen, backlog(log, splits, policy, index=index, **changes)).ends  # type: ignore[arg-type]


def test_the_limit_is_the_lowest_watermark_at_the_ends_of_the_logs_plus_the_drift() -> None:
    log = log_of([100, 200], [100, 900])
    assert limit({A: at(0), B: at(0)}, log) == Limit(Millis(209), A)


def test_a_split_without_rows_counts_with_its_watermark() -> None:
    log = log_of([100, 200], [50])
    assert limit({A: at(0), B: at(1, 49)}, log) == Limit(Millis(59), B)


def test_idle_finished_and_never_read_members_do_not_hold_the_group() -> None:
    log = log_of([100, 200], [50], [])
    assert limit({A: at(0), B: at(1, 49, status=SplitStatus.IDLE), C: at(0)}, log) == Limit(Millis(209), A)
    assert limit({A: at(0), B: at(1, 49), C: at(0)}, log, ends_are_final=True) == Limit(Millis(209), A)
    assert limit({C: at(0)}, log) is None


def test_rows_older_than_the_watermark_do_not_take_it_back() -> None:
    log = log_of([100, 50], [400])
    assert limit({A: at(1, 99), B: at(0)}, log, newest={A: 50, B: 400}) == Limit(Millis(109), A)


def test_a_far_future_event_does_not_hold_its_split_far_ahead() -> None:
    log = log_of([100, FAR + NOW, 200], [NOW, NOW + 2_000])
    policy = PlanPolicy(alignment=Alignment(max_drift=10), max_future_skew=1_000)
    assert limit({A: at(1, 99), B: at(0)}, log, policy) == Limit(Millis(NOW + 1_009), A)


def test_without_drift_and_under_trigger_once_there_is_no_limit() -> None:
    log = log_of([100, 200], [100, 900])
    splits = {A: at(0), B: at(0)}
    everything = Aligned(None, {A: 2, B: 2})
    assert aligned_ends(splits, observation(log), backlog(log, splits, PlanPolicy())) == everything
    seen = observation(log, one_batch=True)
    assert aligned_ends(splits, seen, backlog(log, splits, DRIFT_10, one_batch=True)) == everything


def test_drift_at_the_end_of_time_saturates() -> None:
    log = log_of([MAX], [MAX])
    assert limit({A: at(0), B: at(0)}, log) == Limit(MAX, A)


def test_ranges_end_exactly_at_the_limit() -> None:
    log = log_of([100, 200], [100, 150, 210, 211, 900])
    assert ends({A: at(0), B: at(0)}, log) == {A: 2, B: 3}


def test_the_bound_moves_limit_and_ends_alike() -> None:
    log = log_of([100, 200], [100, 150, 210, 211, 900])
    assert ends(
        {A: at(0), B: at(0)},
        log,
        PlanPolicy(alignment=Alignment(max_drift=10), strategy=Bounded(77)),
    ) == {A: 2, B: 3}


def test_a_log_that_is_known_to_end_within_the_limit_is_not_looked_up() -> None:
    log = log_of([100, 200], [100, 150, 210], [205, 211])
    splits = {A: at(0), B: at(1, 99), C: at(1, 204)}
    asked: list[dict[Split, Millis]] = []

    class Index:
        def first_after(self, limits: dict[Split, Millis]) -> object:
            asked.append(limits)
            return log.first_after(limits)

    seen = observation(log, settled={A, B, C})
    whole = backlog_of(splits, seen, DRIFT_10, Index())  # type: ignore[arg-type]
    assert aligned_ends(splits, seen, whole)[:2] == (Limit(Millis(209), A), {A: 2, B: 3, C: 1})
    assert asked == [{C: 210}]
    # A row may have come to B after its newest one was asked for.
    seen = observation(log, settled={A, C})
    assert aligned_ends(splits, seen, backlog_of(splits, seen, DRIFT_10, Index())).ends[B] == 3  # type: ignore[arg-type]
    assert asked[1:] == [{B: 210, C: 210}]


def test_newest_event_times_do_not_matter_while_the_present_limit_holds_no_one() -> None:
    together = log_of([100, 109], [99, 105])
    splits = {A: at(1, 99), B: at(1, 98)}

    def matters(log: SimulatedLog, splits: dict[Split, SplitState], drift: int | None = 10, **given: Any) -> bool:
        seen, policy = observation(log, newest={}), PlanPolicy(alignment=Alignment(max_drift=drift))
        return aligned_ends(splits, seen, backlog(log, splits, policy, newest={}, **given)).newest_matters

    assert not matters(together, splits)
    assert matters(together, splits, drift=9)
    # A split may turn out to be behind all others.
    assert matters(together, {A: at(1, 99), B: at(1)})
    assert matters(together, {A: at(1), B: at(1)})
    # Who is the slowest reads over a gap, and of two that are equally far it may be the other one.
    assert matters(log_of([99, 500], [99]), {A: at(1, 98), B: at(1, 98)})
    # The index cannot show.
    assert matters(log_of([5_000, 109], [99, 105]), splits)
    assert not matters(together, splits, drift=9, index=False)
    assert not matters(together, {A: at(1), B: at(1)}, index=False)
    assert not matters(together, {A: at(1), B: at(1)}, drift=None)
    assert not matters(together, {A: at(2), B: at(2)})


def test_drift_zero_lets_the_slowest_read_to_its_end() -> None:
    log, together = log_of([100, 200], [100, 199, 200, 201]), PlanPolicy(alignment=Alignment(max_drift=0))
    assert ends({A: at(0), B: at(0)}, log, together) == {A: 2, B: 3}
    # Without a time index in steps up to where the next is, and not a millisecond more.
    log = log_of(range(50_000), range(200))
    slowest = {A: at(100, 99, step=2_000), B: at(102, 101)}
    assert ends(slowest, log, together, index=False, newest={}) == {A: 2_100, B: 102}


def test_a_split_ahead_of_the_limit_is_held_where_it_is() -> None:
    log = log_of([100, 200], [900, 10, 20])
    assert ends({A: at(0), B: at(1, 899)}, log) == {A: 2, B: 1}


def test_a_split_behind_everybody_across_a_gap_reads_one_row() -> None:
    log = log_of([100, 200], [100, 5_000, 5_001])
    assert ends({A: at(0), B: at(1, 99)}, log) == {A: 2, B: 2}
    assert ends({A: at(0), B: at(0)}, log) == {A: 2, B: 2}


def test_a_split_within_the_drift_waits_before_a_gap() -> None:
    log = log_of([100, 200], [100, 199, 200, 5_000])
    assert ends({A: at(1, 99), B: at(2, 198)}, log, newest={A: 200, B: 5_000}) == {A: 2, B: 3}
    assert ends({A: at(1, 99), B: at(3, 199)}, log) == {A: 2, B: 3}


def test_a_split_that_a_row_of_this_batch_brings_within_the_drift_waits_before_a_gap() -> None:
    log = log_of([100, 200], [100, 200, 5_000])
    assert ends({A: at(1, 99), B: at(0)}, log) == {A: 2, B: 2}


def test_a_gap_is_crossed_also_when_an_event_already_passed_lies_within_the_drift() -> None:
    log = log_of([100, 200], [205, 100, 5_000])
    # What was read of B at 205 is not in its watermark, as after a start in the middle of the log.
    assert ends({A: at(0), B: at(2, 99)}, log) == {A: 2, B: 3}


def test_who_sets_the_limit_never_waits_for_itself() -> None:
    log = log_of([100, 9_000, 9_001], [100, 9_000])
    # Without the newest event times the limit is the lowest present watermark plus the drift.
    assert ends({A: at(1, 99), B: at(1, 100)}, log, newest={}) == {A: 2, B: 1}


def test_behind_an_event_of_the_future_a_split_goes_on_as_fast_as_event_time_went_before_it() -> None:
    """The index cannot distinguish rows that come behind one that is later; those before show how far a row leads."""
    drift, rows = 2_000, 1_000
    log = log_of([*range(rows), NOW + FAR, *range(rows, 20 * rows)], range(5 * rows, 40 * rows))
    policy = PlanPolicy(alignment=Alignment(max_drift=drift), max_future_skew=1_000)
    a = at(rows + 1, rows - 2)
    # Half the drift. The other's first row lies beyond a gap.
    assert ends({A: a, B: at(0)}, log, policy) == {A: rows + 1 + 1_001, B: 1}
    # Only its last rows show, be it one.
    long = log_of([*range(3 * rows), NOW + FAR, *range(3 * rows, 9 * rows)], range(3 * rows, 20 * rows))
    assert ends({A: at(3 * rows + 1, 3 * rows - 2), B: at(0)}, long, policy)[A] == 3 * rows + 1 + 1_002
    assert ends({A: at(1, 99), B: at(0)}, log_of([NOW + FAR, *range(100, 5_000)], range(5_000)), policy)[A] == 2
    # Later by what its ranges have reported.
    assert ends({A: at(6_002, 5_999, step=500), B: at(1_000, 5_999)}, log, policy)[A] == 6_502
    driver = Driver(log, policy)
    driver.now = NOW
    driver.run()
    steps = [t.step for batch in driver.batches for s, t in batch.after.splits.items() if s == A]
    assert max(step for step in steps if step) == 1_001
    assert all(t.step is None for batch in driver.batches for s, t in batch.after.splits.items() if s == B)
    for batch in driver.batches:
        slowest = min(t for s, t in batch.watermarks_after(policy).items() if t is not None)
        assert all(row.event_time <= slowest + drift + 1_000 for row in batch.rows.get(A, []) if row.event_time < NOW)


def test_a_split_in_which_nothing_is_known_but_the_future_goes_on_in_steps() -> None:
    size = BLIND_STEP + 5
    log = log_of([NOW + FAR, *range(101, 101 + size)], range(100, 100 + 3 * size))
    policy = PlanPolicy(alignment=Alignment(max_drift=10), max_future_skew=1_000)
    assert ends({A: at(1), B: at(0)}, log, policy) == {A: 1 + BLIND_STEP, B: 1}


def test_a_split_whose_newest_row_is_not_known_counts_with_its_first_row() -> None:
    """Its newest row is in an open transaction, or its broker is older than 3.0."""
    log = log_of([100, 28_800_000], range(28_700_000, 28_800_000, 1_000))
    splits = {A: at(0), B: at(0)}
    assert limit(splits, log, newest={B: Millis(28_799_000)}) == Limit(Millis(109), A)
    # One row each, over the gap.
    assert ends(splits, log, newest={B: Millis(28_799_000)}) == {A: 1, B: 1}


def test_a_split_that_begins_behind_its_newest_row_counts_with_the_rows_to_come() -> None:
    """A query may start behind it, as ``latest`` does where event times are out of order."""
    log = log_of([28_800_000, 100, 200], range(28_700_000, 28_800_000, 1_000))
    splits = {A: at(1), B: at(0)}
    assert limit(splits, log) == Limit(MIN, A)
    assert ends(splits, log) == {A: 3, B: 1}
    # As its first row has shown.
    assert limit({A: at(2, 100), B: at(0)}, log) == Limit(Millis(110), A)


def test_a_split_that_does_not_answer_holds_a_group_that_begins() -> None:
    log = log_of([100], range(28_700_000, 28_800_000, 1_000))
    splits = {A: at(0), B: at(1, 28_699_999)}
    there: dict[str, Any] = {"ends": {B: 100}, "newest": {B: Millis(28_799_000)}, "unknown": frozenset({A})}
    assert limit(splits, log, **there) == Limit(MIN, A)
    assert ends(splits, log, **there) == {B: 1}
    # Once it is idle it is not waited for.
    assert limit({**splits, A: at(0, status=SplitStatus.IDLE)}, log, **there) == Limit(Millis(28_799_009), B)


def test_rows_before_our_start_that_are_later_make_a_split_blind() -> None:
    log = log_of([5_000, 100, 150, 200], range(100, 1_000))
    seen = observation(log)
    splits = {A: at(1), B: at(1, 99)}
    found, planned, *_ = aligned_ends(splits, seen, backlog(log, splits, DRIFT_10))
    # Nothing is known of the rows that come next, and they are older than all of the others'.
    assert found == Limit(MIN, A)
    assert planned == {A: 4, B: 1}
    assert ends({A: at(2, 99), B: at(1, 99)}, log) == {A: 4, B: 11}


def test_without_a_time_index_the_limit_goes_by_what_was_read() -> None:
    log = log_of(range(100, 200), range(100, 300))
    assert ends({A: at(1, 99), B: at(51, 149)}, log, index=False, newest={}) == {A: 100, B: 51}


def test_without_a_time_index_a_range_spans_half_the_drift_by_what_was_learned() -> None:
    log = log_of(range(0, 80_000, 2), range(40_000))
    policy = PlanPolicy(alignment=Alignment(max_drift=4_000))
    learned = {A: at(5_000, 9_997, step=1_000), B: at(9_999, 9_997, step=2_000)}
    assert ends(learned, log, policy, index=False, newest={}) == {A: 6_000, B: 11_999}
    # Near the limit only so far as it goes; hardly before it not at all.
    far = {**learned, B: at(13_000, 12_998, step=2_000)}
    assert ends(far, log, policy, index=False, newest={}) == {A: 7_500, B: 14_000}
    assert ends({**learned, B: at(13_990, 13_990, step=2_000)}, log, policy, index=False, newest={})[B] == 13_990
    # No one is ahead of a split that is alone.
    assert ends({A: learned[A], B: at(40_000, 39_998)}, log, policy, index=False, newest={}, ends_are_final=True) == {
        A: 40_000
    }


def test_without_a_time_index_the_first_batch_is_a_step_of_each_split() -> None:
    log = log_of(range(2 * BLIND_STEP), range(5))
    assert ends({A: at(0), B: at(0)}, log, index=False, newest={}) == {A: BLIND_STEP, B: 5}


def test_without_a_time_index_the_first_batch_goes_by_a_first_look() -> None:
    """Half the drift in rows; a split that begins beyond the drift waits, and who is alone comes half a drift near."""
    log = log_of(range(0, 400_000, 2), range(100_000, 300_000), range(5))
    policy = PlanPolicy(alignment=Alignment(max_drift=60_000))
    looks = {A: FirstLook(Millis(0), 50_000, 100_000), B: FirstLook(Millis(100_000), 50_000, 50_000)}
    splits = {A: at(0), B: at(0)}
    assert ends(splits, log, policy, index=False, newest={}, looks=looks) == {A: 65_000, B: 0}
    near = {A: looks[A], B: FirstLook(Millis(40_000), 50_000, 50_000)}
    assert ends(splits, log, policy, index=False, newest={}, looks=near) == {A: 35_000, B: 20_000}
    # Who is not known may be the oldest of all: the others wait for its first rows.
    assert ends({**splits, C: at(0)}, log, policy, index=False, newest={}, looks=looks) == {A: 0, B: 0, C: 5}


def test_what_a_first_look_taught_is_kept_until_a_range_tells_better() -> None:
    log = log_of(range(0, 400_000, 2), range(0, 400_000, 2))
    policy = PlanPolicy(alignment=Alignment(max_drift=60_000))
    splits = {A: at(0), B: at(0)}
    seen = observation(log, newest={}, looks={s: FirstLook(Millis(0), 50_000, 100_000) for s in splits})
    first = plan(SourceState(splits=splits), seen, policy, None)
    assert {s: (t.position, t.step) for s, t in first.state.splits.items()} == dict.fromkeys(splits, (15_000, 15_000))
    summary = {s: RangeSummary(Millis(29_998)) for s in splits}
    second = plan(first.state, replace(observation(log, newest={}), seen=summary), policy, None)
    assert {s: (t.position, t.step) for s, t in second.state.splits.items()} == dict.fromkeys(splits, (30_000, 15_000))


class Large:
    """A log whose entries take ten positions each: the time index of it, and its ``RowIndex``."""

    def __init__(self, times: list[int]) -> None:
        self.times = times

    def first_after(self, limits: dict[Split, Millis]) -> dict[Split, IndexEntry | None]:
        found = {s: next((i for i, each in enumerate(self.times) if each > limits[s]), None) for s in limits}
        return {s: None if i is None else IndexEntry(10 * i, Millis(self.times[i]), size=10) for s, i in found.items()}

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        return min(wanted.start + 10 * rows, wanted.end)


def test_where_positions_are_not_rows_an_entry_is_read_whole() -> None:
    large = Large([100, 5_000, 5_001, 5_002])
    splits = {A: at(10, 99), B: at(0, 2_000)}

    def planned(index: Any, **changes: Any) -> dict[Split, int]:
        seen = observation(log_of([]), ends={A: 40, B: 0}, newest={A: Millis(5_002)}, **changes)
        return aligned_ends(splits, seen, backlog_of(splits, seen, DRIFT_10, index, large)).ends

    # The gap is crossed by the next entry.
    assert planned(large) == {A: 20}
    # What cannot be looked up continues in steps of rows.
    assert planned(None, max_rows=2) == {A: 30}


def test_steps_share_the_row_budget() -> None:
    log = log_of(range(100, 200), range(100, 300))
    assert ends({A: at(0), B: at(0)}, log, PlanPolicy(), index=False, newest={}, max_rows=20) == {A: 100, B: 200}
    found = backlog(log, {A: at(0), B: at(0)}, DRIFT_10, max_rows=20)
    assert found.blind_step == 10
    assert backlog(log, {A: at(0), B: at(0)}, DRIFT_10, max_rows=1).blind_step == 1
