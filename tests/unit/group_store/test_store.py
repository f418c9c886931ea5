"""The store in a file and on real servers: what one member reports, the others learn."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, func, select, text, update

from services.containers import Where
from services.postgres import postgres_service, url_of
from services.postgres_local import LocalPostgres
from watermark_source.command_line import main
from watermark_source.errors import CorruptDataError, OptionError, RefusedError, UnreachableError
from watermark_source.group_store import server_database, statements, store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import peers_of
from watermark_source.group_store.server_database import MEMBERS
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.monitor import alignment_group
from watermark_source.planning.group import SILENT_FROM, GroupMember, MemberStatus
from watermark_source.planning.watermark import MIN, Millis

OF_SERVERS = ("watermark_source.group_store.server_database",)
"""Modules that may import SQLAlchemy."""
ACTIVE = MemberStatus.ACTIVE


def who(
    name: str, *, group: str = "g", drift: int | None = 1_000, time_to_live: int = 30_000, writer: str = "one"
) -> Identity:
    return Identity(group, f"{name}-id", name, drift, time_to_live, writer)


def at(watermark: int) -> GroupMember:
    return GroupMember(ACTIVE, Millis(watermark))


def exchange(store: GroupStore, member: Identity, report: GroupMember) -> tuple[int | None, str | None, int]:
    """Let a member report, and return minimum, slowest and number of the others."""
    answer = store.exchange(member, report)
    assert answer is not None
    return answer[:3]


def test_a_member_learns_which_other_member_is_slowest(store: GroupStore) -> None:
    assert exchange(store, who("a"), at(30)) == (None, None, 0)
    assert exchange(store, who("b"), at(10)) == (Millis(30), "a", 1)
    assert exchange(store, who("c"), at(20)) == (Millis(10), "b", 2)
    assert exchange(store, who("b"), at(40)) == (Millis(20), "c", 2)


@pytest.mark.parametrize("status", [MemberStatus.IDLE, MemberStatus.FINISHED, MemberStatus.WAITING, MemberStatus.CLOCK])
def test_a_member_that_is_not_active_does_not_count(store: GroupStore, status: MemberStatus) -> None:
    exchange(store, who("a"), GroupMember(status, Millis(10)))
    assert exchange(store, who("b"), at(50)) == (None, None, 1)


def test_the_answer_has_the_highest_watermark_of_idle_members_and_no_other_that_does_not_count(
    store: GroupStore,
) -> None:
    for name, status, watermark in [("a", "idle", 10), ("b", "idle", 30), ("c", "finished", 70), ("d", "active", 5)]:
        exchange(store, who(name), GroupMember(MemberStatus(status), Millis(watermark)))
    exchange(store, who("e"), GroupMember(MemberStatus.IDLE))
    answer = store.exchange(who("f"), at(50))
    assert answer is not None
    assert (answer.minimum, answer.idle) == (5, 30)


def test_the_other_members_are_listed_with_their_silence_also_after_their_time_to_live(
    store: GroupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(store, who("a", time_to_live=100), at(30))
    exchange(store, who("b"), GroupMember(MemberStatus.IDLE))
    exchange(store, who("elsewhere", group="h"), at(5))
    monkeypatch.setattr(statements, "_SILENT_FOR", 1_000)
    time.sleep(0.15)
    assert exchange(store, who("c"), at(50)) == (None, None, 1)
    rows = {row.source: row for row in store.members(who("c"))}
    assert rows.keys() == {"a", "b"}
    assert rows["a"][1:4] == ("active", 30, 100)
    assert rows["b"][1:4] == ("idle", None, 30_000)
    assert all(row.silent >= 140 for row in rows.values())
    (silent,) = peers_of([rows["a"]._replace(silent=109)])
    assert (silent.name, silent.silent, silent.is_waited_for, silent.time_to_live) == ("a", 109, False, 100)
    monkeypatch.setattr(statements, "_SILENT_FOR", 1)
    assert {row.source for row in store.members(who("c"))} == {"b"}
    monkeypatch.setattr(statements, "_SILENT_FOR", 1_000)
    for number in range(statements.LISTED):
        exchange(store, who(f"more-{number}"), at(5))
    listed = store.members(who("c"))
    assert len(listed) == statements.LISTED
    assert listed[0].source == "a"


def test_a_snapshot_comes_before_everything_and_a_beginning_before_all_that_have_begun(store: GroupStore) -> None:
    exchange(store, who("a"), GroupMember(MemberStatus.STARTING))
    assert exchange(store, who("b"), at(50)) == (Millis(MIN + 1), "a", 1)
    exchange(store, who("c"), GroupMember(MemberStatus.HOLDING))
    assert exchange(store, who("b"), at(50)) == (MIN, "c", 2)


def test_members_that_are_apart_are_counted_and_hold_no_one_back(store: GroupStore) -> None:
    for name, watermark in (("a", 10), ("b", 20), ("c", 30)):
        exchange(store, who(name), at(watermark))
    assert exchange(store, who("d"), at(50)) == (10, "a", 3)
    assert exchange(store, who("d")._replace(apart=("a-id",)), at(50)) == (20, "b", 3)
    assert exchange(store, who("d")._replace(apart=("b-id", "a-id")), at(50)) == (30, "c", 3)
    assert exchange(store, who("d")._replace(apart=("a-id", "b-id", "c-id")), at(50)) == (None, None, 3)


def test_groups_do_not_know_of_each_other(store: GroupStore) -> None:
    exchange(store, who("a"), at(10))
    assert exchange(store, who("a", group="other"), at(20)) == (None, None, 0)


def test_a_member_silent_for_its_time_to_live_does_not_count_until_it_reports_again(store: GroupStore) -> None:
    exchange(store, who("brief"), at(10))
    assert exchange(store, who("b"), at(50))[0] == 10
    exchange(store, who("brief", time_to_live=1, writer="after a restart"), at(10))
    time.sleep(0.1)
    assert exchange(store, who("b"), at(50)) == (None, None, 0)
    exchange(store, who("brief", writer="after another one"), at(12))
    assert exchange(store, who("b"), at(50))[0] == 12


def test_leaving_deletes_the_own_row_and_joining_those_silent_for_long(store: GroupStore, url: str) -> None:
    exchange(store, who("gone", time_to_live=1), at(1))
    time.sleep(0.05)
    exchange(store, who("a"), at(10))
    assert rows_of(url) == 1
    store.leave(who("a"))
    assert rows_of(url) == 0


def test_a_source_that_is_gone_leaves_by_the_command_and_one_that_reports_does_not(
    store: GroupStore, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WATERMARK_SOURCE_ALIGNMENT_STORE", url)
    # Of the command alone: the store's own calls may take as long as ever.
    monkeypatch.setattr(alignment_group, "store_waits", SimpleNamespace(CUT_AFTER=0.1, MOST_EASE=0.1))
    of_group = ["group", "--alignmentGroup", "g"]
    assert main([*of_group, "list"]) == 0
    assert capsys.readouterr().out == f"the group g has no source in {store.location}\n"
    exchange(store, who("orders"), at(10))
    assert main([*of_group, "leave", "orders"]) == 2
    assert "leave orders: it reports, and would be in the group again at once" in capsys.readouterr().err
    assert main(["group", "leave", "carts", "--alignmentGroup", "g"]) == 2
    assert "leave carts: the group g has the sources orders" in capsys.readouterr().err
    assert main([*of_group, "leave", "list"]) == 2
    assert "leave list: the group g has the sources orders" in capsys.readouterr().err
    assert main(["group", "--alignmentGroup", "leave", "list"]) == 0
    assert capsys.readouterr().out == f"the group leave has no source in {store.location}\n"
    changed(url, f"seen = seen - {SILENT_FROM}", "orders")
    exchange(store, who("clicks"), at(50))
    assert main([*of_group, "list"]) == 0
    assert re.match(r"orders: active, 1970-01-01 00:00:00.010, reported .* ago\nclicks: ", capsys.readouterr().out)
    # One on a slow store reports again after a while.
    with monkeypatch.context() as slow:
        # Of the command alone: threads of earlier tests sleep, too.
        sleep = SimpleNamespace(sleep=lambda _: exchange(store, who("orders"), at(11)))
        slow.setattr(alignment_group, "time", sleep)
        assert main([*of_group, "leave", "orders"]) == 2
        assert "leave orders: it reports" in capsys.readouterr().err
    changed(url, f"seen = seen - {SILENT_FROM}", "orders")
    assert main([*of_group, "leave", "orders"]) == 0
    # What remains is reported.
    assert re.match(r"orders has left the group g\nclicks: active, .* ago\n$", capsys.readouterr().out)
    assert exchange(store, who("clicks"), at(50)) == (None, None, 0)
    for number in range(statements.LISTED):
        exchange(store, who(f"more-{number}"), at(5))
    assert main([*of_group, "list"]) == 0
    assert capsys.readouterr().out.endswith("there may be more: these 50 have reported nothing for longest\n")


@pytest.mark.parametrize("place", [None, "driver"])
def test_the_command_needs_the_database_of_a_group(
    place: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WATERMARK_SOURCE_ALIGNMENT_STORE", raising=False)
    if place is not None:
        monkeypatch.setenv("WATERMARK_SOURCE_ALIGNMENT_STORE", place)
    assert main(["group", "--alignmentGroup", "g", "list"]) == 2
    assert "as the environment variable WATERMARK_SOURCE_ALIGNMENT_STORE" in capsys.readouterr().err
    assert main(["group", "--alignmentGroup", "g"]) == 2
    assert "group: what is to be done is missing; end the command with list, or leave SOURCE" in capsys.readouterr().err


def rows_of(url: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(select(func.count()).select_from(MEMBERS)).scalar_one()
    engine.dispose()
    return found


def test_a_killed_members_last_report_holds_until_its_next_process_reports(store: GroupStore) -> None:
    exchange(store, who("a"), at(10))
    assert store.exchange(who("a", writer="after a restart"), None) is not None
    assert exchange(store, who("b"), at(50)) == (Millis(10), "a", 1)
    exchange(store, who("a", writer="after a restart"), at(12))
    assert exchange(store, who("b"), at(50))[0] == 12


def test_of_two_processes_with_one_name_the_first_learns_that_the_second_has_the_row(store: GroupStore) -> None:
    exchange(store, who("a", writer="first"), at(10))
    exchange(store, who("a", writer="second"), at(5))
    assert store.exchange(who("a", writer="first"), at(20), takes_over=False) is None
    # Nothing was written, and its leaving takes nothing away.
    store.leave(who("a", writer="first"))
    assert exchange(store, who("b"), at(50)) == (Millis(5), "a", 1)
    assert store.exchange(who("a", writer="second"), at(6), takes_over=False) is not None


@pytest.mark.parametrize("hours", [-1, 1])
def test_after_the_stores_clock_is_set_a_member_counts_from_its_next_report(
    store: GroupStore, url: str, hours: int
) -> None:
    exchange(store, who("a"), at(10))
    exchange(store, who("dead"), at(1))
    engine = create_engine(url)
    with engine.begin() as connection:
        # The clock continues by an hour, or back: seen from it all was heard of so much earlier, or later.
        connection.execute(update(MEMBERS).values(seen=MEMBERS.c.seen - hours * 3_600_000))
    engine.dispose()
    assert exchange(store, who("b"), at(50)) == (None, None, 0)
    exchange(store, who("a"), at(11))
    assert exchange(store, who("b"), at(50)) == (Millis(11), "a", 1)


def test_the_lowest_drift_of_the_living_members_counts(store: GroupStore) -> None:
    def drift_of_others(member: Identity) -> tuple[int | None, str | None]:
        answer = store.exchange(member, at(10))
        assert answer is not None
        return answer.drift, answer.drift_of

    assert drift_of_others(who("a", drift=3_000)) == (None, None)
    assert drift_of_others(who("clock", drift=None)) == (3_000, "a")
    assert drift_of_others(who("b", drift=1_000)) == (3_000, "a")
    assert drift_of_others(who("c", drift=2_000)) == (1_000, "b")
    # Its own is no other's, and of equal ones the first by name.
    assert drift_of_others(who("b", drift=1_000)) == (2_000, "c")
    assert drift_of_others(who("d", drift=1_000)) == (1_000, "b")
    # Another process of the member brings another drift, with its first statement.
    assert store.exchange(who("d", drift=5_000, writer="after a restart"), None) is not None
    # One whose time to live has passed does not count.
    assert drift_of_others(who("b", drift=1_000, time_to_live=1, writer="after a restart")) == (2_000, "c")
    time.sleep(0.1)
    assert drift_of_others(who("a", drift=3_000)) == (2_000, "c")


@pytest.mark.parametrize(
    "rubbish",
    ["counts_with = 'abc'", "counts_with = 12.5", "source = NULL", "source = x'ff00'", "max_drift = -5",
     """max_drift = '{"a":'"""],
)  # fmt: skip
def test_what_no_member_writes_is_an_error_and_no_limit(tmp_path: Path, rubbish: str) -> None:
    """Someone wrote it by hand, into a table without rules: of what a row states none is treated as the group's."""
    url = f"sqlite:///{tmp_path / 'alignment.sqlite'}"
    store = GroupStore(database_of(url))
    exchange(store, who("a"), at(10))
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE free AS SELECT * FROM watermark_source_members",
            "DROP TABLE watermark_source_members",
            "ALTER TABLE free RENAME TO watermark_source_members",
            "CREATE UNIQUE INDEX its_key ON watermark_source_members (group_name, member)",
            f"UPDATE watermark_source_members SET {rubbish}",
        ):
            connection.execute(text(statement))
    engine.dispose()
    with pytest.raises(
        CorruptDataError, match=f"column {rubbish.split(maxsplit=1)[0]} of table .* no member writes, .*: delete"
    ):
        store.exchange(who("b"), at(50))
    store.close()


def changed(url: str, setting: str, name: str = "a") -> None:
    """Change a member's row as another program does that may write to the store."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE watermark_source_members SET {setting} WHERE member = '{name}-id'"))
    engine.dispose()


def test_a_row_that_claims_to_live_for_ever_counts_for_a_day(
    store: GroupStore, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(store, who("a"), at(10))
    changed(url, "time_to_live = 1000000000000000")
    for _ in range(2):
        assert exchange(store, who("b"), at(50)) == (Millis(10), "a", 1)
    (line,) = caplog.messages
    assert "has a row of a whose time_to_live is more than a day, which counts as a day" in line
    changed(url, f"seen = seen - {86_400_000 + 60_000}")
    assert exchange(store, who("b"), at(50)) == (None, None, 0)
    changed(url, "time_to_live = 9223372036854775807, seen = 0")
    assert exchange(store, who("c"), at(60)) == (Millis(50), "b", 1)


@pytest.mark.parametrize(
    ("seen", "time_to_live"), [(-(2**63), 2**63 - 1), (2**63 - 1, 2**63 - 1), (0, -(2**63)), (-(2**63), -(2**63))]
)
def test_numbers_at_the_ends_of_64_bits_are_no_member_that_is_alive(
    store: GroupStore, url: str, seen: int, time_to_live: int
) -> None:
    exchange(store, who("a"), at(10))
    changed(url, f"seen = {seen}, time_to_live = {time_to_live}")
    assert exchange(store, who("b"), at(50)) == (None, None, 0)
    store.leave(who("b"))


@pytest.mark.parametrize("watermark", [6_249_223_000_000_000, 2**63 - 1])
@pytest.mark.parametrize("status", ["active", "idle"])
def test_a_watermark_after_the_year_9999_is_ignored(
    store: GroupStore, url: str, status: str, watermark: int, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(store, who("a"), at(10))
    counts = watermark if status == "active" else "NULL"
    changed(url, f"watermark = {watermark}, counts_with = {counts}, status = '{status}'")
    for _ in range(2):
        answer = store.exchange(who("b"), at(50))
        assert answer is not None
        assert (answer.minimum, answer.slowest, answer.idle, answer.members) == (None, None, None, 1)
    (line,) = caplog.messages
    assert "after the year 9999" in line


def test_a_name_of_any_length_and_of_any_characters_is_one_short_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'alignment.sqlite'}"
    store = GroupStore(database_of(url))
    exchange(store, who("a"), at(10))
    changed(
        url,
        "source = 'x' || char(10) || 'WARN all is well' || char(27) || '[2J' || replace(hex(zeroblob(5000)), '0', 'y')",
    )
    answer = store.exchange(who("b"), at(50))
    assert answer is not None
    assert answer.slowest is not None
    assert answer.slowest.startswith("x?WARN all is well?[2Jy")
    assert len(answer.slowest) == 190
    store.close()


def test_a_table_with_a_foreign_constraint_is_an_error_and_not_a_row_of_another_process(
    store: GroupStore, url: str
) -> None:
    """Who took it for one would take another name, and another, for ever."""
    exchange(store, who("a"), at(10))
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE UNIQUE INDEX foreign_rule ON watermark_source_members (time_to_live)"))
    engine.dispose()
    with pytest.raises(RefusedError, match="refuses"):
        store.exchange(who("b"), at(50))


def test_members_may_all_come_at_once(url: str) -> None:
    found: list[Exception] = []

    def join(number: int) -> None:
        own = GroupStore(database_of(url))
        try:
            for turn in range(20):
                own.exchange(who(f"m{number}"), at(100 * number + turn))
        except Exception as error:  # noqa: BLE001 - shown below
            found.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=join, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == []
    store = GroupStore(database_of(url))
    assert exchange(store, who("last"), at(9_999)) == (Millis(19), "m0", 8)
    store.close()


def test_a_store_that_is_lost_is_an_error_and_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    store = GroupStore(database_of(f"sqlite:///{folder / 'alignment.sqlite'}"))
    with pytest.raises(UnreachableError, match="does not answer: unable to open database file"):
        store.exchange(who("a"), at(1))
    folder.mkdir()
    assert exchange(store, who("a"), at(1)) == (None, None, 0)


def test_a_password_is_never_shown() -> None:
    for url in ("postgresql+psycopg://user:hidden@h/db", "postgresql+psycopg://h/db?password=hidden"):
        assert GroupStore(database_of(url)).location == "postgresql h/db"


@pytest.mark.parametrize(
    ("url", "logged"),
    [
        ("shared by all:hidden@", "must be the URL of a database in SQLAlchemy's form, and this one is not"),
        ("nothing://user:hidden@host/db", "must be the URL of a database"),
        ("postgresql://user:pass@hidden:word@h:x/db", "and this one is not"),
        ("sqlite://", "other processes cannot open a database in memory"),
        ("sqlite:///:memory:", "other processes cannot open a database in memory"),
        ("sqlite://user:hidden@/nowhere/at/all", "must be sqlite:/// and the path of a file, without a user"),
        ("sqlite:///nowhere/at/all?password=hidden", "must be sqlite:/// and the path of a file, without a user"),
        ("postgresql+pg8000://user:hidden@host/db", "needs the package of that database: No module named 'pg8000'"),
        ("sqlite+aiosqlite:///hidden", "needs the package of that database: No module named 'aiosqlite'"),
    ],
)
def test_what_is_no_store_is_refused_without_showing_it(url: str, logged: str) -> None:
    with pytest.raises(OptionError, match="alignmentStore") as caught:
        database_of(url)
    assert logged in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_server_needs_sqlalchemy_and_a_file_does_not(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["sqlalchemy"] = None
import importlib, pkgutil
import watermark_source
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import peers_of
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.spark.driver import group_membership
from watermark_source.errors import OptionError

member = Identity("g", "a", "a", 1_000, 30_000, "one")
store = GroupStore(database_of("sqlite:///" + sys.argv[1]))
assert store.exchange(member, None).members == 0
store.leave(member)
store.close()
for name in ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm", "watermark_source"):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if found.name not in SERVERS:
            importlib.import_module(found.name)
try:
    database_of("postgresql+psycopg://user:hidden@h/db")
except OptionError as error:
    print(error)
""".replace("SERVERS", repr(OF_SERVERS))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.sqlite")],
        # What is imported is the same, without twelve seconds of compiling.
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "install it with: pip install 'sqlalchemy" in done.stdout
    assert "hidden" not in done.stdout


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_that_accepts_and_sends_nothing_does_not_answer_in_time(
    silent: int, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"connect_timeout": 2, "read_timeout": 2} if "mysql" in driver else {"connect_timeout": 2}
    monkeypatch.setattr(server_database, "_BY_DRIVER", {driver.partition("+")[2]: limits})
    store = GroupStore(database_of(f"{driver}://user:hidden@127.0.0.1:{silent}/db"))
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="does not answer") as caught:
        store.exchange(who("a"), at(1))
    assert time.monotonic() - begun < 60
    assert "hidden" not in str(caught.value)


@pytest.mark.service
def test_a_server_that_is_frozen_or_killed_is_an_error_in_time_and_is_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_waits, "CUT_AFTER", 1)
    with postgres_service(where=Where.LOCAL) as server:
        assert isinstance(server, LocalPostgres)
        store = GroupStore(database_of(url_of(server)))
        exchange(store, who("a"), at(10))
        server.pause()
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match="does not answer"):
            store.exchange(who("a"), at(11))
        assert time.monotonic() - begun < 60
        server.resume()
        # What was sent meanwhile may have come.
        assert exchange(store, who("b"), at(50)) in [(Millis(10), "a", 1), (Millis(11), "a", 1)]
        server.kill()
        with pytest.raises(UnreachableError, match="does not answer"):
            store.exchange(who("b"), at(50))
        server.start()
        assert exchange(store, who("b"), at(50)) in [(Millis(10), "a", 1), (Millis(11), "a", 1)]
        store.close()


@pytest.mark.service
def test_a_statement_that_waits_for_a_lock_ends_in_time(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"psycopg": {"options": "-c statement_timeout=500"}}
    monkeypatch.setattr(server_database, "_BY_DRIVER", limits)
    store = GroupStore(database_of(postgres_url))
    exchange(store, who("a"), at(10))
    engine = create_engine(postgres_url)
    with engine.connect() as other, other.begin():
        other.execute(update(MEMBERS).values(watermark=0))
        with pytest.raises(UnreachableError, match="statement timeout"):
            store.exchange(who("a"), at(11))
    engine.dispose()
    store.close()
