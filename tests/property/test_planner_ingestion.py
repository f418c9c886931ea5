"""Ingestion watermarks: time continues while nothing is written, and no row is late that is written within the lag."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.examples_by_day import at_least
from tests.simulation.driver import Driver
from tests.simulation.log import SimulatedLog
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Ingestion
from watermark_source.planning.watermark import Millis

LAG, INTERVAL = 10_000, 1_000
POLICY = PlanPolicy(strategy=Ingestion(LAG), watermark_interval=INTERVAL)
steps = st.lists(
    st.tuples(st.sampled_from([0, 10, 700, 3_000, 20_000]), st.sets(st.integers(0, 2)), st.sampled_from([False, True])),
    max_size=30,
)
shifts = st.tuples(*[st.integers(-5_000, 5_000)] * 3)
"""By how much each partition's clock differs from the driver's."""


@at_least(60)
@given(steps, shifts, st.none() | st.integers(1, 3), st.none() | st.just(2_000))
def test_no_row_is_late_whose_clock_differs_by_less_than_the_lag(
    script: list[tuple[int, set[int], bool]], shift: tuple[int, int, int], max_rows: int | None, idle: int | None
) -> None:
    log = SimulatedLog(3)
    policy = PlanPolicy(strategy=Ingestion(LAG), watermark_interval=INTERVAL, idleness=Idleness(timeout=idle))
    driver = Driver(log, policy, max_rows=max_rows, dated=True)
    for wait, writes, killed in script:
        driver.now += wait
        for number in writes:
            log.splits[Split("log", number)].append([driver.now + shift[number]])
        if killed:
            driver.restart()
        driver.step()
    driver.run()
    sent = [batch.after.watermark for batch in driver.batches if batch.after.watermark is not None]
    assert sent == sorted(sent)
    if idle is None:
        # A partition that is left out as idle may bring rows behind the others, as with every strategy.
        for batch in driver.batches:
            passed = batch.after.watermark
            assert passed is None or all(row.event_time > passed for rows in batch.rows.values() for row in rows)


@given(st.integers(2, 5), st.integers(0, 3))
def test_silence_closes_what_was_open_with_one_batch_an_interval(rows: int, empty: int) -> None:
    log = SimulatedLog(1 + empty)
    driver = Driver(log, POLICY, dated=True)
    log.splits[Split("log", 0)].append([driver.now] * rows)
    driver.run()
    last_row, batches = driver.now, len(driver.batches)
    for _ in range(200):
        driver.now += 100
        driver.step()
    assert driver.state().watermark is not None
    reached = driver.state().watermark
    assert reached is not None
    assert reached >= last_row
    assert len(driver.batches) - batches <= 20_000 / INTERVAL
    assert driver.now - reached <= LAG + 2 * INTERVAL + 2


def test_a_partition_at_rest_does_not_hold_back_one_that_is_busy() -> None:
    log = SimulatedLog(2)
    driver = Driver(log, POLICY, dated=True)
    for _ in range(100):
        driver.now += 500
        log.splits[Split("log", 0)].append([driver.now])
        driver.step()
    assert driver.state().watermark == driver.now - LAG - 1


def test_a_partition_with_rows_in_an_open_transaction_waits_for_them() -> None:
    log = SimulatedLog(1)
    driver = Driver(log, POLICY, dated=True)
    log.splits[Split("log", 0)].append([driver.now])
    driver.run()
    before = driver.state()
    driver.now += 60_000
    seen = driver.observe()
    seen = replace(seen, history=replace(seen.history, rest=Millis(INTERVAL)))
    assert plan(before, seen, POLICY, None).state.watermark == driver.now - LAG - 1
    opened = replace(seen, logs=replace(seen.logs, uncommitted=frozenset(log.splits)))
    assert plan(before, opened, POLICY, None).state.watermark == before.watermark
