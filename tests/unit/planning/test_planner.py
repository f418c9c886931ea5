from __future__ import annotations

import sys
from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.ahead import SimulatedLookAhead
from tests.simulation.driver import START, Driver
from tests.simulation.histories import Outage, perform
from tests.simulation.log import SimulatedLog, SplitLog
from tests.unit.planning.example_states import NOW, A, B, at, log_of, observation, observed
from watermark_source.errors import DataLossError, OffsetError
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.planner import plan, ranges_of
from watermark_source.planning.policy import Alignment, Idleness, MinimumRows, OnLoss, PlanPolicy
from watermark_source.planning.split import NewestTime, Split, SplitRange
from watermark_source.planning.state import Epoch, SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Bounded, ProcessingTime
from watermark_source.planning.watermark import Millis


def test_the_watermark_follows_one_batch_after_its_rows() -> None:
    driver = Driver(log_of([100, 200], [300]), PlanPolicy(strategy=Bounded(10)))
    driver.step()
    assert driver.state().watermark is None
    driver.step()
    assert driver.state().watermark == 189
    assert not any(driver.batches[-1].rows.values())
    assert not driver.step().is_batch


def test_without_markers_a_watermark_alone_is_no_batch_and_goes_with_the_next_rows() -> None:
    driver = Driver(log_of([100, 200]), PlanPolicy(sends_markers=False))
    driver.step()
    assert not driver.step().is_batch
    driver.restart()
    assert not driver.step().is_batch
    driver.log.splits[A].append([300])
    assert driver.step().is_batch
    assert driver.batches[-1].after.watermark == 199
    assert [row.event_time for row in driver.batches[-1].rows[A]] == [300]


def test_a_silent_split_holds_the_watermark_until_it_is_idle() -> None:
    driver = Driver(log_of([100, 200], []), PlanPolicy(idleness=Idleness(timeout=1_000)))
    driver.run()
    assert driver.state().watermark is None
    driver.now += 1_001
    driver.step()
    assert driver.state().watermark == 199
    assert driver.state().splits[B].status is SplitStatus.IDLE


def test_a_split_whose_end_is_not_known_stays_as_it_is_and_holds_the_watermark() -> None:
    driver = Driver(log_of([100, 200], [100]), PlanPolicy(idleness=Idleness(timeout=1_000)))
    driver.run()
    driver.now += 1_001
    driver.log.splits[A].append([300])
    driver.step(unknown={B})
    driver.step(unknown={B})
    assert driver.state().splits[B].status is SplitStatus.ACTIVE
    assert driver.state().watermark == 99
    driver.run()
    # No one could write to it either: it has been quiet only since there was an answer.
    assert driver.state().splits[B].status is SplitStatus.ACTIVE
    driver.now += 1_001
    driver.run()
    assert driver.state().splits[B].status is SplitStatus.IDLE
    assert driver.state().watermark == 299
    driver.step(unknown={B})
    assert driver.state().splits[B].status is SplitStatus.IDLE


def test_what_was_read_moves_the_watermark_though_no_end_is_known_now() -> None:
    state = SourceState(splits={A: SplitState(1, 0)})
    seen = observed(NOW, {}, unknown=frozenset({A}), seen={A: RangeSummary(Millis(100))})
    assert plan(state, seen, PlanPolicy(), None).state.watermark == 99


def test_a_split_that_could_not_be_reached_between_two_plans_was_not_quiet() -> None:
    driver = Driver(log_of([100, 200], [100]), PlanPolicy(idleness=Idleness(timeout=1_000)))
    driver.run()
    # One long batch, in which no one could write to it.
    perform(driver, Outage(B.number, 5_000))
    driver.run()
    assert driver.state().splits[A].status is SplitStatus.IDLE
    assert driver.state().splits[B].status is SplitStatus.ACTIVE
    driver.now += 1_001
    driver.run()
    assert driver.state().splits[B].status is SplitStatus.IDLE
    perform(driver, Outage(B.number, 5_000))
    driver.run()
    assert driver.state().splits[B].status is SplitStatus.IDLE


def test_an_idle_split_whose_transaction_is_open_holds_its_group_from_that_plan_on() -> None:
    log = log_of([100, 700, 800], [100])
    log.splits[B].open([150])
    state = SourceState(splits={A: at(1, 99), B: at(1, 99, status=SplitStatus.IDLE, since=Millis(5))})
    for held, end in ((frozenset({B}), 1), (frozenset[Split](), 3)):
        planned = plan(
            state,
            observation(log, uncommitted=held),
            PlanPolicy(alignment=Alignment(max_drift=10), idleness=Idleness(timeout=1)),
            log,
        )
        assert planned.state.splits[A].position == end
    assert planned.state.splits[B].status is SplitStatus.IDLE


def test_a_new_split_does_not_take_the_watermark_back_and_holds_it() -> None:
    driver = Driver(log_of([100]), PlanPolicy())
    driver.run()
    driver.log.splits[B] = SplitLog()
    driver.log.splits[A].append([500])
    driver.run()
    assert driver.state().watermark == 99
    driver.log.splits[B].append([50, 300])
    driver.run()
    assert driver.state().watermark == 299


def test_every_process_sends_the_watermark_it_found() -> None:
    driver = Driver(log_of([100]), PlanPolicy())
    driver.run()
    driver.restart()
    assert driver.step().is_batch
    assert driver.batches[-1].after.watermark == 99
    assert driver.batches[-1].after.run == 2
    assert not driver.step().is_batch


def test_a_process_without_a_watermark_has_nothing_to_send() -> None:
    assert not Driver(SimulatedLog(1), PlanPolicy()).step().is_batch


def test_a_missing_observation_is_a_bug_that_shows() -> None:
    state = SourceState(splits={A: SplitState(5, 0)})
    with pytest.raises(KeyError):
        plan(state, observation(log_of(range(5))), PlanPolicy(), None)


def test_rows_beyond_the_future_cap_do_not_move_the_watermark() -> None:
    driver = Driver(log_of([START, START + 10_001, START + 9]), PlanPolicy(max_future_skew=10_000))
    driver.run()
    assert driver.state().watermark == START + 8
    assert driver.batches[0].after.future_cap == START + 10_000


def test_a_range_with_nothing_that_counts_leaves_the_watermark() -> None:
    driver = Driver(log_of([START + 10_001]), PlanPolicy(max_future_skew=0))
    assert driver.run() == 1
    assert driver.state().splits[A] == at(1, since=START)


def test_loss_is_an_error_and_without_fail_on_data_loss_a_batch_once() -> None:
    driver = Driver(log_of([100], [100]), PlanPolicy())
    driver.run()
    del driver.log.splits[B]
    with pytest.raises(DataLossError, match="log-1 is gone"):
        driver.step()
    driver.policy = replace(driver.policy, on_loss=OnLoss(fails=False))
    assert driver.step().losses[0].split == B
    assert driver.state().splits.keys() == {A}
    assert not driver.step().is_batch


def test_a_re_created_log_goes_on_at_its_end() -> None:
    driver = Driver(log_of(range(100, 110)), PlanPolicy(on_loss=OnLoss(fails=False)))
    driver.run()
    driver.log.splits[A] = SplitLog()
    driver.log.splits[A].append([1, 2])
    driver.run()
    assert driver.state().splits[A].position == 2
    assert driver.state().watermark == 108
    driver.log.splits[A].append([3])
    driver.step()
    assert ranges_of(driver.state()) == [SplitRange(A, 2, 3)]


@pytest.mark.parametrize(
    ("logs", "range_", "epoch"),
    [
        ({"ids": {"log": "new"}, "histories": {A: [Epoch(0, 0)]}}, (0, 9), Epoch(0, 0)),
        ({"ids": {"log": "old"}, "histories": {A: [Epoch(4, 2), Epoch(3, 0)]}}, (2, 9), Epoch(4, 2)),
        ({"ids": {"log": "old"}}, (5, 9), Epoch(3, 0)),
    ],
)
def test_the_id_and_the_epoch_in_the_offset_are_those_of_the_log_that_is_read_on(
    logs: dict[str, Any], range_: tuple[int, int], epoch: Epoch
) -> None:
    class Ahead(SimulatedLookAhead):
        forgotten: Set[Split] = frozenset()

        def forget(self, splits: Set[Split]) -> None:
            self.forgotten = splits

    before = SourceState({A: at(5, 100, epoch=Epoch(3, 0))}, Millis(100), ids={"log": "old"})
    policy, ahead = PlanPolicy(on_loss=OnLoss(fails=False)), Ahead(SimulatedLog(1), rows=1)
    found = plan(before, observed(NOW, {A: 9}, **logs), policy, None, ahead=ahead)
    assert ranges_of(found.state) == [SplitRange(A, *range_)]
    assert (found.state.ids, found.state.splits[A].epoch) == (logs["ids"], epoch)
    assert found.state.watermark == 100
    lost = range_[0] != before.splits[A].position
    assert (len(found.losses), ahead.forgotten) == (lost, {A} if lost else frozenset())


def test_rows_deleted_by_retention_are_skipped_in_one_step() -> None:
    driver = Driver(log_of(range(100, 200)), PlanPolicy(on_loss=OnLoss(fails=False)), max_rows=5)
    driver.step()
    driver.log.splits[A].expire(90)
    driver.step()
    assert [r.start for r in ranges_of(driver.state())] == [90]
    assert len(driver.losses) == 1
    driver.run()
    assert driver.state().splits[A].position == 100
    assert len(driver.losses) == 1


def test_a_held_split_is_paused_at_once_and_goes_on_by_itself() -> None:
    driver = Driver(log_of([100, 150], [100, 5_000, 5_001]), PlanPolicy(alignment=Alignment(max_drift=10)))
    driver.run()
    assert driver.state().splits[B].status is SplitStatus.PAUSED
    driver.log.splits[A].append([6_000])
    driver.run()
    assert driver.state().splits[B].status is SplitStatus.ACTIVE
    assert driver.state().splits[B].position == 3


def test_a_split_the_budget_leaves_out_is_not_paused() -> None:
    driver = Driver(log_of([1, 2, 3], [100]), PlanPolicy(), max_rows=1)
    driver.step()
    assert driver.state().splits[B] == at(0)


def test_processing_time_sends_the_clock_with_rows_and_ticks() -> None:
    driver = Driver(log_of([]), PlanPolicy(strategy=ProcessingTime(), watermark_interval=1_000))
    driver.step()
    assert driver.state().watermark == START - 1
    assert driver.state().use_processing_time
    driver.now += 999
    assert not driver.step().is_batch
    driver.log.splits[A].append([5])
    assert driver.step().is_batch
    assert driver.state().watermark == START + 998
    # From when that batch is done, and what Spark makes of it.
    for _ in range(2):
        driver.now += 5_000
        assert not driver.step().is_batch
    driver.now += 999
    assert not driver.step().is_batch
    driver.now += 1
    assert driver.step().is_batch


def test_processing_time_never_goes_back_to_event_time() -> None:
    state = SourceState(use_processing_time=True, watermark=Millis(5))
    with pytest.raises(OffsetError, match="processing-time"):
        plan(state, observation(SimulatedLog()), PlanPolicy(), None)


def test_event_time_may_go_over_to_processing_time_and_its_watermark_waits_for_the_clock() -> None:
    state = SourceState(watermark=Millis(NOW + 50))
    found = plan(
        state,
        observation(SimulatedLog()),
        PlanPolicy(strategy=ProcessingTime()),
        None,
        is_first=True,
    )
    assert found.state.watermark == NOW + 50
    assert found.state.use_processing_time


def test_event_times_of_the_future_do_not_become_the_clock() -> None:
    """Every row would be dated so, and no window would close until the clock has come there."""
    clock = PlanPolicy(strategy=ProcessingTime())
    ahead = SourceState(watermark=Millis(NOW + 60_001))
    with pytest.raises(OffsetError, match=r"2023-11-14 22:14:20\.001, is of event times .* clock, 2023-11-14 22:13:20"):
        plan(ahead, observation(SimulatedLog()), clock, None)
    # A clock that was set back does not change what time is.
    stands = replace(ahead, use_processing_time=True)
    assert plan(stands, observation(SimulatedLog()), clock, None).state.watermark == NOW + 60_001


def test_planning_costs_the_same_few_calls_a_split_however_many_there_are() -> None:
    """Calls are counted, since times on a machine that runs other tests prove nothing; `make bench` has the times."""
    few, many = (_calls(splits) / splits for splits in (1_000, 10_000))
    assert many < 1.01 * few
    assert many < 65


def _calls(count: int) -> int:
    """Return how many calls, of Python and of C, one plan of so many splits in a group makes."""

    class EndsFirst:
        def first_after(self, limits: dict[Split, Millis]) -> dict[Split, None]:
            return dict.fromkeys(limits)

    splits = {Split("log", n): SplitState(1_000, 900, Millis(NOW), SplitStatus.ACTIVE) for n in range(count)}
    seen = observed(
        NOW,
        dict.fromkeys(splits, 2_000),
        seen=dict.fromkeys(splits, RangeSummary(Millis(NOW + 5))),
        newest=dict.fromkeys(splits, NewestTime(Millis(NOW + 9), 1_999)),
    )
    policy = PlanPolicy(idleness=Idleness(timeout=30_000), alignment=Alignment(max_drift=10_000))
    state = SourceState(splits=splits, watermark=NOW)
    calls = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(None)  # what a coverage run calls is not the planner's
    sys.setprofile(counted)
    try:
        plan(state, seen, policy, EndsFirst())  # type: ignore[arg-type]
    finally:
        sys.setprofile(profiler)
        sys.settrace(tracer)
    return calls


def test_few_rows_wait_for_more_or_for_the_delay_and_the_watermark_does_not() -> None:
    driver = Driver(log_of([100]), PlanPolicy(minimum_rows=MinimumRows(rows=3, max_delay=Millis(1_000))))
    # The first rows of a process never wait.
    assert driver.step().has_rows
    driver.log.splits[A].append([200, 300])
    planned = driver.step()
    assert (planned.is_batch, planned.has_rows, planned.waits_for_more) == (True, False, True)
    assert driver.state().watermark == 99
    assert not driver.step().is_batch
    driver.log.splits[A].append([400])
    planned = driver.step()
    assert (planned.has_rows, planned.waits_for_more) == (True, False)
    driver.log.splits[A].append([500])
    driver.step()
    driver.now += 999
    assert not driver.step().has_rows
    driver.now += 1
    assert driver.step().has_rows


def test_with_nothing_to_read_nothing_waits_for_more() -> None:
    driver = Driver(log_of([100]), PlanPolicy(minimum_rows=MinimumRows(rows=3, max_delay=Millis(1_000))))
    driver.step()
    assert not driver.step().waits_for_more


@pytest.mark.parametrize("final", [True, False])
def test_a_run_that_has_its_end_waits_for_nothing(final: bool) -> None:
    driver = Driver(
        log_of([100, 200, 300]), PlanPolicy(minimum_rows=MinimumRows(3, Millis(1_000))), max_rows=1, final=final
    )
    assert driver.step().has_rows
    assert driver.step(one_batch=not final).has_rows
