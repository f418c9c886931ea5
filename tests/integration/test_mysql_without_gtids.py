"""Snapshots of servers without GTIDs, which do not show what of their binlog can be seen: exact all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_client import run
from services.mysql_program import Flavour
from services.wait_until import wait_until
from tests.integration.mysql_binlog import Database, new_database, purge_before_end
from tests.integration.mysql_keep_alives import keep_alives
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from tests.integration.test_mysql_snapshot import snapshot_under_load
from watermark_source.errors import DataLossError, SourceError, UnsupportedFormatError

pytestmark = pytest.mark.service

_SETTINGS = {
    "gtid_mode": "OFF",
    "enforce_gtid_consistency": "OFF",
    "max_binlog_size": str(4 * 1024 * 1024),
    "plugin_load_add": "semisync_source.so",
    "loose_rpl_semi_sync_source_timeout": "600000",
}
_HOLD = "SET GLOBAL rpl_semi_sync_source_enabled = {}"
_SECONDS = 120


@contextmanager
def server_without_gtids() -> Iterator[MySql]:
    with mysql_service(config=_SETTINGS, flavour=Flavour.MYSQL, where=Where.LOCAL) as made:
        make_user(made, USER, *RIGHTS)
        yield made


@contextmanager
def database_of_its_own() -> Iterator[Database]:
    """On a server that no other test has: GTIDs can be switched on there."""
    with server_without_gtids() as server, new_database(server) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[MySql]:
    with server_without_gtids() as made:
        yield made


@pytest.fixture
def database(server: MySql) -> Iterator[Database]:
    with new_database(server) as made:
        yield made


def test_every_replay_under_load_gives_equal_rows_and_the_last_state_is_the_servers(database: Database) -> None:
    found = snapshot_under_load(database, 1)
    assert found.replays > 5


@contextmanager
def written_and_not_committed(database: Database, *transactions: tuple[str, ...]) -> Iterator[Callable[[], None]]:
    """Leave transactions in the binlog that no one sees in the tables, for want of a replica, until they are let go."""
    server = database.server

    def end() -> tuple[object, ...]:
        return run(server.host, server.port, "SHOW BINARY LOG STATUS")[0][:2]

    run(server.host, server.port, _HOLD.format("ON"))
    with ThreadPoolExecutor() as pool:
        running = []
        try:
            for statements in transactions:
                before = end()
                running.append(pool.submit(database.run, "BEGIN", *statements, "COMMIT"))
                wait_until(lambda: end() != before, _SECONDS, "a transaction in the binlog")  # noqa: B023
            assert not any(each.done() for each in running)

            def let_go() -> None:
                run(server.host, server.port, _HOLD.format("OFF"))
                for each in running:
                    each.result(_SECONDS)

            yield let_go
        finally:
            run(server.host, server.port, _HOLD.format("OFF"))


def test_what_is_in_the_binlog_and_not_seen_yet_is_in_the_snapshot_once(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
        "INSERT INTO t VALUES " + ", ".join(f"({i}, 'n', {i})" for i in range(40)),
    )
    life = Life(database, snapshotChunkRows=20, snapshotParallelism=4)
    start: Mapping[str, Any] = life.reader.initialOffset()
    changes = (
        "UPDATE t SET amount = -1 WHERE id = 3",
        "UPDATE t SET amount = -2 WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
    )
    others = ("INSERT INTO t VALUES (100, 'new', 1)", "UPDATE t SET id = 101 WHERE id = 30")
    with written_and_not_committed(database, changes, others) as let_go:
        end = life.reader.latestOffset(start, ALL)
        assert {row[0] for row in database.run("SELECT id FROM t")} == set(range(40))
        unseen = sorted(life.changes(start, end))
        let_go()
        # One that was written before is changed once more.
        database.run("UPDATE t SET amount = -3 WHERE id = 3", "DELETE FROM t WHERE id = 101")
        assert sorted(life.changes(start, end)) == unseen
    found = {change[3]: change[5] for change in unseen}
    assert {change[2] for change in unseen} == {"insert"}
    assert len(found) == len(unseen)
    assert found == {**{i: i for i in range(40) if i not in (4, 30)}, 3: -2, 100: 1, 101: 30}
    start, end = end, life.reader.latestOffset(end, ALL)
    rest = [change[2:4] for change in sorted(life.changes(start, end))]
    assert rest == [("update_preimage", 3), ("update_postimage", 3), ("delete", 101)]
    life.reader.stop()


def test_a_table_that_was_emptied_or_altered_in_the_last_file_is_read_as_it_was_after_that(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)", "UPDATE t SET amount = 5",
        "TRUNCATE TABLE t", "INSERT INTO t VALUES (2, 'c', 3), (7, 'd', 4)", "DELETE FROM t WHERE id = 7",
        "CREATE TABLE u (id INT, name VARCHAR(40), amount BIGINT, PRIMARY KEY (id, name))",
        "INSERT INTO u VALUES (1, 'a', 1)", "ALTER TABLE u DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
        "INSERT INTO u VALUES (2, 'b', 2)",
    )  # fmt: skip
    for table, expected in (("t", [(2, "c", 3)]), ("u", [(1, "a", 1), (2, "b", 2)])):
        life = Life(database, tables=f"{database.name}.{table}")
        start: Mapping[str, Any] = life.reader.initialOffset()
        found = sorted(life.changes(start, life.reader.latestOffset(start, ALL)))
        life.reader.stop()
        assert [change[3:] for change in found] == expected


def test_what_was_defined_long_after_a_change_of_the_last_file_counts(database: Database) -> None:
    other = f"{database.name}_x"
    columns = "(id INT PRIMARY KEY, name VARCHAR(40), amount {})"
    filler = ", ".join(f"({i}, '{'x' * 900}')" for i in range(3_500))
    database.run(
        "CREATE TABLE t " + columns.format("INT"), "INSERT INTO t VALUES (1, 'a', 1)",
        f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t " + columns.format("INT"),
        f"INSERT INTO {other}.t VALUES (5, 'gone', 5)",
        # More than one block of what is received.
        "CREATE TABLE filler (id INT PRIMARY KEY, body VARCHAR(1000))", f"INSERT INTO filler VALUES {filler}",
        "ALTER TABLE t MODIFY amount VARCHAR(10)", "INSERT INTO t VALUES (2, 'b', 'two')",
        f"DROP DATABASE {other}", f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t " + columns.format("INT"),
        f"INSERT INTO {other}.t VALUES (6, 'here', 6)",
    )  # fmt: skip
    try:
        for name, expected in ((database.name, [(1, "a", "1"), (2, "b", "two")]), (other, [(6, "here", 6)])):
            life = Life(database, tables=f"{name}.t")
            start: Mapping[str, Any] = life.reader.initialOffset()
            found = sorted(life.changes(start, life.reader.latestOffset(start, ALL)))
            life.reader.stop()
            assert [change[3:] for change in found] == expected
    finally:
        database.run(f"DROP DATABASE {other}")


def test_the_server_hears_of_a_view_while_what_it_may_not_see_is_taken_from_the_binlog(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    life = Life(database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = 5")
    passes = keep_alives(database.server, monkeypatch)
    assert [change[3:] for change in life.changes(start, end)] == [(1, "a", 1)]
    life.reader.stop()
    # What defined the table last, what a SELECT may not see, and what is undone.
    assert len(passes) == 3
    assert all(kept and all(kept) for kept in passes), passes


def test_without_gtids_it_is_unknown_whether_a_purged_part_was_read(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)")
    start: Mapping[str, Any] = Life(database, startingOffsets="latest").reader.initialOffset()
    database.run("FLUSH BINARY LOGS")
    end = Life(database).reader.latestOffset(start, ALL)
    purge_before_end(database)
    with pytest.raises(DataLossError, match="what was between, if anything, was deleted before it was read"):
        Life(database).reader.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match="the server does not have this file of the binlog: it was purged"):
        Life(database).changes(start, end)
    assert Life(database, failOnDataLoss="false").changes(start, end) == []


def test_gtids_that_are_switched_on_within_a_snapshot_end_the_query_which_then_goes_on() -> None:
    with database_of_its_own() as database:
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
            "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        )
        options = {"snapshotChunkRows": 1, "snapshotParallelism": 1}
        life = Life(database, **options)
        end = life.reader.latestOffset(life.reader.initialOffset(), ALL)
        database.run("SET GLOBAL enforce_gtid_consistency = ON")
        database.run(*(f"SET GLOBAL gtid_mode = {mode}" for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")))
        with pytest.raises(UnsupportedFormatError, match=r"gtid_mode was set to ON .* Start the query again"):
            life.reader.latestOffset(end, ALL)
        life.reader.stop()
        again = Life(database, **options)
        assert [change[3] for change in again.changes(end, again.reader.latestOffset(end, ALL))] == [2]
        again.reader.stop()


def test_what_was_written_in_the_other_gtid_mode_is_an_error_that_says_how_to_read_it() -> None:
    with database_of_its_own() as database:
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
            "SET GLOBAL enforce_gtid_consistency = ON",
        )

        def switch(*modes: str) -> None:
            database.run(*(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))

        def behind(last: str) -> list[int]:
            life = Life(database)
            found = life.changes(start, life.reader.latestOffset(start, ALL))
            life.reader.stop()
            assert found[-1][4] == last
            return [change[3] for change in found]

        start: Mapping[str, Any] = Life(database, startingOffsets="latest").reader.initialOffset()
        database.run("INSERT INTO t VALUES (1, 'without', 1)")
        switch("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
        with pytest.raises(SourceError, match=r"anonymous transaction.* SET GLOBAL gtid_mode = ON_PERMISSIVE, start"):
            behind("without")
        switch("ON_PERMISSIVE")
        assert behind("without") == [1]
        start = Life(database, startingOffsets="latest").reader.initialOffset()
        switch("ON")
        database.run("INSERT INTO t VALUES (2, 'with', 2)")
        assert behind("with") == [2]
        switch("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
        with pytest.raises(SourceError, match=r"GTID.transaction.* SET GLOBAL gtid_mode = OFF_PERMISSIVE, start"):
            behind("with")
        switch("OFF_PERMISSIVE")
        assert behind("with") == [2]
