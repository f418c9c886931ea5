"""A reader of announced watermarks in its alignment group: what it reads, with what it counts, and what holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation.announcements import BY, Announcements
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.errors import UsageError
from watermark_source.planning.announced_group import check_writers
from watermark_source.planning.disorder import NOTHING_SEEN
from watermark_source.planning.group import GroupMember, MemberStatus, OtherMember, OtherMembers, OwnWriter
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import HeldBy, PlanFacts, alignment_wait, holds
from watermark_source.planning.observation import BatchLimits, Observation, ObservedLogs
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.policy import Alignment, GroupHold, MinimumRows, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Announced
from watermark_source.planning.watermark import MAX, MIN, Millis

A, B = Split("log", 0), Split("log", 1)
CLICKS = OtherMember("clicks")
POLICY = PlanPolicy(strategy=Announced(BY), alignment=Alignment(max_drift=10), watermark_interval=0)


def announced(*batches: tuple[int | None, int, int]) -> Announcements:
    """Return a log to which a writer wrote batches: (watermark, rows of A, rows of B)."""
    log = SimulatedLog(2)
    found = Announcements(log)
    for watermark, *rows in batches:
        for split, count in zip((A, B), rows, strict=True):
            log.splits[split].append([watermark or 0] * count)
        found.announce(watermark)
    return found


def planned(of: Announcements, others: int | None = None, *, at: SourceState | None = None, **changes: Any) -> Plan:
    state = at or SourceState({A: SplitState(0, 0), B: SplitState(0, 0)})
    policy, is_final = changes.pop("policy", POLICY), changes.pop("is_final", False)
    unknown = changes.pop("unknown", frozenset())
    seen = OtherMembers() if others is None else OtherMembers(Millis(others), CLICKS, 1)
    return plan(
        state,
        Observation(
            now=Millis(0),
            logs=ObservedLogs(asked_at=Millis(0), ends=of.log.ends(), ends_are_final=is_final, unknown=unknown),
            others=changes.pop("seen", seen),
            seen={read.split: NOTHING_SEEN for read in ranges_of(state)},
            announced=of.observed(state),
            **changes,
        ),
        policy,
        None,
    )


def ends(of: Plan) -> Mapping[Split, int]:
    return {split: at.position for split, at in of.state.splits.items()}


def test_a_batch_ends_with_the_last_announcement_within_the_limit() -> None:
    of = announced((100, 2, 1), (110, 0, 3), (111, 1, 1), (200, 5, 0))
    found = planned(of, 100)
    assert (ends(found), found.state.watermark) == ({A: 2, B: 4}, 110)
    assert found.limit is not None
    assert (found.limit.watermark, found.limit.slowest) == (110, CLICKS)
    assert found.lead() == 110
    assert ends(planned(of, 5_000)) == ends(planned(of)) == {A: 8, B: 5}


def test_rows_behind_the_newest_announcement_wait_for_it_and_do_not_make_a_batch() -> None:
    of = announced((100, 2, 0))
    of.log.splits[A].append([105])
    found = planned(of)
    assert ends(found) == {A: 2, B: 0}
    following = planned(of, at=found.state)
    assert not following.is_batch
    assert following.state.splits[A].status is SplitStatus.ACTIVE
    # Alone a source reads them at once, as do a run with an end, and who waits for no writer.
    assert ends(planned(of, policy=PlanPolicy(strategy=Announced(BY)))) == {A: 3, B: 0}
    assert ends(planned(of, is_final=True)) == {A: 3, B: 0}
    of.announce(105, idle=True)
    of.log.splits[A].append([106])
    assert ends(planned(of)) == {A: 4, B: 0}


@pytest.mark.parametrize(("minimum", "end"), [(100, 3), (99, 2), (101, 3)])
def test_who_is_the_slowest_reads_across_a_gap_to_the_next_announcement(minimum: int, end: int) -> None:
    of = announced((100, 2, 0), (500, 1, 0), (900, 1, 0))
    state = planned(announced((100, 2, 0))).state
    found = planned(of, minimum, at=state)
    assert ends(found)[A] == end
    assert found.state.splits[A].status is (SplitStatus.PAUSED if end == 2 else SplitStatus.ACTIVE)
    # From behind the others, too, if what is announced within the limit does not reach them.
    assert ends(planned(of, 495))[A] == 3


def test_of_two_writers_the_lower_one_sets_what_is_read_and_is_named() -> None:
    of = announced()
    for watermark, writer in ((100, "w"), (10, "slow"), (500, "w")):
        of.log.splits[A].append([watermark])
        of.announce(watermark, writer=writer)
    found = planned(of, 1_000)
    assert (ends(found)[A], found.state.watermark) == (2, 10)
    assert found.limit is not None
    assert found.limit.slowest == OwnWriter("slow")
    assert str(found.limit.slowest) == "writer slow"


def test_nothing_is_read_beyond_the_last_known_limit_or_while_somebody_holds_the_group() -> None:
    of = announced((100, 2, 0), (500, 1, 0))
    assert ends(planned(of, seen=OtherMembers(ceiling=Millis(90)))) == {A: 0, B: 0}
    assert ends(planned(of, seen=OtherMembers(ceiling=Millis(120)))) == {A: 2, B: 0}
    assert ends(planned(of, seen=OtherMembers(MIN, CLICKS, 1))) == {A: 0, B: 0}
    # Of an announcement that may have been superseded nothing follows for a gap.
    of.is_current = False
    assert ends(planned(of, 100, at=planned(announced((100, 2, 0))).state)) == {A: 2, B: 0}


def test_a_source_counts_with_the_watermark_that_is_announced_at_its_position() -> None:
    def member(of: Announcements, **changes: Any) -> tuple[MemberStatus, int | None]:
        found: GroupMember = planned(of, **changes).member()
        return found.status, found.watermark

    of = announced((100, 2, 0), (500, 1, 0))
    assert member(of, others=100) == (MemberStatus.ACTIVE, 100)
    assert member(announced((None, 2, 0))) == (MemberStatus.WAITING, None)
    of_none = announced()
    of_none.log.splits[A].append([5])
    assert member(of_none) == (MemberStatus.STARTING, None)
    assert member(announced(), unknown=frozenset({A})) == (MemberStatus.STARTING, None)
    # Before the first announcement there is no log of them; without rows it holds nobody.
    silent = announced()
    silent.is_current = False
    assert member(silent) == (MemberStatus.WAITING, None)
    first = PlanPolicy(strategy=Announced(BY), alignment=Alignment(max_drift=10, hold=GroupHold.FIRST_WATERMARK))
    assert member(silent, policy=first, unknown=frozenset({A})) == (MemberStatus.HOLDING, None)
    of.announce(600, idle=True)
    assert member(of) == (MemberStatus.IDLE, 600)
    of.announce(MAX)
    assert member(of) == (MemberStatus.FINISHED, None)
    assert member(announced((100, 1, 0)), is_final=True) == (MemberStatus.FINISHED, None)


def test_the_reach_is_what_is_announced_of_the_rows_that_the_next_batch_can_read() -> None:
    of = announced((100, 2, 0), (105, 3, 0))
    found = planned(announced((100, 2, 0)))
    assert planned(of, 50, at=found.state).reach() == 105
    of.log.splits[B].append([200] * 4)
    of.announce(200)
    assert planned(of, 50, at=found.state).reach() == 200
    # A batch reads up to the last announcement that its row limit lets it reach, whatever else comes.
    few = planned(of, 5_000, at=found.state, limits=BatchLimits(max_rows=3))
    assert (ends(few), few.state.watermark, few.reach()) == ({A: 5, B: 0}, 105, 105)
    for most, reach in ((2, 100), (4, 105), (7, 200)):
        assert planned(of, 50, at=found.state, limits=BatchLimits(max_rows=most)).reach() == reach
    assert planned(of, 50, at=found.state, policy=_waits_for_rows()).reach() is None
    of.is_current = False
    assert planned(of, 50, at=found.state).reach() is None


def test_a_partition_that_has_not_been_found_yet_keeps_none_of_the_others_waiting() -> None:
    of = announced((100, 2, 0))
    state = planned(of).state
    of.log.splits[Split("log", 2)] = found = SplitLog()
    found.append([105])
    of.announce(105)
    of.log.splits[A].append([108] * 3)
    of.announce(108)
    del of.log.splits[Split("log", 2)]
    # The first announcement has rows of the new one alone; those of the next one are more than a batch takes.
    assert ends(planned(of, 100, at=state, limits=BatchLimits(max_rows=2))) == {A: 4, B: 0}


def test_a_reader_of_what_a_query_of_its_group_writes_is_refused() -> None:
    seen = planned(announced((100, 2, 0))).observation.announced
    assert seen is not None
    check_writers(seen, {"another"})
    with pytest.raises(UsageError, match=r"what the query of writer w writes, .* Leave alignmentGroup out of one"):
        check_writers(seen, {"another", "q"})


def test_few_rows_wait_for_more_in_a_group_too() -> None:
    of, state = announced((100, 2, 0), (105, 1, 0)), planned(announced((100, 2, 0))).state
    history = planned(of).observation.history
    recent = type(history)(since_rows=Millis(10))
    assert not planned(of, at=state, policy=_waits_for_rows(), history=recent).has_rows


def _waits_for_rows() -> PlanPolicy:
    return PlanPolicy(
        strategy=Announced(BY), alignment=Alignment(max_drift=10), minimum_rows=MinimumRows(5, Millis(1_000))
    )


def test_who_is_paused_is_held_by_the_other_source_and_not_by_its_writer() -> None:
    state = planned(announced((100, 2, 0))).state
    found = planned(announced((100, 2, 0), (500, 1, 0)), 60, at=state)
    facts = PlanFacts(plan=found, policy=POLICY)
    (hold,) = holds(facts).first
    assert (hold.by, hold.name, hold.kind, hold.watermark) == (HeldBy.SOURCE, "clicks", HoldKind.PAUSED, 60)
    wait = alignment_wait(A, facts)
    assert wait is not None
    assert (wait.slowest, wait.max_drift, wait.ahead) == ("clicks", 10, None)
