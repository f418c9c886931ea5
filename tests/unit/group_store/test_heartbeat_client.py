"""A source's place in its group, kept by its own thread, on a real SQLite file."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.containers import Where
from services.postgres import postgres_service, url_of
from services.postgres_local import LocalPostgres
from tests.unit.group_store.clients import Make, at, publish_first, stay_away, two, until
from watermark_source.errors import UnreachableError
from watermark_source.group_store import file_database, heartbeat_client, store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient, KnownMembers
from watermark_source.group_store.store import Answer, GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus, OtherMembers, drift_in_force, silent_names
from watermark_source.planning.watermark import MIN, Millis


def test_a_report_of_one_member_reaches_the_other(make: Make) -> None:
    a, b = two(make)
    until(lambda: b.others(None).ceiling is None)
    known = b.others(None)
    assert (known.minimum, known.members) == (10, 1)
    assert known.slowest is not None
    assert (known.slowest.name, abs((known.slowest.since or 0) - time.time() * 1_000) < 60_000) == ("a", True)
    a.publish(at(20), waits=False)
    until(lambda: b.others(None).minimum == 20)
    # It is the same one that is slowest, since then.
    assert b.others(None).slowest == known.slowest


def test_members_that_start_together_know_each_other_before_either_advances(make: Make) -> None:
    members = [make(name) for name in "abc"]
    for number, member in enumerate(members):
        known = member.others(None)
        assert (known.ceiling, known.awaited) == (MIN, True)
        # Its last limit holds, where it has one.
        assert member.others(Millis(7)).ceiling == 7
        member.publish(at(10 * number), waits=False)
    for member in members:
        until(lambda member=member: member.others(None).ceiling is None)  # type: ignore[misc]
        assert member.others(None).members == 2


def test_a_member_that_has_joined_is_awaited_until_it_has_planned(make: Make) -> None:
    late, early = make("late"), make("early")
    late.others(None)
    publish_first(early, at(50))
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        early.publish(at(50), waits=True)
        # It is not there before: who wants two of them does not begin.
        assert (early.others(None).ceiling, early.others(None).members) == (MIN, 0)
        time.sleep(0.02)
    late.publish(at(10), waits=False)
    until(lambda: early.others(None).ceiling is None)
    assert (early.others(None).minimum, early.others(None).members) == (10, 1)


def finish(member: HeartbeatClient) -> None:
    """Have a member end because it is done."""
    member.publish(GroupMember(MemberStatus.FINISHED), waits=False)
    member.close()


def test_a_member_that_has_finished_holds_back_no_other(make: Make) -> None:
    a, b = two(make)
    until(lambda: b.others(None).minimum == 10)
    finish(a)
    until(lambda: b.others(None).members == 0)
    assert b.others(None).minimum is None


def test_a_member_that_is_stopped_is_waited_for_where_it_was_for_its_time_to_live(make: Make) -> None:
    """As after a kill: it may be stopped to start again with another option."""
    a, b = two(make, time_to_live=2_000)
    until(lambda: b.others(None).minimum == 10)
    a.publish(at(15), waits=False)
    stopped_at = time.monotonic()
    a.close()
    until(lambda: b.others(None).minimum == 15)
    until(lambda: b.others(None).minimum is None)
    assert time.monotonic() - stopped_at >= 2


def test_a_process_that_ends_after_the_next_one_has_begun_changes_nothing_of_its_row(make: Make) -> None:
    a, b = two(make)
    until(lambda: b.others(None).minimum == 10)
    again = make("a")
    again._row.exchange(at(12))
    a._row.end(at(11))
    assert b._row.exchange(at(50))[:3] == (12, "a", 1)


def test_a_drift_that_one_member_was_restarted_with_is_in_force_in_all_within_two_heartbeats(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = GroupStore.exchange
    begun: list[str] = []
    drifts: dict[str, list[tuple[int, int | None]]] = {name: [] for name in "abc"}

    def recorded(store: GroupStore, identity: Identity, report: GroupMember | None, **how: bool) -> Answer | None:
        began_at = len(begun)
        begun.append(identity.source)
        answer = exchange(store, identity, report, **how)
        if answer is not None:
            drifts[identity.source].append(
                (began_at, drift_in_force(identity.max_drift, OtherMembers(drift=answer.drift)))
            )
        return answer

    members = {name: make(name, drift=600_000) for name in "abc"}
    for member in members.values():
        publish_first(member, at(10))
    until(lambda: all(member.others(None).ceiling is None for member in members.values()))
    members["c"].close()
    monkeypatch.setattr(GroupStore, "exchange", recorded)
    again = make("c", drift=60_000)
    publish_first(again, at(10))
    assert again.others(None).drift == 600_000
    written_at = len(begun)
    until(lambda: all(len([1 for began, _ in drifts[name] if began >= written_at]) >= 2 for name in "ab"))
    for name in "ab":
        after = [drift for began, drift in drifts[name] if began >= written_at]
        assert after[:2] == [60_000, 60_000]
        assert members[name].others(None).drift_of == "c"


def test_a_lower_drift_of_one_member_reaches_the_others_and_ends_when_it_leaves(make: Make) -> None:
    a, b = two(make)
    until(lambda: b.others(None).drift == 1_000)
    low = make("low", drift=5)
    publish_first(low, at(20))
    until(lambda: [member.others(None).drift for member in (a, b)] == [5, 5])
    assert a.others(None).drift_of == "low"
    assert low.others(None).drift == 1_000
    finish(low)
    until(lambda: [member.others(None).drift for member in (a, b)] == [1_000, 1_000])


def test_without_an_answer_the_last_limit_holds_until_there_is_one(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[str]]
) -> None:
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.2)
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 0.4)
    lost = make("a", folder="not there")
    assert lost.others(Millis(77)) == OtherMembers(ceiling=Millis(77))
    assert lost.others(None) == OtherMembers(ceiling=MIN)
    lost.publish(at(10), waits=False)
    assert lost.trouble is not None
    assert "does not answer" in lost.trouble
    (tmp_path / "not there").mkdir()
    until(lambda: lost.others(Millis(77)) == OtherMembers())
    assert [("does not answer" in text, "answers again" in text) for text in logged()] == [(True, False), (False, True)]


def test_members_that_start_during_an_outage_know_each_other_before_either_advances(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a database begins last of all: it answers one of them before it answers the other."""
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.1)
    away = stay_away(monkeypatch, "a-id", "b-id")
    a, b = two(make)
    until(lambda: a.trouble is not None and b.trouble is not None)
    time.sleep(0.5)
    away.discard("b-id")
    until(lambda: b.trouble is None)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        b.publish(at(50), waits=True)
        assert b.others(Millis(20)).ceiling == 20
        time.sleep(0.01)
    away.discard("a-id")
    until(lambda: b.others(Millis(20)).ceiling is None)
    assert b.others(Millis(20)).minimum == 10


def test_members_that_start_while_the_store_comes_and_goes_wait_for_each_other_each_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.1)
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 2.0)
    away = stay_away(monkeypatch, "a-id", "b-id")
    a, b = two(make)
    for _ in range(2):
        until(lambda: a.trouble is not None and b.trouble is not None)
        time.sleep(2.2)
        away.discard("b-id")
        until(lambda: b.trouble is None)
        assert (b.others(Millis(20)).members, b.others(Millis(20)).ceiling) == (0, 20)
        away.add("b-id")


def test_after_an_outage_the_others_get_their_time_to_live_to_report_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_waits, "SILENT_AFTER", 0.3)
    a, b = two(make, time_to_live=1_000)
    until(lambda: b.others(None).minimum == 10)
    # No one reaches it for longer than the time to live, and b is the first that does again.
    away = stay_away(monkeypatch, "a-id", "b-id")
    until(lambda: a.trouble is not None and b.trouble is not None)
    time.sleep(1.2)
    away.discard("b-id")
    until(lambda: b.trouble is None)
    assert b.others(Millis(20)).ceiling == 20
    away.discard("a-id")
    until(lambda: b.others(Millis(20)).minimum == 10 and b.others(Millis(20)).ceiling is None)


def test_one_answer_between_two_outages_lets_no_member_pass_the_last_limit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_waits, "SILENT_AFTER", 0.3)
    a, b = two(make, time_to_live=1_000)
    until(lambda: b.others(None).minimum == 10)
    away = stay_away(monkeypatch, "a-id", "b-id")
    for _ in range(2):
        until(lambda: a.trouble is not None and b.trouble is not None)
        time.sleep(1.2)
        away.discard("b-id")
        until(lambda: b.trouble is None)
        assert (b.others(Millis(20)).members, b.others(Millis(20)).ceiling) == (0, 20)
        away.add("b-id")


def test_the_heartbeat_continues_after_any_error_of_a_driver(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_waits, "FIRST_ANSWER", 0.2)
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 0.4)
    exchange = GroupStore.exchange
    monkeypatch.setattr(GroupStore, "exchange", lambda *_, **__: dict[str, None]()["nothing"])
    member = make("a")
    assert member.others(None) == OtherMembers(ceiling=MIN)
    member.publish(at(1), waits=False)
    monkeypatch.setattr(GroupStore, "exchange", exchange)
    until(lambda: member.others(None) == OtherMembers())
    # And when it ends.
    monkeypatch.setattr(GroupStore, "leave", lambda *_: dict[str, None]()["nothing"])
    finish(member)


def test_a_member_sends_a_statement_a_second_at_rest_and_ten_while_it_waits(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    exchange = GroupStore.exchange
    monkeypatch.setattr(
        GroupStore, "exchange", lambda *a, **how: (asked.append(time.monotonic()), exchange(*a, **how))[1]
    )
    member = make("a")
    publish_first(member, GroupMember())
    # The first two come one after the other: with the second it shows what it has to.
    until(lambda: len(asked) >= 4)
    assert all(pause >= store_waits.LONGEST for pause in pauses(asked)[1:3])
    member.publish(GroupMember(), waits=True)
    asked.clear()
    until(lambda: len(asked) >= 12)
    # A statement that took long is followed by a longer pause.
    assert min(pauses(asked)[1:]) < store_waits.LONGEST / 2
    assert min(pauses(asked)) >= store_waits.SHORTEST


def pauses(moments: list[float]) -> list[float]:
    return [later - before for before, later in itertools.pairwise(moments)]


def test_a_store_that_is_slow_or_fails_gets_fewer_statements(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange, asked = GroupStore.exchange, list[float]()

    def slow(store: GroupStore, identity: Identity, report: GroupMember | None, **how: bool) -> Answer | None:
        time.sleep(0.15)
        asked.append(time.monotonic())
        if len(asked) in (3, 4):
            raise UnreachableError("overrun")
        return exchange(store, identity, report, **how)

    monkeypatch.setattr(GroupStore, "exchange", slow)
    member = make("a")
    publish_first(member, at(10))
    # It would ask ten times a second.
    member.publish(at(10), waits=True)
    until(lambda: len(asked) >= 5)
    assert all(pause >= 0.7 for pause in pauses(asked)[:2])
    assert all(pause >= 1 for pause in pauses(asked)[2:])


def test_a_member_that_starts_again_holds_the_others_where_it_was_until_it_has_planned(make: Make) -> None:
    a, b = two(make)
    until(lambda: b.others(None).minimum == 10)
    # The new process has to find out first where it is.
    a.close()
    again = make("a")
    again.others(Millis(20))
    seen = set()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        b.publish(at(50), waits=True)
        seen.add(b.others(None).minimum)
        time.sleep(0.05)
    assert seen == {10}
    again.publish(at(15), waits=False)
    until(lambda: b.others(None).minimum == 15)


def test_two_processes_of_one_checkpoint_become_two_members(make: Make, logged: Callable[[], list[str]]) -> None:
    """One was copied for a second query."""
    first, other = make("a"), make("b")
    publish_first(first, at(10))
    publish_first(other, at(90))
    until(lambda: other.others(None).minimum == 10)
    copy = make("a")
    publish_first(copy, at(30))
    until(lambda: other.others(None).members == 2)
    assert (copy.member, first.member != copy.member) == ("a-id", True)
    assert other.others(None).minimum == 10
    first.publish(at(40), waits=False)
    until(lambda: other.others(None).minimum == 30)
    assert [text for text in logged() if "takes a new name" in text] != []
    # Each leaves for itself.
    finish(first)
    until(lambda: other.others(None).members == 1)


def test_no_member_counts_as_gone_because_the_store_was_emptied(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another server takes over, without what was asked to the first."""
    monkeypatch.setattr(store_waits, "SILENT_AFTER", 30)
    away = stay_away(monkeypatch)
    _, b = two(make)
    until(lambda: b.others(None).ceiling is None)
    away.add("a-id")
    with contextlib.closing(sqlite3.connect(tmp_path / "alignment.sqlite")) as beside:
        beside.execute("DROP TABLE watermark_source_members")
    until(lambda: b.others(Millis(20)).members == 0)
    assert b.others(Millis(20)).ceiling == 20
    away.discard("a-id")
    until(lambda: b.others(Millis(20)).ceiling is None)
    assert b.others(Millis(20)).minimum == 10


@pytest.mark.parametrize("hours", [1, -1])
def test_no_member_counts_as_gone_because_the_stores_clock_was_set(
    make: Make, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    set_by = [0.0]
    opened = file_database._set_up

    def with_a_clock_to_set(connection: sqlite3.Connection) -> None:
        opened(connection)
        connection.create_function("julianday", 1, lambda _: time.time() / 86_400 + 2_440_587.5 + set_by[0])

    monkeypatch.setattr(file_database, "_set_up", with_a_clock_to_set)
    _, b = two(make)
    until(lambda: b.others(None).ceiling is None)
    set_by[0] = hours / 24
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        b.publish(at(50), waits=True)
        known = b.others(Millis(20))
        assert known.minimum == 10 or known.ceiling == 20
        time.sleep(0.01)
    until(lambda: b.others(Millis(20)).ceiling is None)
    # And one that is gone now is missed after its time, not after an hour.
    assert b.others(Millis(20)).members == 1


def test_a_store_of_varying_speed_does_not_keep_a_member_that_has_left(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock was read at some moment between question and answer: that is no clock that was set."""
    monkeypatch.setattr(store_waits, "SILENT_AFTER", 30)
    monkeypatch.setattr(heartbeat_client, "_JUMP", 0.3)
    exchange, slow = GroupStore.exchange, itertools.cycle([0.0, 0.6])

    def sometimes_slow(store: GroupStore, identity: Identity, report: GroupMember | None, **how: bool) -> Answer | None:
        found = exchange(store, identity, report, **how)
        if identity.source == "b":
            time.sleep(next(slow))
        return found

    monkeypatch.setattr(GroupStore, "exchange", sometimes_slow)
    a, b = two(make)
    until(lambda: b.others(None).ceiling is None and b.others(None).minimum == 10)
    finish(a)
    until(lambda: b.others(None).members == 0)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        b.publish(at(50), waits=True)
        assert b.others(Millis(20)).ceiling is None
        time.sleep(0.01)


@pytest.mark.service
def test_no_member_counts_as_gone_because_the_server_was_frozen() -> None:
    """What was asked before is answered after it: there was no time without an answer, except for that one."""
    with postgres_service(where=Where.LOCAL) as server:
        assert isinstance(server, LocalPostgres)
        members = [
            HeartbeatClient(GroupStore(database_of(url_of(server))), Identity("g", f"{name}-id", name, 1_000, 3_000))
            for name in "ab"
        ]
        a, b = members
        publish_first(a, at(10))
        publish_first(b, at(50))
        until(lambda: b.others(None).ceiling is None)
        server.pause()
        until(lambda: b.trouble is not None)
        assert b.others(Millis(20)).ceiling == 20
        time.sleep(2)
        server.resume()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            b.publish(at(50), waits=True)
            known = b.others(Millis(20))
            assert known.minimum == 10 or known.ceiling == 20
            time.sleep(0.01)
        until(lambda: b.others(Millis(20)).ceiling is None)
        for member in members:
            member.close()


def test_a_member_that_has_stopped_reporting_is_listed_with_its_silence_and_one_that_reports_is_not_silent(
    make: Make, tmp_path: Path
) -> None:
    a, b = two(make)
    frozen = GroupStore(database_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"))
    frozen.exchange(Identity("g", "frozen-id", "frozen", 1_000, 30_000), at(5))
    frozen.close()
    until(lambda: "frozen" in silent_names(a.others(None).peers))
    peers = {peer.name: peer for peer in a.others(None).peers}
    assert peers.keys() == {"b", "frozen"}
    assert (peers["frozen"].watermark, peers["frozen"].is_waited_for) == (5, True)
    until(lambda: "a" not in silent_names(b.others(None).peers))


def test_a_wait_ends_when_the_silence_of_another_member_begins_and_when_it_ends(make: Make, tmp_path: Path) -> None:
    a, _ = two(make)
    frozen = GroupStore(database_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"))
    identity = Identity("g", "frozen-id", "frozen", 1_000, 30_000)
    frozen.exchange(identity, at(5))
    begun, longest = time.monotonic(), 100
    # On a slow machine the silence of b may begin and end meanwhile.
    while "frozen" not in silent_names(a.others(None).peers):
        a.wait(longest)
    frozen.exchange(identity, at(6))
    while "frozen" in silent_names(a.others(None).peers):
        a.wait(longest)
    assert time.monotonic() - begun < longest
    frozen.close()


@pytest.mark.parametrize(("lasted", "own"), [(2.9, None), (60, True), (601, False)])
def test_a_source_that_did_not_report_knows_for_how_long_and_whether_it_was_waited_for(
    monkeypatch: pytest.MonkeyPatch, lasted: float, own: bool | None
) -> None:
    moment = 100.0
    monkeypatch.setattr(heartbeat_client, "time", SimpleNamespace(monotonic=lambda: moment))
    known = KnownMembers(600_000)
    for _ in range(2):
        answer = Answer(None, None, 0, 0, Millis(int(1_000 * moment)), None, None, None)
        known.update(answer, requested_at=moment, failed=False)
        moment += lasted
    if own is None:
        assert known.own_silence is None
    else:
        assert known.own_silence is not None
        assert (known.own_silence.lasted, known.own_silence.was_waited_for) == (1_000 * lasted, own)


def test_a_list_of_members_that_fails_leaves_no_old_one(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = two(make)
    until(lambda: [peer.name for peer in a.others(None).peers] == ["b"])

    def fails(store: GroupStore, identity: Identity) -> None:
        raise RuntimeError("no list")

    monkeypatch.setattr(GroupStore, "members", fails)
    until(lambda: not a.others(None).peers)
    publish_first(b, at(7))
    until(lambda: a.others(None).minimum == 7)
