"""A stream that ends, under hypothesis: the end of time comes behind all rows, whatever process is killed, and when."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.driver import START, Driver
from tests.simulation.histories import Action, Kill, KillPlanning, actions, budgets, close_all, logs, perform
from tests.simulation.log import SimulatedLog
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import MAX

policies = st.builds(
    PlanPolicy,
    strategy=st.builds(Bounded, st.sampled_from([0, 500])),
    max_future_skew=st.none() | st.just(3_600_000),
    idleness=st.builds(Idleness, timeout=st.none() | st.sampled_from([1, 30_000])),
    alignment=st.builds(Alignment, max_drift=st.none() | st.sampled_from([0, 60_000])),
)


@given(
    logs(disorder=800, noise=True),
    policies,
    budgets,
    st.booleans(),
    actions(6, disorder=800, transactions=True),
    st.lists(st.sampled_from(["step", "kill", "kill planning"])),
)
def test_a_stream_that_ends_reports_the_end_of_time_once_behind_all_of_its_rows(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, script: list[Action], runs: list[str]
) -> None:
    driver = Driver(log, policy, max_rows=max_rows, index=index)
    for action in script:
        perform(driver, action, adds_splits=True)
    close_all(log)
    ends = log.ends()
    driver.policy = replace(policy, final_watermark=True)
    driver.restart(final=True)
    for what in runs:
        if what == "step":
            driver.step()
        else:
            perform(driver, Kill() if what == "kill" else KillPlanning())
            driver.restart(final=True)
    driver.run()
    state = driver.state()
    assert state.ended
    assert state.watermark == MAX
    assert {s: t.position for s, t in state.splits.items()} == ends
    read = {s: [row for batch in driver.batches for row in batch.rows.get(s, [])] for s in log.splits}
    assert read == {s: t.rows for s, t in log.splits.items()}
    last = [batch for batch in driver.batches if batch.after.watermark == MAX]
    # Then once from each process, of which another source of the query may still be read.
    assert [batch.after.ended for batch in last] == [False] + [True] * (len(last) - 1)
    reported = [batch.after.run for batch in last[1:]]
    assert reported == sorted(set(reported))
    assert reported
    assert not any(any(batch.rows.values()) for batch in last)
    # What comes now is of no run.
    for split in log.splits.values():
        split.append([START])
    driver.restart(final=True)
    assert [driver.step().is_batch for _ in range(2)] == [True, False]
    assert not any(driver.batches[-1].rows.values())
