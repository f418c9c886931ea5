"""Alignment under hypothesis: no split runs ahead of its group, and the group always continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.driver import Batch, Driver
from tests.simulation.histories import FAR_FUTURE, Action, Step, actions, budgets, close_all, logs, perform
from tests.simulation.log import SimulatedLog
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import Millis

drifts = st.sampled_from([0, 1, 1_000, 60_000])
bounds = st.sampled_from([0, 1, 500])
idle_timeouts = st.none() | st.sampled_from([1, 1_000, 30_000])


def with_times(seen: Observation, **changes: Any) -> Observation:
    return replace(seen, logs=replace(seen.logs, times=replace(seen.logs.times, **changes)))


without_newest = st.frozensets(st.integers(0, 3))


@given(
    logs(disorder=800),
    drifts,
    bounds,
    budgets,
    idle_timeouts,
    st.booleans(),
    without_newest,
    actions(disorder=800, transactions=True),
)
def test_no_split_reads_more_than_one_row_beyond_the_drift(
    log: SimulatedLog,
    drift: int,
    bound: int,
    max_rows: int | None,
    idle_timeout: int | None,
    final: bool,
    hidden: frozenset[int],
    script: Sequence[Action],
) -> None:
    """Measured after each batch against the slowest active split, as the rows of that batch have moved it."""
    policy = PlanPolicy(
        strategy=Bounded(bound),
        alignment=Alignment(max_drift=drift),
        idleness=Idleness(timeout=idle_timeout),
    )
    driver = Driver(log, policy, max_rows=max_rows, final=final, without_newest=hidden)
    for action in [] if final else script:
        perform(driver, action)
    driver.run()
    for batch in driver.batches:
        lowest = _slowest(batch, policy)
        if lowest is None:
            continue
        allowed = policy.strategy.event_time_of(Millis(lowest + drift))
        for split, rows in batch.rows.items():
            beyond = [row for row in rows if row.event_time > allowed]
            assert len(beyond) <= 1, (split, beyond)
            assert beyond == rows[len(rows) - len(beyond) :]


@given(
    logs(disorder=800, noise=True),
    drifts,
    bounds,
    budgets,
    st.booleans(),
    st.booleans(),
    without_newest,
    actions(disorder=800, transactions=True),
)
def test_the_group_goes_on_while_any_split_has_rows(
    log: SimulatedLog,
    drift: int,
    bound: int,
    max_rows: int | None,
    index: bool,
    looks: bool,
    hidden: frozenset[int],
    script: Sequence[Action],
) -> None:
    """Once splits without rows are idle no one is left to wait for, so the whole log is read."""
    policy = PlanPolicy(
        strategy=Bounded(bound),
        max_future_skew=3_600_000,
        alignment=Alignment(max_drift=drift),
        idleness=Idleness(timeout=1),
    )
    driver = Driver(log, policy, max_rows=max_rows, index=index, looks=looks, without_newest=hidden)
    for action in script:
        perform(driver, action)
    close_all(log)
    size = sum(t.end for t in log.splits.values())
    more = 3
    for _ in range(3 * size + 10):
        driver.now += 2
        driver.step()
        more -= {s: t.position for s, t in driver.state().splits.items()} == log.ends()
        if not more:
            break
    assert {s: t.position for s, t in driver.state().splits.items()} == log.ends()


@given(logs(), drifts, budgets, actions(kills=False, transactions=True))
def test_only_a_split_without_rows_holds_the_group_still(
    log: SimulatedLog, drift: int, max_rows: int | None, script: Sequence[Action]
) -> None:
    """Without an idle timeout the group may wait for a split that has nothing, as in Flink, and for no other."""
    driver = Driver(log, PlanPolicy(alignment=Alignment(max_drift=drift)), max_rows=max_rows)
    for action in script:
        perform(driver, action)
    close_all(log)
    driver.run()
    state = driver.state()
    waiting = [s for s, t in state.splits.items() if t.position < log.splits[s].end]
    for split in waiting:
        assert state.splits[split].status is SplitStatus.PAUSED
        holders = [t.watermark for s, t in state.splits.items() if s not in waiting and t.watermark is not None]
        assert holders
        following = log.splits[split].read(state.splits[split].position, log.splits[split].end)
        reached = [w for w in (state.splits[split].watermark, *(row.event_time - 1 for row in following[:1])) if w]
        assert not following or max(reached) > min(holders) + drift


@given(
    logs(disorder=800, noise=True),
    drifts,
    budgets,
    idle_timeouts,
    st.booleans(),
    actions(disorder=800, transactions=True),
)
def test_a_split_with_rows_is_never_idle(
    log: SimulatedLog, drift: int, max_rows: int | None, timeout: int | None, index: bool, script: Sequence[Action]
) -> None:
    """However long it is held, or the budget goes to others."""
    driver = Driver(
        log,
        PlanPolicy(alignment=Alignment(max_drift=drift), idleness=Idleness(timeout=timeout)),
        max_rows=max_rows,
        index=index,
    )
    for action in script:
        perform(driver, action)
    for _ in range(3):
        driver.step()
        driver.now += 20_000
    for batch in driver.batches:
        for split, state in batch.after.splits.items():
            if state.status is SplitStatus.IDLE and split in batch.observation.logs.unknown:
                # No one states whether it has rows now: it stays as it was.
                assert state == batch.before.splits[split]
            elif state.status is SplitStatus.IDLE:
                assert batch.observation.logs.ends[split] == state.position == state.observed


@given(logs(disorder=800), drifts, st.integers(0, 3), st.integers(0, 30))
def test_one_far_future_event_neither_moves_the_watermark_nor_starves_its_split(
    log: SimulatedLog, drift: int, number: int, at: int
) -> None:
    split = log.splits.setdefault(Split("log", number), type(next(iter(log.splits.values())))())
    times = [row.event_time for row in split.rows]
    split.__init__()  # type: ignore[misc]
    split.append([*times[:at], FAR_FUTURE, *times[at:]])
    policy = PlanPolicy(alignment=Alignment(max_drift=drift), max_future_skew=1_000_000_000)
    driver = Driver(log, policy, max_rows=7, final=True)
    driver.run()
    assert {s: t.position for s, t in driver.state().splits.items()} == log.ends()
    assert (driver.state().watermark or 0) < FAR_FUTURE - 1_000_000_000
    assert all(t.watermark is None or t.watermark < FAR_FUTURE - 1 for t in driver.state().splits.values())


@given(logs(disorder=800), drifts, bounds, budgets, st.booleans())
def test_without_a_time_index_a_split_passes_the_limit_within_one_range_only(
    log: SimulatedLog, drift: int, bound: int, max_rows: int | None, looks: bool
) -> None:
    policy = PlanPolicy(strategy=Bounded(bound), alignment=Alignment(max_drift=drift))
    driver = Driver(log, policy, max_rows=max_rows, index=False, looks=looks, final=True)
    driver.run()
    for batch in driver.batches:
        for split, rows in batch.rows.items():
            known = batch.after.splits[split].watermark
            limit = batch.after.group.limit
            assert not rows or limit is None or known is None or known <= limit


@given(
    st.booleans().flatmap(lambda noise: logs(disorder=800, noise=noise)),
    st.none() | drifts,
    bounds,
    budgets,
    st.none() | st.integers(1, 10_000),
    actions(disorder=800),
)
def test_what_need_not_be_looked_up_changes_no_plan(
    log: SimulatedLog, drift: int | None, bound: int, max_rows: int | None, skew: int | None, script: Sequence[Action]
) -> None:
    policy = PlanPolicy(strategy=Bounded(bound), max_future_skew=skew, alignment=Alignment(max_drift=drift))
    driver = Driver(log, policy, max_rows=max_rows)
    for action in [*script, Step()]:
        state, seen = driver.state(), driver.observe()
        everything, nothing = (with_times(seen, settled=s) for s in (frozenset(log.splits), frozenset[Split]()))
        assert plan(state, everything, policy, log) == plan(state, nothing, policy, log)
        perform(driver, action)


@given(
    st.booleans().flatmap(lambda noise: logs(disorder=800, noise=noise)),
    drifts,
    bounds,
    idle_timeouts,
    st.none() | st.integers(1, 10_000),
    actions(disorder=800),
)
def test_newest_event_times_change_nothing_where_they_do_not_matter(
    log: SimulatedLog, drift: int, bound: int, timeout: int | None, skew: int | None, script: Sequence[Action]
) -> None:
    policy = PlanPolicy(
        strategy=Bounded(bound),
        max_future_skew=skew,
        alignment=Alignment(max_drift=drift),
        idleness=Idleness(timeout=timeout),
    )
    driver = Driver(log, policy)
    for action in [*script, Step()]:
        state, seen = driver.state(), driver.observe()
        known, unknown = plan(state, seen, policy, log), plan(state, with_times(seen, newest={}), policy, log)
        if not unknown.newest_matters:
            assert unknown.limit is None or (
                known.limit is not None and known.limit.watermark >= unknown.limit.watermark
            )
            lower = replace(known.state, group=replace(known.state.group, limit=unknown.state.group.limit))
            known = replace(known, state=lower, limit=unknown.limit, member=unknown.member)
            assert replace(known, newest_matters=False) == unknown
        perform(driver, action)


def _slowest(batch: Batch, policy: PlanPolicy) -> int | None:
    """The lowest watermark of the splits the group waits for: neither idle nor, in a final run, finished."""
    seen = batch.observation.logs
    return min(
        (
            watermark
            for split, watermark in batch.watermarks_after(policy).items()
            if watermark is not None
            and batch.after.splits[split].status is not SplitStatus.IDLE
            and not (seen.ends_are_final and batch.after.splits[split].observed >= seen.ends[split])
        ),
        default=None,
    )
