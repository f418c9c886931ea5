"""How the sources of one query count for each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import AWAITED, BEHIND, A, B, at, idle, log_of, observation
from watermark_source.planning.combined_watermark import reached_by
from watermark_source.planning.group import GroupMember, MemberStatus, OtherMember, OtherMembers
from watermark_source.planning.one_query import Outside, QueryTurns, Shortfall, Turn, shortfall_of, within_query
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import MAX, Millis

AT_REST = OtherMembers(Millis(500), OtherMember("elsewhere", Millis(7)), 3, apart=frozenset({"a", "b"}))


def turn(
    member: str,
    number: int,
    planned: int,
    reach: int | None = None,
    *,
    lead: int | None = None,
    outside: Outside | None = None,
    status: MemberStatus = MemberStatus.ACTIVE,
) -> Turn:
    report = GroupMember(status, Millis(planned))
    reported = None if reach is None else Millis(reach)
    return Turn(f"source {member}", member, number, report, reported, None if lead is None else Millis(lead), outside)


def lowest(*turns: Turn, others: OtherMembers = AT_REST) -> tuple[int | None, str]:
    found, _ = within_query(others, turns, 5, Millis(1))
    assert found.ceiling is None
    return found.minimum, str(found.slowest)


def test_a_source_counts_with_its_reach_until_it_has_planned_the_batch() -> None:
    assert lowest(turn("a", 5, 100, 900), turn("b", 4, 10, 200)) == (100, "source a")
    assert lowest(turn("a", 5, 300, 900), turn("b", 4, 10, 200)) == (200, "source b")
    # Without one, and of another batch than the last, it counts with what it has planned.
    assert lowest(turn("a", 5, 300), turn("b", 4, 10)) == (10, "source b")
    assert lowest(turn("a", 5, 300), turn("b", 3, 10, 200)) == (10, "source b")
    # Members of other queries count as ever.
    assert lowest(turn("a", 4, 10, 900), turn("b", 4, 10, 900)) == (500, "elsewhere")


def test_sources_that_are_idle_or_done_hold_no_one() -> None:
    for status in (MemberStatus.IDLE, MemberStatus.FINISHED, MemberStatus.CLOCK, MemberStatus.WAITING):
        assert lowest(turn("a", 4, 10, 20, status=status), turn("b", 4, 10, 600)) == (500, "elsewhere")
    assert lowest(turn("a", 4, 0, 900, status=MemberStatus.HOLDING), turn("b", 4, 10, 900))[1] == "elsewhere"


def test_the_first_that_is_asked_decides_what_other_queries_allow() -> None:
    first = turn("a", 5, 700, outside=Outside(Millis(600), "elsewhere"))
    assert lowest(first, turn("b", 4, 10, 900)) == (600, "elsewhere")
    assert lowest(first._replace(outside=Outside()), turn("b", 4, 10, 900)) == (700, "source a")
    # That of an earlier batch does not count.
    assert lowest(first._replace(number=4, reach=Millis(950)), turn("b", 4, 10, 900)) == (500, "elsewhere")


def test_an_idle_source_follows_no_reach() -> None:
    found, _ = within_query(AT_REST, [turn("a", 5, 300), turn("b", 4, 10, 200)], 5, None)
    assert (found.minimum, reached_by(found)) == (200, 10)
    assert reached_by(within_query(AT_REST, [turn("a", 5, 600), turn("b", 4, 700, 800)], 5, None)[0]) == 500


def test_what_the_first_allows_is_passed_on_by_those_asked_after_it() -> None:
    """Whose files the third reads first is by chance."""
    first = Outside(Millis(600), "elsewhere", Millis(7))
    _, passed_on = within_query(AT_REST, [turn("a", 5, 700, outside=first), turn("b", 4, 10, 900)], 5, None)
    assert passed_on == first
    later = [turn("a", 4, 10, 900), turn("b", 4, 10, 900)]
    assert within_query(AT_REST, later, 5, None)[1] == Outside(Millis(500), "elsewhere", Millis(7))


def test_since_when_a_source_of_the_query_is_the_slowest_is_kept() -> None:
    turns = QueryTurns("b")

    def slowest(now: int, *others: Turn) -> OtherMember | None:
        turns.begin(others)
        return turns.seen(replace(AT_REST, apart=frozenset({"a"})), None, Millis(now)).slowest

    assert slowest(1, turn("a", 1, 10)) == OtherMember("source a", Millis(1))
    assert slowest(2, turn("a", 2, 20)) == OtherMember("source a", Millis(1))
    assert slowest(3, turn("a", 3, 900)) == OtherMember("elsewhere", Millis(7))
    assert slowest(4, turn("a", 4, 30)) == OtherMember("source a", Millis(4))


def test_who_has_reported_more_than_it_has_planned_needs_the_newest_event_times_in_the_next_plan() -> None:
    turns, log = QueryTurns("b"), log_of([100, 105, 106, 107, 108])
    others = OtherMembers(Millis(500), OtherMember("elsewhere"), 2, apart=frozenset({"a"}))
    assert not turns.promises_more
    state, seen = SourceState({A: at(1, 99)}), observation(log, max_rows=3, others=others)
    for left in (True, False):
        turns.begin([turn("a", 1, 500)])
        planned = plan(state, seen, PlanPolicy(alignment=Alignment(max_drift=10)), log)
        turns.end(planned, planned.member(), "b", 10, planned.reach)
        assert turns.promises_more is left
        state, seen = SourceState({A: at(4, 106)}), observation(log, max_rows=3, others=others)


def test_a_source_tells_no_more_than_one_without_a_reach_lets_it_read() -> None:
    turns, log = QueryTurns("b"), log_of(range(100, 200))
    others = OtherMembers(Millis(500), OtherMember("elsewhere"), 2, apart=frozenset({"a"}))
    for reported, reach in ((turn("a", 1, 110, 160), 198), (turn("a", 1, 110), 120), (turn("a", 1, 50), 105)):
        turns.begin([reported])
        planned = plan(SourceState({A: at(1, 99)}), observation(log, others=others), PlanPolicy(), log)
        report = GroupMember(MemberStatus.ACTIVE, Millis(105))
        assert turns.end(planned, report, "b", 10, lambda: Millis(198)).reach == reach


@pytest.mark.parametrize(
    ("following", "shows_rows_alone", "reach"),
    [([600], True, 599), ([90, 600], True, None), ([600], False, None), ([600, 90, 601], False, None)],
)
def test_a_row_beyond_a_gap_counts_before_it_is_seen_where_it_is_surely_one(
    following: list[int], shows_rows_alone: bool, reach: int | None
) -> None:
    """Control records, and rows of an aborted transaction, may follow each other at once as rows do."""
    log = log_of([100, 500, *following])
    log.shows_rows_alone = shows_rows_alone
    others = OtherMembers(Millis(110), OtherMember("elsewhere"), 2, apart=frozenset({"a"}))
    planned = plan(
        SourceState({A: at(1, 99)}), observation(log, others=others), PlanPolicy(alignment=Alignment(max_drift=10)), log
    )
    assert planned.state.splits[A].position == 2
    assert planned.reach() == reach


@pytest.mark.parametrize("state", [BEHIND, AWAITED, replace(idle(90), since=None)])
def test_while_a_split_comes_back_from_idleness_the_row_limit_is_not_shared_by_event_time(state: SplitState) -> None:
    policy = PlanPolicy(alignment=Alignment(max_drift=1_000), idleness=Idleness(passes_returning=True))
    log, before = log_of(range(90, 120), range(90, 120)), SourceState({A: at(1, 90), B: state}, watermark=Millis(95))
    for most, returning, reach in ((10, True, None), (None, True, 118), (10, False, 96)):
        used = policy if returning else replace(policy, idleness=Idleness())
        assert plan(before, observation(log, max_rows=most), used, log).reach() == reach


def test_while_a_source_that_the_store_leaves_out_has_reported_nothing_the_last_limit_stays() -> None:
    found, outside = within_query(AT_REST, [turn("a", 4, 10, 900)], 5, Millis(77))
    assert (found.ceiling, found.awaited, outside) == (77, True, None)
    # One that the store counts is not counted twice.
    alone = OtherMembers(Millis(500), OtherMember("elsewhere"), 3, apart=frozenset({"a"}))
    assert lowest(turn("a", 4, 10, 900), turn("b", 4, 10, 20), others=alone) == (500, "elsewhere")


def test_who_reads_less_than_its_reach_names_who_went_ahead() -> None:
    short, ahead = GroupMember(MemberStatus.ACTIVE, Millis(100)), turn("a", 5, 400, lead=430)
    assert shortfall_of(short, Millis(400), 5, [ahead], 30) == Shortfall(
        Millis(400), Millis(100), "source a", Millis(430)
    )
    # No one relied on it: those that are asked later know better, and within the drift nothing is amiss.
    assert shortfall_of(short, Millis(400), 5, [ahead._replace(number=4)], 30) is None
    assert shortfall_of(short, Millis(400), 5, [ahead._replace(lead=Millis(130))], 30) is None
    assert shortfall_of(short, None, 5, [ahead], 30) is None
    assert shortfall_of(GroupMember(MemberStatus.IDLE, Millis(100)), Millis(400), 5, [ahead], 30) is None
    assert shortfall_of(short, Millis(400), 5, [ahead], MAX) is None
