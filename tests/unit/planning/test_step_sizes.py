from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.driver import START, Driver
from tests.simulation.log import Row, SimulatedLog
from tests.unit.planning.example_states import at
from watermark_source.planning.backlog import (
    BLIND_STEP,
    GROWTH,
    LEAST_STEP,
    MOST_STEP,
    learned_step,
    rows_up_to,
    step_span,
    with_step,
)
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import Millis

DAY = 86_400_000


def test_a_range_tells_how_many_rows_span_half_the_drift() -> None:
    assert learned_step(None, rows=10_000, advanced=20_000, drift=60_000) == 15_000
    assert learned_step(15_000, rows=15_000, advanced=60_000, drift=60_000) == 7_500


def test_one_range_changes_a_step_only_so_far() -> None:
    assert learned_step(10_000, rows=10_000, advanced=1, drift=60_000) == GROWTH * 10_000
    assert learned_step(16_000, rows=16_000, advanced=10**9, drift=60_000) == 16_000 // GROWTH
    assert learned_step(10_000, rows=10_000, advanced=0, drift=60_000) == GROWTH * 10_000
    assert learned_step(MOST_STEP, rows=MOST_STEP, advanced=0, drift=60_000) == MOST_STEP
    assert learned_step(None, rows=1, advanced=10**9, drift=0) == 1
    assert [step_span(drift) for drift in (0, 3, 4)] == [1, 1, 2]


def test_a_few_rows_report_nothing_but_when_they_lead_far() -> None:
    assert learned_step(100_000, rows=10, advanced=1, drift=60_000) == 100_000
    assert learned_step(100_000, rows=10, advanced=60_000, drift=60_000) == 100_000 // GROWTH
    assert learned_step(100_000, rows=10, advanced=30_000 // GROWTH, drift=60_000) == 100_000 // GROWTH
    assert learned_step(10 * GROWTH, rows=10, advanced=1, drift=60_000) == 10 * GROWTH * GROWTH


def test_a_split_learns_from_a_range_between_two_watermarks() -> None:
    def step(before: SplitState, watermark: int | None, drift: int | None = 60_000) -> int | None:
        return with_step(at(before.position, watermark, step=before.step), before, drift).step

    assert step(SplitState(10_000, 0, Millis(100)), 20_100) == 15_000
    assert step(SplitState(10_000, 0, Millis(100), step=700), None) == 700
    assert step(SplitState(10_000, 0, step=700), 20_100) == 700
    assert step(SplitState(10_000, 0), 20_100) is None
    # The highest event time before it is not known, as after another strategy: the watermarks give it then.
    before = SplitState(10_000, 0, Millis(100))
    assert with_step(replace(at(10_000, 20_100), highest=Millis(30_100)), before, 60_000).step == 15_000
    # Without a range nothing is learned, and without a drift nothing kept.
    assert step(at(10_000, 100, step=700), 20_100) == 700
    assert step(SplitState(10_000, 0, Millis(100), step=700), 20_100, drift=None) is None


def test_a_step_goes_as_far_as_its_limit() -> None:
    def rows(watermark: int, limit: int, drift: int = 60_000) -> int:
        return rows_up_to(30_000, Millis(watermark), Millis(limit), drift)

    assert rows(0, 60_000) == 30_000
    assert rows(0, 45_000) == 30_000
    assert rows(0, 15_000) == 15_000
    # No fewer than a batch is worth.
    assert rows_up_to(30, Millis(0), Millis(60_000), 60_000) == LEAST_STEP
    # Hardly anything.
    assert rows(0, 3_000) == 0
    # Far behind: to half a drift before it, as far as a step can be trusted.
    assert rows(0, 150_000) == 120_000
    assert rows(0, 10**9) == GROWTH * 30_000


def test_without_a_drift_whoever_is_slowest_goes_on() -> None:
    assert rows_up_to(1_000, Millis(5), Millis(5), 0) >= 1
    assert rows_up_to(1_000, Millis(5), Millis(6), 1) >= 1


@pytest.mark.parametrize("disorder", [0, 500])
@pytest.mark.parametrize("max_rows", [None, 4_000])
@pytest.mark.parametrize("apart", [(10, 10), (10, 100), (5, 40, 300)])
def test_ranges_come_to_span_half_the_drift(apart: tuple[int, ...], max_rows: int | None, disorder: int) -> None:
    log, rows, drift, chance = SimulatedLog(len(apart)), 60_000, 60_000, np.random.default_rng(1)
    for each, found in zip(apart, log.splits.values(), strict=True):
        found.append((START + np.arange(rows) * each - chance.integers(0, disorder + 1, rows)).tolist())
    policy = PlanPolicy(alignment=Alignment(max_drift=drift), strategy=Bounded(disorder))
    driver = Driver(log, policy, max_rows=max_rows, index=False, final=True)
    driver.run()
    assert {s: t.position for s, t in driver.state().splits.items()} == log.ends()
    reached: dict[Split, int] = {}
    checked = 0
    for batch in driver.batches:
        before = dict(reached)
        for split, read in batch.rows.items():
            reached[split] = max([reached.get(split, 0), *(row.event_time for row in read)])
        active = [reached[s] for s, t in batch.after.splits.items() if t.position < log.splits[s].end]
        for split in batch.rows if len(active) > 1 and len(before) == len(apart) else ():
            span, ahead = reached[split] - before[split], reached[split] - min(active)
            assert ahead <= drift + span
            if batch.after.splits[split].step is not None:
                checked += 1
                # Further only from far behind, and not beyond the middle.
                error = disorder + apart[split.number]
                assert span <= max(drift // 2, 1_000 * apart[split.number]) + error or ahead <= drift // 2 + error
    assert checked


def test_a_range_teaches_its_event_time_though_a_bound_that_grows_holds_the_watermark() -> None:
    learning = SplitState(10_000, 0, Millis(START), highest=Millis(START + 1_001))
    read = replace(learning, observed=10_000, highest=Millis(START + 1_001 + 20_000))
    assert with_step(read, learning, 60_000).step == learned_step(None, rows=10_000, advanced=20_000, drift=60_000)


def behind_a_later_row(others: int, start: int) -> Driver:
    """A query on hours of a row a second, whose first split begins far behind a row that is later than all."""
    log = SimulatedLog(1 + others)
    for number, split in enumerate(log.splits.values()):
        split.append(range(START, START + 60_000_000, 1_000))
        if number:
            split.expire(start)
        else:
            split.rows[0] = Row(0, START + DAY)
    starts = dict.fromkeys(log.splits, start)
    return Driver(log, PlanPolicy(alignment=Alignment(max_drift=60_000)), starts=starts)


def test_a_row_that_is_later_and_was_passed_tells_nothing_of_a_step() -> None:
    driver = behind_a_later_row(others=1, start=20_000)
    for _ in range(8):
        driver.step()
    sizes = [len(read) for batch in driver.batches if (read := batch.rows.get(Split("log", 0)))]
    assert max(sizes) == BLIND_STEP
    # Half a drift.
    assert sizes[-1] == 30


def test_a_split_that_no_other_waits_for_is_read_at_full_speed_behind_a_later_row() -> None:
    driver = behind_a_later_row(others=0, start=1_000)
    assert driver.run() == 3
    assert sum(len(batch.rows.get(Split("log", 0), ())) for batch in driver.batches) == 59_000
