"""A source's place in its group, kept by its own thread, on a real SQLite file."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.alignment.others import Others
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.group_store import meeting as module
from watermark_source.group_store.meeting import Meeting
from watermark_source.group_store.store import GroupStore, Identity, store_url

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


def test_what_one_tells_the_other_knows_soon(make: Make) -> None:
    a, b = make("a"), make("b")
    assert a.others(None) == Others()
    assert b.others(None) == Others(members=1)
    a.tell(at(10), waits=False)
    until(lambda: b.others(None).minimum == 10)
    slowest = b.others(None).slowest
    assert slowest is not None
    assert (slowest.name, abs((slowest.since or 0) - time.time() * 1_000) < 60_000) == ("a", True)
    a.tell(at(20), waits=False)
    until(lambda: b.others(None).minimum == 20)
    # It is the same one that is slowest, since then.
    assert b.others(None).slowest == slowest


def test_who_closes_holds_nobody(make: Make) -> None:
    a, b = make("a"), make("b")
    a.others(None)
    a.tell(at(10), waits=False)
    b.others(None)
    until(lambda: b.others(None).minimum == 10)
    a.close()
    until(lambda: b.others(None) == Others())


def test_another_drift_is_refused_in_the_first_call(make: Make) -> None:
    a, b = make("a"), make("b", drift=5)
    a.others(None)
    a.tell(at(10), waits=False)
    with pytest.raises(UsageError, match="one group has one drift"):
        b.others(None)


def test_without_an_answer_the_last_limit_holds_until_there_is_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.2)
    lost = make("a", folder="not there")
    assert lost.others(Millis(77)) == Others(ceiling=Millis(77))
    assert lost.others(None) == Others(ceiling=MIN)
    assert lost.trouble is not None
    assert "does not answer" in lost.trouble
    (tmp_path / "not there").mkdir()
    until(lambda: lost.trouble is None)
    assert lost.others(Millis(77)) == Others()
    told = [record.getMessage() for record in caplog.records]
    assert [("does not answer" in text, "answers again" in text) for text in told] == [(True, False), (False, True)]


def test_at_rest_a_member_asks_once_a_second_and_ten_times_while_it_waits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    exchange = GroupStore.exchange
    monkeypatch.setattr(GroupStore, "exchange", lambda *a: (asked.append(time.monotonic()), exchange(*a))[1])
    member = make("a")
    member.others(None)
    member.tell(GroupMember(), waits=False)
    time.sleep(2.2)
    assert 2 <= len(asked) <= 4
    asked.clear()
    member.tell(GroupMember(), waits=True)
    time.sleep(1.5)
    assert 5 <= len(asked) <= 16
    assert min(b - a for a, b in itertools.pairwise(asked)) >= module.SHORTEST
