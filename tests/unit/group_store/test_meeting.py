"""A source's place in its group, kept by its own thread, on a real SQLite file."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.alignment.others import Others
from watermark_source.errors import UnreachableError, UsageError
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.group_store import meeting as module
from watermark_source.group_store.meeting import Meeting
from watermark_source.group_store.store import Answer, GroupStore, Identity, store_url

Make = Callable[..., Meeting]


def at(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(module, "_SILENT", 0.5)
    made: list[Meeting] = []

    def one(name: str, *, drift: int = 1_000, folder: str = ".", time_to_live: int = 30_000) -> Meeting:
        store = GroupStore(store_url(f"sqlite:///{tmp_path / folder / 'alignment.sqlite'}"))
        made.append(Meeting(store, Identity("g", f"{name}-id", name, drift, time_to_live)))
        return made[-1]

    yield one
    for each in made:
        each.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def told(member: Meeting, report: GroupMember) -> None:
    """Let a member come, and tell its first."""
    member.others(None)
    member.tell(report, waits=False)


def test_what_one_tells_the_other_knows_soon(make: Make) -> None:
    a, b = make("a"), make("b")
    told(a, at(10))
    told(b, at(50))
    until(lambda: b.others(None).ceiling is None)
    known = b.others(None)
    assert (known.minimum, known.members) == (10, 1)
    assert known.slowest is not None
    assert (known.slowest.name, abs((known.slowest.since or 0) - time.time() * 1_000) < 60_000) == ("a", True)
    a.tell(at(20), waits=False)
    until(lambda: b.others(None).minimum == 20)
    # It is the same one that is slowest, since then.
    assert b.others(None).slowest == known.slowest


def test_those_that_start_together_hear_of_each_other_before_either_goes_on(make: Make) -> None:
    members = [make(name) for name in "abc"]
    for number, member in enumerate(members):
        assert member.others(None) == Others(ceiling=MIN, awaited=True, members=number)
        # Its last limit holds, where it has one.
        assert member.others(Millis(7)).ceiling == 7
        member.tell(at(10 * number), waits=False)
    for member in members:
        until(lambda member=member: member.others(None).ceiling is None)  # type: ignore[misc]
        assert member.others(None).members == 2


def test_who_closes_holds_nobody(make: Make) -> None:
    a, b = make("a"), make("b")
    told(a, at(10))
    told(b, at(50))
    until(lambda: b.others(None).minimum == 10)
    a.close()
    until(lambda: b.others(None).minimum is None)


def test_another_drift_is_refused_in_the_first_call(make: Make) -> None:
    a, b = make("a"), make("b", drift=5)
    told(a, at(10))
    time.sleep(0.5)
    with pytest.raises(UsageError, match="one group has one drift"):
        b.others(None)


def test_without_an_answer_the_last_limit_holds_until_there_is_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.2)
    lost = make("a", folder="not there")
    assert lost.others(Millis(77)) == Others(ceiling=Millis(77))
    assert lost.others(None) == Others(ceiling=MIN)
    lost.tell(at(10), waits=False)
    assert lost.trouble is not None
    assert "does not answer" in lost.trouble
    (tmp_path / "not there").mkdir()
    until(lambda: lost.others(Millis(77)) == Others())
    assert [("does not answer" in text, "answers again" in text) for text in said()] == [(True, False), (False, True)]


def test_after_the_store_was_away_the_others_are_given_their_time_to_come_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENT", 0.3)
    a, b = make("a", time_to_live=1_000), make("b", time_to_live=1_000)
    told(a, at(10))
    told(b, at(50))
    until(lambda: b.others(None).minimum == 10)
    # Nobody reaches it for longer than the time to live, and b is the first that does again.
    exchange, away = GroupStore.exchange, {"a-id", "b-id"}

    def unless_away(store: GroupStore, who: Identity, report: GroupMember) -> Answer:
        if who.member in away:
            raise UnreachableError("away")
        return exchange(store, who, report)

    monkeypatch.setattr(GroupStore, "exchange", unless_away)
    until(lambda: a.trouble is not None and b.trouble is not None)
    time.sleep(1.2)
    away.discard("b-id")
    until(lambda: b.trouble is None)
    assert b.others(Millis(20)).ceiling == 20
    away.discard("a-id")
    until(lambda: b.others(Millis(20)).minimum == 10 and b.others(Millis(20)).ceiling is None)


def test_whatever_a_driver_raises_the_thread_goes_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.2)
    exchange = GroupStore.exchange
    monkeypatch.setattr(GroupStore, "exchange", lambda *_: {}["nothing"])
    member = make("a")
    assert member.others(None) == Others(ceiling=MIN)
    member.tell(at(1), waits=False)
    monkeypatch.setattr(GroupStore, "exchange", exchange)
    until(lambda: member.others(None) == Others())


def test_at_rest_a_member_asks_once_a_second_and_ten_times_while_it_waits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    exchange = GroupStore.exchange
    monkeypatch.setattr(GroupStore, "exchange", lambda *a: (asked.append(time.monotonic()), exchange(*a))[1])
    member = make("a")
    told(member, GroupMember())
    time.sleep(2.2)
    assert 2 <= len(asked) <= 4
    asked.clear()
    member.tell(GroupMember(), waits=True)
    time.sleep(1.5)
    assert 5 <= len(asked) <= 16
    assert min(b - a for a, b in itertools.pairwise(asked)) >= module.SHORTEST
