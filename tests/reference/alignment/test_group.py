from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.reference.alignment.group import Group, change, join, leave, report, report_all
from watermark_source.alignment.group import GroupMember, MemberStatus, limit, view
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, MIN, Millis


class Key(NamedTuple):
    source: str
    split: int


def two_sources() -> Group[Key]:
    group: Group[Key] = Group("g", 10)
    group = report(join(group, Key("orders", 0), drift=10), Key("orders", 0), Millis(100))
    return report(join(group, Key("payments", 0), drift=10), Key("payments", 0), Millis(50))


def test_members_of_several_sources_hold_each_other_back() -> None:
    group = two_sources()
    assert group.limit == 60
    assert group.view().slowest == Key("payments", 0)
    assert group.held_back() == {Key("orders", 0)}


def test_another_drift_is_refused_with_both_values() -> None:
    with pytest.raises(UsageError, match=r"max drift of 2 min; the group has 10 ms"):
        join(two_sources(), Key("late", 0), drift=120_000)


def test_joining_again_keeps_what_was_reported() -> None:
    group = two_sources()
    assert join(group, Key("orders", 0), drift=10) is group


def test_a_member_that_left_holds_nobody_back() -> None:
    group = leave(two_sources(), Key("payments", 0))
    assert group.limit == 110
    assert leave(group, Key("payments", 0)) == group


@pytest.mark.parametrize(("waits", "expected"), [(False, 60), (True, MIN + 10)])
def test_a_member_without_data_holds_the_group_only_on_request(waits: bool, expected: int) -> None:
    group: Group[str] = Group("g", 10, wait_for_first=waits)
    group = join(report(join(group, "a", drift=10), "a", Millis(50)), "b", drift=10)
    assert group.limit == expected
    assert report(group, "b", Millis(70)).limit == 60
    assert change(group, "b", MemberStatus.IDLE).limit == 60


def test_a_member_without_a_watermark_cannot_be_active() -> None:
    group = change(join(Group("g", 1), "a", drift=1), "a", MemberStatus.ACTIVE)
    assert group.members["a"] == GroupMember(MemberStatus.WAITING)
    assert group.limit == MAX


def test_an_idle_member_returns_with_its_watermark() -> None:
    group = change(two_sources(), Key("payments", 0), MemberStatus.IDLE)
    assert group.limit == 110
    assert change(group, Key("payments", 0), MemberStatus.ACTIVE).limit == 60


def test_a_stranger_cannot_report() -> None:
    with pytest.raises(UsageError, match="c is not a member of alignment group g"):
        report(Group("g", 1), "c", Millis(1))
    with pytest.raises(UsageError, match="c is not a member of alignment group g"):
        report_all(two_sources(), {Key("orders", 0): Millis(1), "c": Millis(1)})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="it has to join first"):
        change(Group("g", 1), "c", MemberStatus.IDLE)


def test_view_of_members_measures_their_drift() -> None:
    seen = view([("a", Millis(100)), ("b", Millis(50)), ("c", Millis(50))], 10)
    assert (seen.minimum, seen.limit, seen.slowest) == (50, 60, "b")


def test_nobody_counts_nobody_waits() -> None:
    nobody: list[tuple[str, Millis]] = []
    seen = view(nobody, 10)
    assert (seen.minimum, seen.limit, seen.slowest) == (None, MAX, None)
    assert limit(None, 0) == MAX
