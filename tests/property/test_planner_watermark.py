"""The combined watermark under hypothesis: it never regresses, survives every kill, and makes no row late."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.driver import START, Batch, Driver, watermark_after
from tests.simulation.histories import Action, Kill, KillPlanning, Step, actions, budgets, logs, perform
from tests.simulation.log import Row, SimulatedLog
from tests.unit.planning.median_of_ranges import MedianOfRanges
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermarks import combined
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.strategy import Bounded, Percentile, Punctuated, WatermarkStrategy
from watermark_source.planning.watermark import MIN

_BOOLEANS = st.booleans()
percentiles = st.builds(Percentile, st.sampled_from([500_000, 750_000]), st.just(80), st.just(700))
"""Learned from 20 or 40 rows on."""
strategies = st.builds(Bounded, st.sampled_from([0, 1, 500])) | percentiles | st.just(MedianOfRanges())
event_time_policies = st.builds(
    PlanPolicy,
    strategy=strategies,
    max_future_skew=st.none() | st.sampled_from([0, 3_600_000, 100_000_000]),
    idleness=st.builds(Idleness, timeout=st.none() | st.sampled_from([1, 1_000, 30_000]), passes_returning=_BOOLEANS),
    alignment=st.builds(Alignment, max_drift=st.none() | st.sampled_from([0, 1, 1_000, 60_000])),
)


@given(
    logs(disorder=800, noise=True),
    event_time_policies,
    budgets,
    _BOOLEANS,
    _BOOLEANS,
    actions(6, disorder=800, transactions=True),
)
def test_the_combined_watermark_never_regresses(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, previews: bool, script: list[Action]
) -> None:
    driver = Driver(log, policy, max_rows=max_rows, index=index, previews=previews)
    for action in script:
        perform(driver, action, adds_splits=True)
    driver.run()
    sent = [MIN if w is None else w for w in (batch.after.watermark for batch in driver.batches)]
    assert sent == sorted(sent)
    for batch in driver.batches:
        for split, state in batch.before.splits.items():
            assert _known(batch.after.splits[split].watermark) >= _known(state.watermark)


@given(logs(disorder=800, noise=True), percentiles, _BOOLEANS, _BOOLEANS, actions(6, disorder=800))
def test_a_learned_watermark_is_never_behind_that_of_its_largest_bound(
    log: SimulatedLog, learned: Percentile, index: bool, previews: bool, script: list[Action]
) -> None:
    """So an early answer by the one is not due after the exact one by the other, where both have read as far."""
    found: list[dict[tuple[int, ...], int]] = []
    for strategy in (learned, Bounded(learned.most)):
        driver = Driver(deepcopy(log), PlanPolicy(strategy=strategy), max_rows=None, index=index, previews=previews)
        for action in script:
            perform(driver, action)
        driver.run()
        ends = ((batch.after.splits.values(), batch.after.watermark) for batch in driver.batches)
        found.append({tuple(at.position for at in splits): _known(watermark) for splits, watermark in ends})
    early, exact = found
    assert [positions for positions in early.keys() & exact.keys() if early[positions] < exact[positions]] == []


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_a_kill_at_any_point_leaves_the_watermark_as_it_would_have_been(data: st.DataObject, index: bool) -> None:
    """Without idleness, whose running timer starts again with the process."""
    log = data.draw(logs(disorder=800, noise=True))
    twin = SimulatedLog()
    for split, found in log.splits.items():
        twin.splits[split] = type(found)()
        twin.splits[split].rows, twin.splits[split].end = list(found.rows), found.end
    policy = PlanPolicy(
        strategy=data.draw(strategies | st.just(Punctuated())),
        max_future_skew=data.draw(st.none() | st.just(3_600_000)),
        alignment=Alignment(max_drift=data.draw(st.none() | st.sampled_from([0, 1_000]))),
    )
    max_rows = data.draw(budgets)
    killed = Driver(log, policy, max_rows=max_rows, index=index)
    unhurt = Driver(twin, policy, max_rows=max_rows, index=index)
    for action in [*data.draw(actions(disorder=800)), Step()]:
        perform(killed, action)
        if not isinstance(action, Kill | KillPlanning):
            perform(unhurt, action)
        if isinstance(action, Step):
            assert killed.state().watermark == unhurt.state().watermark
            assert positions(killed) == positions(unhurt)
    killed.run()
    unhurt.run()
    for split, state in unhurt.state().splits.items():
        assert killed.state().splits[split].watermark == state.watermark
    assert killed.state().watermark == unhurt.state().watermark


@given(
    logs(disorder=800, noise=True),
    event_time_policies,
    budgets,
    _BOOLEANS,
    _BOOLEANS,
    actions(disorder=800, transactions=True),
)
def test_no_row_on_time_for_its_own_split_is_late_for_the_source(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, previews: bool, script: list[Action]
) -> None:
    """Spark refuses rows of a batch by the watermark of earlier batches; without previews even its own is not too high.

    A split that has been idle is left out: no one waited for it, as the user asked.
    """
    driver = Driver(log, policy, max_rows=max_rows, index=index, previews=previews)
    for action in script:
        perform(driver, action)
    driver.run()
    idled: set[Split] = set()
    for batch in driver.batches:
        for split, rows in batch.rows.items():
            known = _known(batch.after.splits[split].watermark)
            # One may turn idle while rows are read that may have an event time, after others that had none.
            is_idle = batch.after.splits[split].status is SplitStatus.IDLE
            refused = _known((batch.before if previews or is_idle else batch.after).watermark)
            if split not in idled:
                assert all(row.event_time > refused for row in rows if row.event_time > known)
        idled |= {s for s, t in batch.after.splits.items() if t.status is SplitStatus.IDLE}


@given(
    logs(disorder=800, noise=True), event_time_policies, budgets, _BOOLEANS, actions(disorder=800, transactions=True)
)
def test_a_watermark_reported_before_its_rows_are_read_is_one_that_they_lead_to(
    log: SimulatedLog, policy: PlanPolicy, max_rows: int | None, index: bool, script: list[Action]
) -> None:
    """And nothing that is read, or when, follows it."""
    driver = Driver(log, policy, max_rows=max_rows, index=index, previews=True)
    for action in script:
        perform(driver, action, adds_splits=True)
    driver.run()
    for batch in driver.batches:
        seen = _with_rows(batch, policy.strategy.with_learned(batch.after.learned))
        assert _known(batch.after.watermark) <= _known(combined(batch.before, seen, policy.idleness))
        # Where a new split ends may not be known yet: then the watermark waits for it.
        if batch.observation.logs.unknown <= batch.before.splits.keys():
            assert _known(batch.after.watermark) >= _known(combined(batch.before, batch.after.splits, policy.idleness))


@settings(deadline=None)
@given(logs(disorder=800, noise=True), st.sampled_from([0, 500]), st.sampled_from([1, 3, 10]), st.data())
def test_two_runs_over_one_backlog_come_to_one_watermark_and_neither_goes_further_than_its_rows(
    log: SimulatedLog, bound: int, max_rows: int, data: st.DataObject
) -> None:
    """In which batch it goes out differs: one knows how far its rows lead before they are read, one is killed."""
    policy = PlanPolicy(strategy=Bounded(bound))
    runs = [Driver(log, policy, max_rows=max_rows, previews=previews) for previews in (True, False)]
    for driver in runs:
        while driver.step().is_batch:
            if not driver.previews and data.draw(_BOOLEANS):
                driver.restart()
        for batch in driver.batches:
            led_to = combined(batch.before, _with_rows(batch, policy.strategy), policy.idleness)
            assert _known(batch.after.watermark) <= _known(led_to)
    one, other = (driver.state() for driver in runs)
    assert one.watermark == other.watermark
    assert {s: t.watermark for s, t in one.splits.items()} == {s: t.watermark for s, t in other.splits.items()}


@given(
    logs(),
    st.sampled_from([1, 1_000, 30_000]),
    st.booleans(),
    budgets,
    st.booleans(),
    st.lists(st.sampled_from([0, 500, 1_001, 60_000]), min_size=1, max_size=12),
    st.data(),
)
def test_a_row_written_in_time_is_in_time_when_its_transaction_ends(
    log: SimulatedLog,
    timeout: int,
    passes: bool,
    max_rows: int | None,
    previews: bool,
    waits: list[int],
    data: st.DataObject,
) -> None:
    """Also in a split that was idle, however far the others continue meanwhile."""
    policy = PlanPolicy(idleness=Idleness(timeout=timeout, passes_returning=passes))
    driver = Driver(log, policy, max_rows=max_rows, previews=previews)
    driver.run()
    driver.now += data.draw(st.sampled_from([0, 60_000]))
    driver.run()
    split = data.draw(st.sampled_from(sorted(log.splits)))
    highest_of_all = max((row.event_time for _, row in log.all_rows()), default=START)
    written = highest_of_all + data.draw(st.integers(1, 1_000))
    log.splits[split].open([written])
    for wait in waits:
        driver.now += wait
        for other, found in log.splits.items():
            # Who has none may turn idle: then the last of all is gone by.
            if other != split and data.draw(st.booleans()):
                found.append([written + data.draw(st.integers(-500, 900_000))])
        driver.step()
    log.splits[split].close(commits=True)
    driver.run()
    read = [
        (batch, rows)
        for batch in driver.batches
        if Row(log.splits[split].end - 2, written) in (rows := batch.rows.get(split, []))
    ]
    assert len(read) == 1
    assert _known(read[0][0].before.watermark) < written


def _with_rows(batch: Batch, strategy: WatermarkStrategy) -> dict[Split, SplitState]:
    """Return the splits of a batch once its rows are folded in."""
    cap = batch.after.future_cap
    return {
        s: replace(t, watermark=watermark_after(s, t, batch.rows.get(s, []), cap, strategy))
        for s, t in batch.after.splits.items()
    }


def positions(driver: Driver) -> dict[Split, int]:
    return {s: t.position for s, t in driver.state().splits.items()}


def _known(watermark: int | None) -> int:
    return MIN if watermark is None else watermark
