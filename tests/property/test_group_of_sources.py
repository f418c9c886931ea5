"""Several sources of one group under hypothesis: none runs ahead of another, and the group always continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import accumulate

from hypothesis import example, given, note
from hypothesis import strategies as st

from tests.simulation.driver import START
from tests.simulation.group import MemberDriver, Store
from tests.simulation.histories import FAR_FUTURE, budgets, logs
from tests.simulation.log import SimulatedLog
from tests.unit.planning.example_states import log_of
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.strategy import ProcessingTime
from watermark_source.planning.watermark import MIN, Millis, saturating_add

drifts = st.sampled_from([0, 1, 1_000, 60_000])
groups = st.lists(logs(splits=2, most=12), min_size=2, max_size=3)
STEP, ASK, KILL, WAIT, CUT = "step", "ask", "kill", "wait", "cut off, or back"
scripts = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([STEP, STEP, ASK, ASK, KILL, WAIT, CUT])), max_size=60)


def meet(
    group: Sequence[SimulatedLog], policy: PlanPolicy, max_rows: int | None, *, index: bool, looks: bool = False
) -> list[MemberDriver]:
    store, how = Store(), {"max_rows": max_rows, "index": index, "looks": looks}
    return [MemberDriver(f"m{n}", store, log, policy, **how) for n, log in enumerate(group)]


def perform(members: Sequence[MemberDriver], number: int, what: str) -> None:
    member = members[number % len(members)]
    if what == STEP:
        member.step()
    elif what == ASK:
        member.exchange()
    elif what == KILL:
        member.restart()
    elif what == CUT:
        member.reachable = not member.reachable
    else:
        for each in members:
            each.now += 500


def advance(members: Sequence[MemberDriver]) -> None:
    """Let all members plan in turns until each has read all of its rows, and a few turns more."""
    size = sum(t.end for member in members for t in member.log.splits.values())
    for member in members:
        member.reachable = True
    more = 3
    for _ in range(4 * size + 20):
        for member in members:
            member.now += 2
            member.exchange()
            member.step()
        more -= all(has_read_all(member) for member in members)
        if not more:
            return


def has_read_all(member: MemberDriver) -> bool:
    return {s: t.position for s, t in member.state().splits.items()} == member.log.ends()


@given(groups, drifts, budgets, st.booleans(), st.booleans(), scripts)
def test_the_group_continues_while_any_source_has_rows(
    group: Sequence[SimulatedLog],
    drift: int,
    max_rows: int | None,
    index: bool,
    looks: bool,
    script: Sequence[tuple[int, str]],
) -> None:
    policy = PlanPolicy(alignment=Alignment(max_drift=drift), idleness=Idleness(timeout=1))
    members = meet(group, policy, max_rows, index=index, looks=looks)
    for number, what in script:
        perform(members, number, what)
    advance(members)
    assert all(map(has_read_all, members))


@given(groups, drifts, budgets, scripts)
def test_no_source_reads_more_than_one_row_of_a_split_beyond_the_drift(
    group: Sequence[SimulatedLog], drift: int, max_rows: int | None, script: Sequence[tuple[int, str]]
) -> None:
    """Against what is read of the others when it plans, of those that had come when it last asked."""
    policy = PlanPolicy(alignment=Alignment(max_drift=drift))
    members = meet(group, policy, max_rows, index=True)
    for number, what in [*script, *((n, w) for _ in range(20) for n in range(3) for w in (ASK, STEP))]:
        member = members[number % len(members)]
        there = [each for each in members if each is not member and each.name in member.heard]
        behind = [w for each in there if (w := earliest_unread(each, policy)) is not None]
        before = len(member.batches)
        perform(members, number, what)
        if len(member.batches) == before or not behind:
            continue
        allowed = policy.strategy.event_time_of(Millis(min(behind) + drift))
        for split, rows in member.batches[-1].rows.items():
            beyond = [row for row in rows if row.event_time > allowed]
            assert len(beyond) <= 1, (split, beyond)


@given(logs(splits=2, most=12, noise=True), groups, drifts, budgets, scripts)
# A budget that ends before the event of 2099, which an earlier row follows.
@example(log_of([START, FAR_FUTURE], [START, FAR_FUTURE, START]), [log_of([START + 1, START + 1])], 0, 2, [])
def test_an_event_of_2099_in_one_source_lets_no_other_run_ahead_and_none_wait_for_ever(
    noisy: SimulatedLog,
    group: Sequence[SimulatedLog],
    drift: int,
    max_rows: int | None,
    script: Sequence[tuple[int, str]],
) -> None:
    policy = PlanPolicy(
        alignment=Alignment(max_drift=drift),
        idleness=Idleness(timeout=1),
        max_future_skew=1_000_000_000,
    )
    first, *_ = members = meet([noisy, *group], policy, max_rows, index=True)
    for number, what in [*script, *((n, w) for _ in range(20) for n in range(4) for w in (ASK, STEP))]:
        member = members[number % len(members)]
        is_behind = member is not first and first.name in member.heard and first.state().splits
        behind = earliest_unread(first, policy) if is_behind else None
        before = len(member.batches)
        perform(members, number, what)
        if len(member.batches) > before and behind is not None:
            allowed = policy.strategy.event_time_of(saturating_add(behind, drift))
            for split, rows in member.batches[-1].rows.items():
                assert sum(row.event_time > allowed for row in rows) <= 1, split
    advance(members)
    assert all(map(has_read_all, members))


@given(groups, drifts, budgets, scripts)
def test_who_cannot_reach_the_store_goes_no_further_than_its_last_limit(
    group: Sequence[SimulatedLog], drift: int, max_rows: int | None, script: Sequence[tuple[int, str]]
) -> None:
    members = meet(group, PlanPolicy(alignment=Alignment(max_drift=drift)), max_rows, index=True)
    for number, what in script:
        perform(members, number, what)
    alone = members[0]
    alone.exchange()
    alone.step()
    alone.reachable = False
    limit, before = alone.state().group.limit, len(alone.batches)
    for _ in range(5):
        alone.now += 10_000
        alone.step()
    for batch in alone.batches[before:]:
        read = [row.event_time for rows in batch.rows.values() for row in rows]
        assert limit is not None or not read
        assert limit is None or max(read, default=limit) <= alone.policy.strategy.event_time_of(limit)


def earliest_unread(member: MemberDriver, policy: PlanPolicy) -> int | None:
    """The lowest watermark a member will ever have again: of the first row of each split that it has not planned."""
    found = []
    for split, state in member.state().splits.items():
        following = member.log.splits[split].read(state.position, member.log.splits[split].end)
        if following:
            found.append(
                max(
                    policy.strategy.watermark_of(Millis(min(r.event_time for r in following))),
                    state.watermark or -(2**63),
                )
            )
    return min(found, default=None)


class Kind(Enum):
    """How a source of a group lives."""

    STREAM = "goes on for ever"
    CLOCK = "goes on for ever, with the clock"
    RUNS = "reads up to where its log ended when the run began, and is gone until the next"
    CLOCK_RUNS = "the same, with the clock"


RUN, HOLD, RELEASE = "begin a run", "a snapshot begins", "it is complete"
kinds = st.lists(st.sampled_from(Kind), min_size=2, max_size=3)
lives = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([STEP, STEP, STEP, ASK, ASK, KILL, WAIT, CUT, RUN, HOLD, RELEASE])),
    max_size=60,
)
SNAPSHOT = "users"


class Life:
    """One source of a group, whatever its kind."""

    def __init__(self, kind: Kind, member: MemberDriver) -> None:
        self.member, self.kind = member, kind
        self.has_end = kind in (Kind.RUNS, Kind.CLOCK_RUNS)
        self.runs = not self.has_end

    def begin(self) -> None:
        if self.has_end and not self.runs:
            self.member.restart(final=True)
            self.runs = True

    def kill(self) -> None:
        """A run that is killed is not begun again by itself, and no one took its row away."""
        self.member.restart()
        self.runs = not self.has_end

    def step(self) -> None:
        """Plan, and see that nothing is read which is not allowed."""
        if not self.runs:
            return
        member = self.member
        observed = member.observe()
        planned = member.step()
        read = planned.has_rows
        if observed.others.hold:
            assert not read
        ceiling = observed.others.ceiling
        if ceiling is not None and ceiling != MIN and member.policy.alignment.max_drift is not None and read:
            highest = max((row.event_time for rows in member.batches[-1].rows.values() for row in rows), default=MIN)
            assert highest <= member.policy.strategy.event_time_of(ceiling)
        if self.has_end and not planned.is_batch:
            # Its process leaves.
            assert member.state().splits == {} or not behind(member)
            member.leave()
            self.kill()


def behind(member: MemberDriver) -> bool:
    assert member._frozen is not None
    return any(t.position < member._frozen.ends.get(s, 0) for s, t in member.state().splits.items())


@given(groups, kinds, drifts, budgets, lives)
def test_runs_clocks_and_snapshots_of_a_group_let_each_other_come_to_their_ends(
    group: Sequence[SimulatedLog],
    of: Sequence[Kind],
    drift: int,
    max_rows: int | None,
    script: Sequence[tuple[int, str]],
) -> None:
    """No deadlock, nothing read while a snapshot holds the group, and no run ends before it has read all."""
    store = Store()
    all_lives = []
    for n, (log, kind) in enumerate(zip(group, of, strict=False)):
        by_clock = kind in (Kind.CLOCK, Kind.CLOCK_RUNS)
        policy = (
            PlanPolicy(strategy=ProcessingTime())
            if by_clock
            else PlanPolicy(alignment=Alignment(max_drift=drift), idleness=Idleness(timeout=1))
        )
        all_lives.append(Life(kind, MemberDriver(f"m{n}", store, log, policy, max_rows=max_rows)))
    for number, what in script:
        life = all_lives[number % len(all_lives)]
        if what == STEP:
            life.step()
        elif what == RUN:
            life.begin()
        elif what == KILL:
            life.kill()
        elif what == HOLD:
            store.reports[SNAPSHOT] = GroupMember(MemberStatus.HOLDING)
        elif what == RELEASE:
            store.reports[SNAPSHOT] = GroupMember(MemberStatus.CLOCK)
        else:
            perform([each.member for each in all_lives], number, what)
    store.reports[SNAPSHOT] = GroupMember(MemberStatus.CLOCK)
    size = sum(t.end for each in all_lives for t in each.member.log.splits.values())
    for each in all_lives:
        each.member.reachable = True
    more = 3
    for _ in range(4 * size + 20):
        for each in all_lives:
            each.begin()
            each.member.now += 2
            each.member.exchange()
            each.step()
            if not each.runs:
                # Who is dead is out after its time to live.
                each.member.leave()
        more -= all(has_read_all(each.member) for each in all_lives)
        if not more:
            break
    note(f"{[(each.kind, [t.rows for t in each.member.log.splits.values()]) for each in all_lives]}")
    assert all(has_read_all(each.member) for each in all_lives)


FOLLOWS = PlanPolicy(
    idleness=Idleness(timeout=2_000, follows_group=True),
    alignment=Alignment(max_drift=60_000),
    watermark_interval=500,
)
idle_times = st.sampled_from([2_000, 5_000])


@given(st.lists(st.integers(1_000, 3_000), min_size=1, max_size=20), st.booleans(), idle_times, idle_times)
def test_a_source_whose_splits_are_all_idle_goes_on_with_the_others_and_never_beyond(
    steps: Sequence[int], ever_had_a_row: bool, busy_until: int, silent_until: int
) -> None:
    """Whichever of them turns idle first."""
    store, busy, silent = Store(), SimulatedLog(1), SimulatedLog(1)
    if ever_had_a_row:
        silent.splits[Split("log", 0)].append([START])
    other = replace(FOLLOWS, idleness=replace(FOLLOWS.idleness, timeout=silent_until))
    policy = replace(FOLLOWS, idleness=replace(FOLLOWS.idleness, timeout=busy_until))
    members = [MemberDriver("busy", store, busy, policy), MemberDriver("silent", store, silent, other)]
    reported = [START - 1]
    for at in accumulate(steps, initial=START):
        busy.splits[Split("log", 0)].append([at])
        if ever_had_a_row:
            silent.splits[Split("log", 0)].append([at - 900])
        for _ in range(20):
            for member in members:
                member.now += 400
                member.exchange()
                member.step()
                reported.append(store.reports["busy"].watermark or MIN)
            follower = members[1].state()
            if follower.splits[Split("log", 0)].status is SplitStatus.IDLE:
                assert (follower.watermark or MIN) <= max(reported)
    # It may be an interval behind: no batch comes for less. The busy one is idle too by now.
    assert (members[1].state().watermark or MIN) >= busy.splits[Split("log", 0)].rows[-1].event_time - 1 - 500
    frozen = [member.state().watermark for member in members]
    for member in members * 3:
        member.now += 5_000
        member.exchange()
        member.step()
    assert [member.state().watermark for member in members] == frozen


@given(st.lists(st.integers(1_000, 3_000), min_size=2, max_size=6), st.booleans(), st.booleans())
def test_a_source_that_continues_with_the_others_waits_for_the_rows_of_a_transaction_that_is_open(
    steps: Sequence[int], ever_had_a_row: bool, commits: bool
) -> None:
    store, busy, silent, split = Store(), SimulatedLog(1), SimulatedLog(1), Split("log", 0)
    if ever_had_a_row:
        silent.splits[split].append([START])
    members = [MemberDriver("busy", store, busy, FOLLOWS), MemberDriver("silent", store, silent, FOLLOWS)]
    follower = members[1]

    def advance(at: int) -> None:
        busy.splits[split].append([at])
        for _ in range(20):
            for member in members:
                member.now += 200
                member.exchange()
                member.step()

    advance(START)
    written = START + 1
    silent.splits[split].open([written])
    for at in accumulate(steps, initial=START):
        advance(at)
        assert (follower.state().watermark or MIN) < written
    silent.splits[split].close(commits=commits)
    advance(busy.splits[split].rows[-1].event_time)
    read = [batch for batch in follower.batches if written in (row.event_time for row in batch.rows.get(split, ()))]
    assert len(read) == commits
    assert all((batch.before.watermark or MIN) < written for batch in read)
    assert (follower.state().watermark or MIN) >= busy.splits[split].rows[-1].event_time - 1 - 500
