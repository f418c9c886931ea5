"""When nothing happens, under hypothesis: no batch for nothing, idleness that is true, clocks that tick calmly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.driver import START, Driver
from tests.simulation.histories import Action, Append, actions, budgets, logs, perform
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.planning.policy import Alignment, Idleness, OnLoss, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.strategy import Bounded, Percentile, ProcessingTime
from watermark_source.planning.watermark import MIN

policies = st.builds(
    PlanPolicy,
    strategy=st.builds(Bounded, st.sampled_from([0, 500])),
    max_future_skew=st.none() | st.just(3_600_000),
    idleness=st.builds(Idleness, timeout=st.none() | st.sampled_from([1, 1_000, 30_000])),
    alignment=st.builds(Alignment, max_drift=st.none() | st.sampled_from([0, 1_000, 60_000])),
    on_loss=st.builds(OnLoss, fails=st.just(False)),
)


@given(
    logs(disorder=800, noise=True),
    policies,
    budgets,
    st.booleans(),
    actions(6, disorder=800, transactions=True),
    st.data(),
)
def test_nothing_new_means_no_batch_for_ever(
    log: SimulatedLog,
    policy: PlanPolicy,
    max_rows: int | None,
    index: bool,
    script: Sequence[Action],
    data: st.DataObject,
) -> None:
    """With idle and paused splits, after losses too; time continues, the log does not."""
    driver = Driver(log, policy, max_rows=max_rows, index=index)
    for action in script:
        perform(driver, action, adds_splits=True)
    for split in data.draw(st.sets(st.sampled_from(sorted(log.splits)))):
        harm = data.draw(st.sampled_from(["delete", "recreate", "expire"]))
        if harm == "delete":
            del log.splits[split]
        elif harm == "recreate":
            log.splits[split] = SplitLog()
            log.splits[split].append([START] * data.draw(st.integers(0, 3)))
        else:
            log.splits[split].expire(data.draw(st.integers(0, log.splits[split].end)))
    # An idle split may let the group continue, and the next one turns idle later: one timeout each.
    for _ in range(len(log.splits) + 2):
        driver.run(at_most=500)
        driver.now += 60_000
    driver.run(at_most=500)
    for _ in range(5):
        assert not driver.step().is_batch
        driver.now += 60_000


@given(
    logs(),
    st.integers(1, 5_000),
    st.lists(st.tuples(st.sampled_from(["wait", "away", "unanswered"]), st.integers(0, 3), st.integers(1, 6_000))),
)
def test_a_split_is_idle_only_after_it_has_answered_for_the_timeout(
    log: SimulatedLog, timeout: int, script: list[tuple[str, int, int]]
) -> None:
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=timeout)))
    driver.run()
    quiet_since, idle = dict.fromkeys(log.splits, START), set[Split]()
    for what, number, millis in script:
        split = Split("log", number)
        if what == "away":
            driver.be_away(split, millis)
        else:
            driver.now += millis
        driver.step(unknown={split} if what == "unanswered" else frozenset())
        if what == "unanswered":
            driver.step()
        if what != "wait":
            quiet_since[split] = driver.now
        idle |= {s for s in log.splits if driver.now - quiet_since[s] > timeout}
        assert {s for s, t in driver.state().splits.items() if t.status is SplitStatus.IDLE} == idle


@given(logs(), st.integers(1, 5_000), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6_000)), max_size=12))
def test_idleness_works_across_available_now_runs(
    log: SimulatedLog, timeout: int, arrivals: list[tuple[int, int]]
) -> None:
    """Every run is a new process; idle is what two runs further apart than the timeout found nothing more in."""
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=timeout)), final=True)
    driver.run()
    last_row = dict.fromkeys(log.splits, START)
    for number, wait in arrivals:
        driver.now += wait
        perform(driver, Append(number, (driver.now,)))
        last_row.update({s: driver.now for s in log.splits if s == Split("log", number)})
        driver.restart(final=True)
        driver.run()
        for split, state in driver.state().splits.items():
            if state.status is SplitStatus.IDLE:
                assert driver.now - last_row[split] > timeout
    driver.now += timeout + 1
    for _ in range(3):
        driver.restart(final=True)
        driver.run()
        driver.now += timeout + 1
    if driver.batches and driver.state().watermark is not None:
        assert all(t.status is SplitStatus.IDLE for t in driver.state().splits.values())


@given(logs(), st.integers(1, 5_000), st.integers(0, 100_000))
def test_the_time_a_run_spends_reading_is_no_quiet_time(log: SimulatedLog, timeout: int, spent: int) -> None:
    """Rows that came after a run had fixed its ends are unknown to it, so its own time makes no split idle."""
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=timeout)), max_rows=1, final=True)
    while driver.step().is_batch:
        driver.now += spent
        assert all(t.status is SplitStatus.ACTIVE for t in driver.state().splits.values())


@given(logs(), st.integers(1, 5_000), st.booleans())
def test_idleness_survives_a_restart_and_ends_before_the_rows(log: SimulatedLog, timeout: int, killed: bool) -> None:
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=timeout)))
    driver.run()
    driver.now += timeout + 1
    driver.run()
    assert all(t.status is SplitStatus.IDLE for t in driver.state().splits.values())
    if killed:
        driver.restart()
        driver.run()
    idle = next(iter(log.splits))
    assert driver.state().splits[idle].status is SplitStatus.IDLE
    before = driver.state().watermark
    log.splits[idle].append([START + 10**9])
    driver.step()
    assert driver.batches[-1].after.splits[idle].status is SplitStatus.ACTIVE
    assert driver.batches[-1].rows[idle]
    assert driver.state().watermark == before


@given(st.lists(st.tuples(st.integers(0, 700), st.booleans(), st.sampled_from([0, 0, 0, -5_000, 5_000])), max_size=30))
def test_a_processing_time_watermark_is_the_clock_and_ticks_at_most_once_an_interval(
    script: list[tuple[int, bool, int]],
) -> None:
    """The clock may be set back."""
    log = SimulatedLog(2)
    driver = Driver(log, PlanPolicy(strategy=ProcessingTime(), watermark_interval=1_000))
    for wait, rows, shift in script:
        driver.now += wait
        if rows:
            log.splits[Split("log", 0)].append([5])
        if shift:
            driver.now += shift
            driver.restart()
        driver.step()
    clocks = [START - 1, *(batch.observation.now - 1 for batch in driver.batches)]
    sent = [batch.after.watermark for batch in driver.batches]
    assert all(batch.after.use_processing_time for batch in driver.batches)
    assert sent == [max(clocks[1 : n + 2]) for n in range(len(sent))]
    runs = [batch.after.run for batch in driver.batches]
    for n, batch in enumerate(driver.batches[1:], start=1):
        if not any(batch.rows.values()) and runs[n] == runs[n - 1]:
            assert batch.observation.now - 1 - (sent[n - 1] or 0) >= 1_000


@given(st.integers(0, 100_000), st.lists(st.integers(0, 5_000), max_size=10))
def test_a_processing_time_run_whose_ends_are_final_does_not_tick(first: int, waits: list[int]) -> None:
    driver = Driver(SimulatedLog(1), PlanPolicy(strategy=ProcessingTime()), final=True)
    driver.now += first
    assert driver.step().is_batch
    for wait in waits:
        driver.now += wait
        assert not driver.step().is_batch


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.sets(st.integers(0, 1)), st.booleans()), max_size=30),
    st.none() | st.integers(1, 3),
)
def test_a_log_that_dates_its_rows_tells_the_time_while_it_is_quiet_and_makes_none_late(
    script: list[tuple[int, set[int], bool]], max_rows: int | None
) -> None:
    log = SimulatedLog(2)
    driver = Driver(log, PlanPolicy(watermark_interval=1_000), max_rows=max_rows, dated=True)
    for wait, writes, killed in script:
        driver.now += wait
        for number in writes:
            log.splits[Split("log", number)].append([driver.now])
        if killed:
            driver.restart()
        planned = driver.step()
        state = planned.state
        if planned.has_rows and all(t.observed < t.position == log.splits[s].end for s, t in state.splits.items()):
            assert state.watermark == driver.now - 1, "what is read to the end is told of with its rows"
    driver.run()
    driver.step()
    driver.now += 2_001
    assert driver.run() == 1
    assert driver.state().watermark == driver.now - 1
    for batch in driver.batches:
        # Spark applies a batch's watermark to the next one.
        sent = batch.before.watermark
        assert sent is None or all(row.event_time > sent for rows in batch.rows.values() for row in rows)
    # However long a batch takes, a pause follows it.
    before = len(driver.batches)
    for _ in range(6):
        while not driver.step().is_batch:
            driver.now += 300
        # And a batch of Spark's own for what the watermark closed.
        for _ in range(2):
            driver.now += 5_000
            assert not driver.step().is_batch
    assert len(driver.batches) - before == 6


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 3))
def test_a_run_that_ends_tells_the_time_at_which_its_ends_were_fixed(quiet: int, spent: int, rows: int) -> None:
    log = SimulatedLog(1)
    log.splits[Split("log", 0)].append([START] * rows)
    driver = Driver(log, PlanPolicy(watermark_interval=1_000), max_rows=1, dated=True)
    driver.now += quiet
    driver.restart(final=True)
    while driver.step().is_batch:
        driver.now += spent
    # The batch that reads up to these ends carries it.
    assert len(driver.batches) == rows
    assert driver.state().watermark == START - 1 + quiet


def _busy_and_quiet() -> tuple[SimulatedLog, Split, Split]:
    log, busy, quiet = SimulatedLog(), Split("t", 0), Split("t", 1)
    log.splits.update({busy: SplitLog(), quiet: SplitLog()})
    _append(log, busy, 0)
    _append(log, quiet, 0)
    return log, busy, quiet


def _rest_beside(driver: Driver, busy: Split) -> None:
    """Let nothing come for 19 seconds but a row a second of one split."""
    driver.run()
    for second in range(1, 20):
        driver.now += 1_000
        _append(driver.log, busy, 1_000 * second)
        driver.run()


def _append(log: SimulatedLog, split: Split, millis: int) -> None:
    log.splits[split].append([START + millis])


@pytest.mark.parametrize(("passes", "advances"), [(True, True), (False, False)])
def test_a_split_that_comes_back_behind_is_waited_for_or_not_as_the_user_says(passes: bool, advances: bool) -> None:
    log, busy, back = _busy_and_quiet()
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=1_000, passes_returning=passes)), max_rows=4)
    _rest_beside(driver, busy)
    before = driver.state().watermark or MIN
    assert driver.state().splits[back].status is SplitStatus.IDLE
    # Old rows, more than a batch takes, beside new ones.
    for old in range(40):
        _append(log, back, 100 + old)
    sent: list[int] = []
    for second in range(20, 28):
        _append(log, busy, 1_000 * second)
        driver.step()
        sent.append(driver.state().watermark or MIN)
    assert driver.state().splits[back].status is SplitStatus.ACTIVE
    assert (sent[-1] > before) is advances
    # It has caught up, and counts again.
    _append(log, back, 27_500)
    driver.run()
    _append(log, busy, 60_000)
    driver.run()
    assert driver.state().watermark == START + 27_500 - 1


def test_a_split_that_is_passed_when_behind_is_waited_for_while_its_first_transaction_is_open() -> None:
    """Also after one that was aborted, which shows nothing of how far behind it is."""
    log, busy, back = _busy_and_quiet()
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=1_000, passes_returning=True)))
    _rest_beside(driver, busy)
    for commits in (False, True):
        log.splits[back].open([START + 19_500])
        for second in range(20, 25):
            driver.now += 400
            _append(log, busy, 1_000 * second)
            driver.run()
        assert driver.state().watermark == START + 19_000 - 1
        log.splits[back].close(commits=commits)
        driver.step()
    driver.run()
    assert driver.state().watermark == START + 19_500 - 1


def test_rows_of_now_that_a_split_comes_back_with_are_on_time_though_it_is_not_waited_for_when_behind() -> None:
    log, busy, back = _busy_and_quiet()
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=1_000, passes_returning=True)))
    _rest_beside(driver, busy)
    for second in range(20, 30):
        # It comes a little later than the others' rows of that second, and is read a batch after them.
        _append(log, busy, 1_000 * second + 900)
        driver.step()
        _append(log, back, 1_000 * second + 901)
        driver.step()
    late = [
        row
        for batch in driver.batches
        for row in batch.rows.get(back, ())
        if batch.before.watermark is not None and START < row.event_time <= batch.before.watermark
    ]
    assert late == []


def test_a_larger_bound_in_a_new_process_makes_no_split_one_that_came_back() -> None:
    """Its watermark is behind the one that its rows lead to by the old bound."""
    log, ahead, behind = _busy_and_quiet()
    driver = Driver(log, PlanPolicy(idleness=Idleness(timeout=1_000, passes_returning=True)), previews=True)
    driver.run()
    _append(log, ahead, 20_000)
    _append(log, behind, 10_000)
    driver.step()
    assert driver.state().watermark == START + 10_000 - 1
    driver.policy = replace(driver.policy, strategy=Bounded(5_000))
    driver.restart()
    _append(log, ahead, 20_001)
    _append(log, behind, 10_001)
    driver.step()
    assert driver.state().watermark == START + 10_000 - 1
    _append(log, behind, 16_000)
    driver.run()
    assert driver.state().watermark == START + 16_000 - 5_000 - 1


def test_a_learned_bound_that_grows_makes_no_split_one_that_came_back() -> None:
    log, ahead, behind = _busy_and_quiet()
    learns = Percentile(on_time=500_000, rows=40, most=60_000)
    driver = Driver(
        log,
        PlanPolicy(strategy=learns, idleness=Idleness(timeout=1_000, passes_returning=True)),
        previews=True,
    )
    for millis in range(1, 41):
        _append(log, ahead, millis)
        _append(log, behind, millis)
    driver.run()
    for millis in (20_000, *[15_000] * 200, 20_000):
        _append(log, ahead, millis)
    _append(log, behind, 10_000)
    driver.step()
    announced = driver.state().watermark
    assert announced == START + 10_000 - 2
    _append(log, behind, 10_001)
    driver.step()
    learned = driver.state().learned
    assert learned is not None
    assert learned.bound >= 5_000
    assert driver.state().watermark == announced


FUTURE = 10**9
"""Milliseconds after the beginning: with ``maxFutureSkew`` such a row has no event time that counts."""


def _undated(timeout: int | None = 3_000, **given: Any) -> tuple[Driver, Split, Split]:
    log, busy, undated = SimulatedLog(), Split("t", 0), Split("t", 1)
    log.splits.update({busy: SplitLog(), undated: SplitLog()})
    policy = PlanPolicy(max_future_skew=3_600_000, idleness=Idleness(timeout=timeout))
    return Driver(log, policy, **given), busy, undated


def _run(driver: Driver, busy: Split, undated: Split, seconds: range, *, rows: int = 1) -> None:
    """Each plan finds rows of both."""
    for second in seconds:
        driver.now += 1_000
        _append(driver.log, busy, 1_000 * second)
        for _ in range(rows):
            _append(driver.log, undated, FUTURE)
        driver.step()


@pytest.mark.parametrize("began_dated", [False, True])
def test_a_split_with_nothing_but_rows_without_an_event_time_turns_idle_while_they_come(began_dated: bool) -> None:
    driver, busy, undated = _undated()
    if began_dated:
        _append(driver.log, undated, 0)
        driver.step()
    _run(driver, busy, undated, range(1, 4))
    assert driver.state().splits[undated].status is SplitStatus.ACTIVE
    assert driver.state().watermark == (START - 1 if began_dated else None)
    _run(driver, busy, undated, range(4, 12))
    assert driver.state().splits[undated].status is SplitStatus.IDLE
    assert driver.state().watermark == START + 10_000 - 1
    # Across a restart it holds the watermark until it has been read to its end once more.
    driver.restart()
    _run(driver, busy, undated, range(12, 16))
    assert driver.state().watermark == START + 14_000 - 1
    # A row with an event time makes it active, and it is waited for.
    _append(driver.log, undated, 15_500)
    _run(driver, busy, undated, range(16, 18))
    assert driver.state().splits[undated].status is SplitStatus.ACTIVE
    assert driver.state().watermark == START + 15_500 - 1


def test_without_a_timeout_or_unless_it_is_read_to_its_end_a_split_of_such_rows_is_never_idle() -> None:
    for driver, busy, undated in (_undated(None), _undated(max_rows=3)):
        _run(driver, busy, undated, range(1, 30), rows=4)
        assert all(batch.after.splits[undated].status is SplitStatus.ACTIVE for batch in driver.batches)
        assert driver.state().watermark is None


def test_an_outage_between_rows_without_an_event_time_is_no_quiet_time() -> None:
    driver, busy, undated = _undated()
    _run(driver, busy, undated, range(1, 4))
    driver.be_away(undated, 60_000)
    _run(driver, busy, undated, range(64, 67))
    assert driver.state().splits[undated].status is SplitStatus.ACTIVE


def test_rows_after_a_long_batch_make_an_ordinary_split_no_idle_one() -> None:
    """It was quiet for less than its timeout when the batch began; what came since may have any time."""
    driver, busy, other = _undated()
    _append(driver.log, other, 0)
    driver.run()
    driver.now += 60_000
    _append(driver.log, busy, 60_000)
    _append(driver.log, other, 59_000)
    driver.step()
    assert driver.state().splits[other].status is SplitStatus.ACTIVE
    driver.run()
    assert driver.state().watermark == START + 59_000 - 1
