"""The store on a real SQLite file: what one member tells, the others learn."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.errors import OptionError, UnreachableError, UsageError
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.group_store.store import Answer, GroupStore, Identity, store_url
from watermark_source.group_store.table import MEMBERS

ACTIVE = MemberStatus.ACTIVE


def who(name: str, *, group: str = "g", drift: int | None = 1_000, time_to_live: int = 30_000) -> Identity:
    return Identity(group, f"{name}-id", name, drift, time_to_live)


def at(watermark: int) -> GroupMember:
    return GroupMember(ACTIVE, Millis(watermark))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "alignment.sqlite"


@pytest.fixture
def store(file: Path) -> GroupStore:
    return GroupStore(store_url(f"sqlite:///{file}"))


def test_a_member_learns_who_of_the_others_is_slowest(store: GroupStore) -> None:
    assert store.exchange(who("a"), at(30)) == Answer(None, None, 0)
    assert store.exchange(who("b"), at(10)) == Answer(Millis(30), "a", 1)
    assert store.exchange(who("c"), at(20)) == Answer(Millis(10), "b", 2)
    assert store.exchange(who("b"), at(40)) == Answer(Millis(20), "c", 2)


@pytest.mark.parametrize("status", [MemberStatus.IDLE, MemberStatus.FINISHED, MemberStatus.WAITING, MemberStatus.CLOCK])
def test_nobody_waits_for_a_member_that_is_not_active(store: GroupStore, status: MemberStatus) -> None:
    store.exchange(who("a"), GroupMember(status, Millis(10)))
    assert store.exchange(who("b"), at(50)) == Answer(None, None, 1)


def test_a_snapshot_comes_before_everything_and_a_beginning_before_all_that_have_begun(store: GroupStore) -> None:
    store.exchange(who("a"), GroupMember(MemberStatus.STARTING))
    assert store.exchange(who("b"), at(50)) == Answer(Millis(MIN + 1), "a", 1)
    store.exchange(who("c"), GroupMember(MemberStatus.HOLDING))
    assert store.exchange(who("b"), at(50)) == Answer(MIN, "c", 2)


def test_groups_do_not_know_of_each_other(store: GroupStore) -> None:
    store.exchange(who("a"), at(10))
    assert store.exchange(who("a", group="other"), at(20)) == Answer(None, None, 0)


def test_a_member_that_was_silent_for_its_time_to_live_is_out_until_it_speaks_again(store: GroupStore) -> None:
    store.exchange(who("brief", time_to_live=150), at(10))
    assert store.exchange(who("b"), at(50)).minimum == 10
    time.sleep(0.3)
    assert store.exchange(who("b"), at(50)) == Answer(None, None, 0)
    store.exchange(who("brief", time_to_live=150), at(12))
    assert store.exchange(who("b"), at(50)).minimum == 12


def test_who_leaves_is_forgotten_and_so_are_those_that_are_long_gone(store: GroupStore, file: Path) -> None:
    store.exchange(who("gone", time_to_live=1), at(1))
    store.exchange(who("a"), at(10))
    time.sleep(0.05)
    store.leave(who("a"))
    with sqlite3.connect(file) as rows:
        assert rows.execute(f"SELECT count(*) FROM {MEMBERS.name}").fetchone() == (0,)


def test_a_group_has_one_drift(store: GroupStore) -> None:
    store.exchange(who("a", drift=1_000), at(10))
    store.join(who("b", drift=1_000))
    store.join(who("clock", drift=None))
    with pytest.raises(UsageError, match="member c of alignment group g has a max drift of 2 s; the group has 1 s"):
        store.join(who("c", drift=2_000))
    # The clock has none, so it does not decide for the others.
    store.leave(who("a"))
    store.exchange(who("clock", drift=None), GroupMember(MemberStatus.CLOCK))
    store.join(who("c", drift=2_000))


def test_members_may_all_come_at_once(file: Path) -> None:
    found: list[Exception] = []

    def come(number: int) -> None:
        own = GroupStore(store_url(f"sqlite:///{file}"))
        try:
            for turn in range(20):
                own.exchange(who(f"m{number}"), at(100 * number + turn))
        except Exception as error:  # noqa: BLE001 - shown below
            found.append(error)

    threads = [threading.Thread(target=come, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == []
    store = GroupStore(store_url(f"sqlite:///{file}"))
    assert store.exchange(who("last"), at(9_999)) == Answer(Millis(19), "m0", 8)


def test_a_store_that_is_lost_is_an_error_and_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    store = GroupStore(store_url(f"sqlite:///{folder / 'alignment.sqlite'}"))
    with pytest.raises(UnreachableError, match="does not answer: unable to open database file"):
        store.exchange(who("a"), at(1))
    folder.mkdir()
    assert store.exchange(who("a"), at(1)) == Answer(None, None, 0)


def test_a_password_is_never_shown() -> None:
    for text in ("sqlite://user:hidden@/nowhere/at/all", "sqlite:///nowhere/at/all?password=hidden"):
        assert GroupStore(store_url(text)).shown == "sqlite /nowhere/at/all"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shared by all:hidden@", "must be the URL of a database, as SQLAlchemy writes them, and this one is not"),
        ("nothing://user:hidden@host/db", "must be the URL of a database"),
        ("postgresql://user:pass@hidden:word@h:x/db", "and this one is not"),
        ("sqlite://", "a database in memory is nobody else's"),
        ("postgresql+psycopg://user:hidden@host/db", "needs the package of that database: No module named 'psycopg'"),
    ],
)
def test_what_is_no_store_is_refused_without_showing_it(text: str, said: str) -> None:
    with pytest.raises(OptionError, match="alignmentStore") as caught:
        store_url(text)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)
