"""Looking ahead under hypothesis: what lies within the band when a batch is planned is never late for it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.ahead import SimulatedLookAhead
from tests.simulation.driver import Driver
from tests.simulation.histories import Action, actions, budgets, logs, perform
from tests.simulation.log import SimulatedLog
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.strategy import LookAhead
from watermark_source.planning.watermark import MIN

policies = st.builds(
    PlanPolicy,
    strategy=st.builds(LookAhead, rows_ahead=st.just(10), bound=st.sampled_from([0, 1, 500])),
    max_future_skew=st.none() | st.sampled_from([3_600_000, 100_000_000]),
    idleness=st.builds(Idleness, timeout=st.sampled_from([1, 1_000])),
    alignment=st.builds(Alignment, max_drift=st.none() | st.sampled_from([0, 1_000, 60_000])),
)
disordered = logs(disorder=600_000, noise=True)
bands = st.sampled_from([0, 1, 5, 1_000])


@given(disordered, policies, bands, st.integers(1, 10), st.booleans(), actions(6, disorder=600_000, transactions=True))
def test_no_row_of_the_band_becomes_late_by_a_watermark_that_went_out_with_the_batch_before_it(
    log: SimulatedLog, policy: PlanPolicy, band: int, max_rows: int, index: bool, script: Sequence[Action]
) -> None:
    """However disordered it is. A row that was late by an earlier watermark stays so; nothing ever regresses."""
    driver = Driver(log, policy, max_rows=max_rows, index=index, ahead=SimulatedLookAhead(log, band))
    for action in script:
        sent = len(driver.batches)
        perform(driver, action)
        _check_band(driver, band, since=sent)
    for _ in range(60):
        # Splits without rows turn idle, and hold nothing.
        driver.now += 1_001
        driver.step()
        _check_band(driver, band, since=len(driver.batches) - 1)
    watermarks = [MIN if b.after.watermark is None else b.after.watermark for b in driver.batches]
    assert watermarks == sorted(watermarks)


def _check_band(driver: Driver, band: int, *, since: int) -> None:
    """As the log is now, before anything else is written to it."""
    for batch in driver.batches[max(since, 0) :]:
        was = MIN if batch.before.watermark is None else batch.before.watermark
        now = MIN if batch.after.watermark is None else batch.after.watermark
        for split, at in batch.after.splits.items():
            end = batch.observation.logs.ends.get(split)
            if end is None or split not in driver.log.splits:
                continue
            behind = driver.log.rows(SplitRange(split, at.position, min(end, at.position + band)))
            assert not [row for row in behind if was < row.event_time <= now], split


@given(disordered, st.sampled_from([0, 1_000]), st.sampled_from([1, 1_000]), budgets)
def test_where_all_rows_are_looked_at_none_is_late(
    log: SimulatedLog, bound: int, idle: int, max_rows: int | None
) -> None:
    policy = PlanPolicy(strategy=LookAhead(rows_ahead=10, bound=bound), idleness=Idleness(timeout=idle))
    driver = Driver(log, policy, max_rows=max_rows, ahead=SimulatedLookAhead(log, 1_000_000))
    driver.run()
    for batch in driver.batches:
        late_at = MIN if batch.before.watermark is None else batch.before.watermark
        assert all(row.event_time > late_at for rows in batch.rows.values() for row in rows)


@given(logs(disorder=800), st.sampled_from([0, 500]), budgets, actions(disorder=800, transactions=True))
def test_without_a_band_the_watermark_is_that_of_the_bound(
    log: SimulatedLog, bound: int, max_rows: int | None, script: Sequence[Action]
) -> None:
    """Once a batch is read, and as the rows of it are looked at: one batch earlier than by the tasks' reports."""
    policy = PlanPolicy(strategy=LookAhead(rows_ahead=10, bound=bound))
    driver = Driver(log, policy, max_rows=max_rows, ahead=SimulatedLookAhead(log, 0))
    for action in script:
        perform(driver, action)
    driver.run()
    highest: dict[Split, int] = {}
    for batch in driver.batches:
        for split, rows in batch.rows.items():
            highest[split] = max([highest.get(split, MIN), *(row.event_time for row in rows)])
        known = [policy.strategy.watermark_of(highest.get(s, MIN)) for s in batch.after.splits]  # type: ignore[arg-type]
        assert (batch.after.watermark or MIN) <= min(known)
    final = driver.state()
    known = [MIN if t.watermark is None else t.watermark for t in final.splits.values()]
    assert (MIN if final.watermark is None else final.watermark) == min(known)
