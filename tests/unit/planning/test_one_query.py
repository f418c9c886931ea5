"""How the sources of one query count for each other."""

from __future__ import annotations

from watermark_source.planning.group import GroupMember, MemberStatus, OtherMember, OtherMembers
from watermark_source.planning.one_query import Outside, Shortfall, Turn, shortfall_of, within_query
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
    told = None if reach is None else Millis(reach)
    return Turn(f"source {member}", member, number, report, told, None if lead is None else Millis(lead), outside)


def lowest(*turns: Turn, others: OtherMembers = AT_REST) -> tuple[int | None, str]:
    found = within_query(others, turns, 5, Millis(1))
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


def test_sources_that_are_idle_or_done_hold_nobody() -> None:
    for status in (MemberStatus.IDLE, MemberStatus.FINISHED, MemberStatus.CLOCK, MemberStatus.WAITING):
        assert lowest(turn("a", 4, 10, 20, status=status), turn("b", 4, 10, 600)) == (500, "elsewhere")
    assert lowest(turn("a", 4, 0, 900, status=MemberStatus.HOLDING), turn("b", 4, 10, 900))[1] == "elsewhere"


def test_the_first_that_is_asked_decides_what_other_queries_allow() -> None:
    first = turn("a", 5, 700, outside=Outside(Millis(600), "elsewhere"))
    assert lowest(first, turn("b", 4, 10, 900)) == (600, "elsewhere")
    assert lowest(first._replace(outside=Outside()), turn("b", 4, 10, 900)) == (700, "source a")
    # That of an earlier batch does not count.
    assert lowest(first._replace(number=4, reach=Millis(950)), turn("b", 4, 10, 900)) == (500, "elsewhere")


def test_while_a_source_that_the_store_leaves_out_has_told_nothing_the_last_limit_stays() -> None:
    found = within_query(AT_REST, [turn("a", 4, 10, 900)], 5, Millis(77))
    assert (found.ceiling, found.awaited) == (77, True)
    # One that the store counts is not counted twice.
    alone = OtherMembers(Millis(500), OtherMember("elsewhere"), 3, apart=frozenset({"a"}))
    assert lowest(turn("a", 4, 10, 900), turn("b", 4, 10, 20), others=alone) == (500, "elsewhere")


def test_who_reads_less_than_its_reach_names_who_went_ahead() -> None:
    short, ahead = GroupMember(MemberStatus.ACTIVE, Millis(100)), turn("a", 5, 400, lead=430)
    assert shortfall_of(short, Millis(400), 5, [ahead], 30) == Shortfall(
        Millis(400), Millis(100), "source a", Millis(430)
    )
    # Nobody relied on it: those that are asked later know better, and within the drift nothing is amiss.
    assert shortfall_of(short, Millis(400), 5, [ahead._replace(number=4)], 30) is None
    assert shortfall_of(short, Millis(400), 5, [ahead._replace(lead=Millis(130))], 30) is None
    assert shortfall_of(short, None, 5, [ahead], 30) is None
    assert shortfall_of(GroupMember(MemberStatus.IDLE, Millis(100)), Millis(400), 5, [ahead], 30) is None
    assert shortfall_of(short, Millis(400), 5, [ahead], MAX) is None
