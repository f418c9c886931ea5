"""Several sources of one group under hypothesis: none runs ahead of another, and the group always goes on."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.log import SimulatedLog
from tests.simulation.meeting import MemberDriver, Store
from tests.simulation.scenarios import budgets, logs
from watermark_source.planning.ends import event_time_of, watermark_of
from watermark_source.planning.observation import PlanPolicy

drifts = st.sampled_from([0, 1, 1_000, 60_000])
groups = st.lists(logs(splits=2, most=12), min_size=2, max_size=3)
STEP, ASK, KILL, WAIT, CUT = "step", "ask", "kill", "wait", "cut off, or back"
scripts = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([STEP, STEP, ASK, ASK, KILL, WAIT, CUT])), max_size=60)


def meet(group: Sequence[SimulatedLog], policy: PlanPolicy, max_rows: int | None, *, index: bool) -> list[MemberDriver]:
    store = Store()
    return [MemberDriver(f"m{n}", store, log, policy, max_rows=max_rows, index=index) for n, log in enumerate(group)]


def perform(members: Sequence[MemberDriver], number: int, what: str) -> None:
    member = members[number % len(members)]
    if what == STEP:
        member.step()
    elif what == ASK:
        member.ask()
    elif what == KILL:
        member.restart()
    elif what == CUT:
        member.reachable = not member.reachable
    else:
        for each in members:
            each.now += 500


def go_on(members: Sequence[MemberDriver]) -> None:
    """Let everybody go on by turns, until nobody has done anything for some rounds."""
    size = sum(t.end for member in members for t in member.log.splits.values())
    for member in members:
        member.reachable = True
    for _ in range(4 * size + 20):
        for member in members:
            member.now += 2
            member.ask()
            member.step()


@given(groups, drifts, budgets, st.booleans(), scripts)
def test_the_group_goes_on_while_any_source_has_rows(
    group: Sequence[SimulatedLog], drift: int, max_rows: int | None, index: bool, script: Sequence[tuple[int, str]]
) -> None:
    members = meet(group, PlanPolicy(max_drift=drift, idle_timeout=1), max_rows, index=index)
    for number, what in script:
        perform(members, number, what)
    go_on(members)
    for member in members:
        assert {s: t.position for s, t in member.state().splits.items()} == member.log.ends()


@given(groups, drifts, budgets, scripts)
def test_no_source_reads_more_than_one_row_of_a_split_beyond_the_drift(
    group: Sequence[SimulatedLog], drift: int, max_rows: int | None, script: Sequence[tuple[int, str]]
) -> None:
    """Against what is read of the others when it plans, of those that have come."""
    policy = PlanPolicy(max_drift=drift)
    members = meet(group, policy, max_rows, index=True)
    for number, what in [*script, *((n, w) for _ in range(20) for n in range(3) for w in (ASK, STEP))]:
        member = members[number % len(members)]
        there = [each for each in members if each is not member and each.name in member.store.told]
        behind = [w for each in there if (w := earliest_unread(each, policy)) is not None]
        before = len(member.batches)
        perform(members, number, what)
        if len(member.batches) == before or not behind:
            continue
        allowed = event_time_of(min(behind) + drift, policy)
        for split, rows in member.batches[-1].rows.items():
            beyond = [row for row in rows if row.event_time > allowed]
            assert len(beyond) <= 1, (split, beyond)


@given(groups, drifts, scripts)
def test_who_cannot_reach_the_store_goes_no_further_than_its_last_limit(
    group: Sequence[SimulatedLog], drift: int, script: Sequence[tuple[int, str]]
) -> None:
    members = meet(group, PlanPolicy(max_drift=drift), None, index=True)
    for number, what in script:
        perform(members, number, what)
    alone = members[0]
    alone.ask()
    alone.step()
    alone.reachable = False
    limit, before = alone.state().limit, len(alone.batches)
    for _ in range(5):
        alone.now += 10_000
        alone.step()
    for batch in alone.batches[before:]:
        read = [row.event_time for rows in batch.rows.values() for row in rows]
        assert limit is not None or not read
        assert limit is None or max(read, default=limit) <= event_time_of(limit, alone.policy)


def earliest_unread(member: MemberDriver, policy: PlanPolicy) -> int | None:
    """The lowest watermark a member will ever have again: of the first row of each split that it has not planned."""
    found = []
    for split, state in member.state().splits.items():
        following = member.log.splits[split].read(state.position, member.log.splits[split].end)
        if following:
            found.append(max(watermark_of(min(r.event_time for r in following), policy), state.watermark or -(2**63)))
    return min(found, default=None)
