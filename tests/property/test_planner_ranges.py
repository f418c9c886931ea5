"""Planned ranges under hypothesis: everything once and in order, no more than the budget, and runs that end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.driver import Batch, Driver
from tests.simulation.histories import Action, actions, budgets, logs, perform
from tests.simulation.log import Row, SimulatedLog
from watermark_source.planning import budget
from watermark_source.planning.planner import ranges_of
from watermark_source.planning.policy import Alignment, Idleness, MinimumRows, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.strategy import Bounded, ProcessingTime
from watermark_source.planning.watermark import MIN, Millis


@pytest.fixture(autouse=True, scope="module", params=[1, None])
def _sample(request: pytest.FixtureRequest) -> object:
    """A few splits are enough for a sample."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param is not None:
            patch.setattr(budget, "SAMPLE", request.param)
        yield


policies = st.builds(
    PlanPolicy,
    strategy=st.sampled_from([Bounded(0), Bounded(500), ProcessingTime()]),
    max_future_skew=st.none() | st.sampled_from([0, 3_600_000]),
    idleness=st.builds(Idleness, timeout=st.none() | st.sampled_from([1, 1_000, 30_000])),
    alignment=st.builds(Alignment, max_drift=st.none() | st.sampled_from([0, 1_000, 60_000])),
)


@given(logs(disorder=800, noise=True), policies, budgets, st.booleans(), actions(6, disorder=800, transactions=True))
def test_every_position_is_planned_once_and_in_order(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, script: list[Action]
) -> None:
    driver = Driver(log, policy, max_rows=max_rows, index=index)
    for action in script:
        perform(driver, action, adds_splits=True)
    driver.run()
    at: dict[Split, int] = {}
    for batch in driver.batches:
        for planned in ranges_of(batch.after):
            assert planned.start == at.get(planned.split, 0)
            at[planned.split] = planned.end
    assert all(end <= log.splits[s].end for s, end in at.items())
    read = {s: [row for batch in driver.batches for row in batch.rows.get(s, [])] for s in log.splits}
    assert read == {s: t.rows[: len(read[s])] for s, t in log.splits.items()}


@given(logs(disorder=800, noise=True), policies, budgets, st.booleans(), st.booleans())
def test_a_run_whose_ends_are_final_reads_everything_and_ends(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, killed: bool
) -> None:
    driver = Driver(log, policy, max_rows=max_rows, index=index, final=True)
    if killed:
        driver.step()
        driver.restart(final=True)
    size = sum(t.end for t in log.splits.values())
    driver.run(at_most=2 * size + 10)
    assert {s: t.position for s, t in driver.state().splits.items()} == log.ends()
    assert all(t.observed == t.position for t in driver.state().splits.values())


@given(logs(disorder=800, noise=True), policies)
def test_trigger_once_reads_everything_in_one_batch(log: SimulatedLog, policy: PlanPolicy) -> None:
    driver = Driver(log, policy, max_rows=1)
    driver.step(one_batch=True)
    assert {s: t.position for s, t in driver.state().splits.items()} == log.ends()


@given(logs(disorder=800, noise=True), policies, st.integers(1, 40), st.booleans(), actions(6, disorder=800))
def test_no_batch_is_over_budget(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int, index: bool, script: list[Action]
) -> None:
    driver = Driver(log, policy, max_rows=max_rows, index=index)
    for action in script:
        perform(driver, action, adds_splits=True)
    driver.run()
    assert all(sum(r.size for r in ranges_of(batch.after)) <= max_rows for batch in driver.batches)


@given(logs(disorder=800), st.integers(1, 40), st.sampled_from([0, 500]))
def test_the_budget_goes_to_the_oldest_event_times(log: SimulatedLog, max_rows: int, bound: int) -> None:
    """How far a batch reads into event time, in any split, everything older has been read in all of them.

    Except for the one row of each split that was behind all others and would have read none.
    """
    driver = Driver(log, PlanPolicy(strategy=Bounded(bound)), max_rows=max_rows)
    driver.run()
    for batch in driver.batches:
        out_of_turn = _out_of_turn(batch, log)
        reached = [_highest_by(log, s, end.end) for s, end in _read(batch).items() if s not in out_of_turn]
        unread = [t.position for t in batch.after.splits.values()]
        next_up = [
            _highest_by(log, s, nearest.position + 1)
            for s, t in batch.after.splits.items()
            if (nearest := _next_row(log, s, t.position)) is not None
        ]
        if reached and next_up:
            assert max(reached) <= min(next_up) + 1, unread


@given(logs(disorder=800), st.integers(1, 40))
def test_a_batch_uses_its_budget_while_there_are_rows(log: SimulatedLog, max_rows: int) -> None:
    driver = Driver(log, PlanPolicy(), max_rows=max_rows)
    driver.run()
    sizes = [sum(r.size for r in ranges_of(batch.after)) for batch in driver.batches]
    reading = [size for size in sizes if size]
    assert sum(reading) == sum(t.end for t in log.splits.values())
    assert all(size >= 0.8 * max_rows for size in reading[:-1])


def _read(batch: Batch) -> Mapping[Split, SplitRange]:
    return {r.split: r for r in ranges_of(batch.after)}


def _out_of_turn(batch: Batch, log: SimulatedLog) -> set[Split]:
    """Return the splits that read one row, and are the first in order of watermark as the plan found it."""
    read = _read(batch)
    behind = sorted(
        (MIN if t.watermark is None else t.watermark, s)
        for s, t in batch.after.splits.items()
        if t.observed < log.splits[s].end
    )
    return {s for _, s in takewhile(lambda each: each[1] in read and read[each[1]].size == 1, behind)}


def _next_row(log: SimulatedLog, split: Split, position: int) -> Row | None:
    return next(iter(log.splits[split].read(position, log.splits[split].end)), None)


def _highest_by(log: SimulatedLog, split: Split, end: int) -> int:
    return max((row.event_time for row in log.splits[split].read(0, end)), default=0)


@given(logs(disorder=800), policies, budgets, st.integers(1, 30), st.booleans(), actions(6, disorder=800))
def test_held_rows_are_read_once_there_are_enough_or_the_delay_is_over(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, least: int, index: bool, script: list[Action]
) -> None:
    delay = 60_000
    driver = Driver(
        log,
        replace(
            policy, alignment=replace(policy.alignment, max_drift=None), minimum_rows=MinimumRows(least, Millis(delay))
        ),
        max_rows=max_rows,
        index=index,
    )
    rows_at: int | None = None
    for action in script:
        perform(driver, action, adds_splits=True)
        rows_at = None
        driver.restart()
        for wait in (0, delay - 1, 1):
            driver.now += wait
            waiting = sum(driver.log.ends().values()) - sum(t.position for t in driver.state().splits.values())
            planned = driver.step()
            due = rows_at is None or waiting >= least or driver.now - rows_at >= delay
            assert planned.has_rows == (waiting > 0 and due)
            assert planned.waits_for_more == (waiting > 0 and not due)
            rows_at = driver.now if planned.has_rows else rows_at
