"""Tables that are dropped, emptied or made again while they are read: nothing ends, and a batch repeated is equal."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.snapshot import consistent_view
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from services.mysql_client import connect
from services.wait_until import wait_until
from tests.integration.mysql_binlog import Database, shorten
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import make_user
from tests.integration.mysql_tables import TABLE, Tables, applied, batch, fill, on_server
from watermark_source.errors import RefusedError, UnsupportedFormatError

pytestmark = pytest.mark.service


def test_tables_that_are_dropped_end_nothing(
    mysql_database: Database, looks_often: None, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    for name in ("a", "b", "c", "t"):
        fill(database, name, 60)
    life = Life(database, tables=f"{database.name}.*", snapshotChunkRows=20, snapshotParallelism=2)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    # While its first chunks are planned and not yet read, between two of its batches, and before its turn.
    start, end = end, life.reader.latestOffset(end, ALL)
    database.run("DROP TABLE a")
    with caplog.at_level(logging.WARNING):
        assert batch(life, start, end) == []
        assert "a was dropped before" in caplog.text
        start, end = end, life.reader.latestOffset(end, ALL)
        applied(batch(life, start, end), tables)
        database.run("DROP TABLE c")
        time.sleep(0.2)
        for _ in range(30):
            start, end = end, life.reader.latestOffset(end, ALL)
            applied(batch(life, start, end), tables)
            if start == end:
                break
            time.sleep(0.05)
        assert "gone before the snapshot was read to its end" in caplog.text
        assert {name: tables.get(name) for name in ("b", "t")} == on_server(database, "b", "t")
        # After its snapshot; and one of the same name is another table, whose rows are reported from its beginning.
        database.run("DROP TABLE b", TABLE.format("b"), "INSERT INTO b VALUES (1001, 'new', 1)")
        start, end = end, life.reader.latestOffset(end, ALL)
        assert [(row["_table"], row["id"]) for row in batch(life, start, end)] == [("b", 1001)]
        assert ".b was dropped; no deletions follow for its delivered rows" in caplog.text
    life.reader.stop()


def test_a_query_whose_tables_are_all_dropped_takes_the_snapshots_of_those_that_come(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t_1", 60)
    fill(database, "hidden", 30)
    chosen = {"tables": f"{database.name}.t_*,{database.name}.new_*", "snapshotChunkRows": 20, "snapshotParallelism": 2}
    life = Life(database, **chosen)
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    batch(life, start, end)
    database.run("DROP TABLE t_1")
    time.sleep(0.2)
    start, end = end, life.reader.latestOffset(end, ALL)
    assert batch(life, start, end) == []
    life.reader.stop()
    # It comes in whole: the binlog has none of its rows from here on.
    database.run("RENAME TABLE hidden TO new_one")
    again = Life(database, **chosen)
    tables: Tables = {}
    while (start := end) != (end := again.reader.latestOffset(end, ALL)):
        applied(batch(again, start, end), tables)
    again.reader.stop()
    assert tables == on_server(database, "new_one")


@pytest.mark.parametrize("starting", ["initial", "latest"])
def test_a_database_that_is_dropped_is_reported(
    starting: str, mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    fill(mysql_database, "t", 3)
    other = f"{mysql_database.name}_other"
    mysql_database.run(f"CREATE DATABASE {other}", f"CREATE DATABASE {other}_2")
    fill(mysql_database, f"{other}.t", 3)
    life = Life(mysql_database, tables=f"{mysql_database.name}.t,{other}.t", startingOffsets=starting)
    end: Mapping[str, Any] = life.reader.initialOffset()
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        batch(life, start, end)
    mysql_database.run(f"DROP DATABASE {other}", f"DROP DATABASE {other}_2")
    start, end = end, life.reader.latestOffset(end, ALL)
    assert batch(life, start, end) == []
    life.reader.stop()
    assert f"the database {other} was dropped; no deletions follow for rows that its tables delivered" in caplog.text
    assert f"{other}_2" not in caplog.text


def test_a_chunk_of_a_table_that_is_locked_for_longer_than_two_waits_says_so_and_comes_whole(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here of a second each; of fifty, and five minutes in all, where no one is in a hurry."""
    session = consistent_view._OF_A_VIEW
    shorter = tuple(each.replace("lock_wait_timeout = 50", "lock_wait_timeout = 1") for each in session)
    assert shorter != session
    monkeypatch.setattr(consistent_view, "_OF_A_VIEW", shorter)
    fill(mysql_database, "t", 10)
    life = Life(mysql_database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    server = mysql_database.server
    with (
        connect(server.host, server.port, database=mysql_database.name) as holder,
        holder.cursor() as cursor,
        ThreadPoolExecutor(1) as pool,
    ):
        cursor.execute("LOCK TABLES t WRITE")
        rows = pool.submit(life.rows, start, end)
        wait_until(lambda: caplog.text.count("waiting to read it") > 2, 60, "the chunk says that it waits")
        assert not rows.done()
        cursor.execute("UNLOCK TABLES")
        assert len(rows.result(60)) == 10
    life.reader.stop()
    assert f"{mysql_database.name}.t is locked, or about to be altered: waiting to read it" in caplog.text


def test_a_query_is_loaded_and_waits_while_its_table_is_locked(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyspark_mysql_cdc_wm.client.connection.LOCK_WAIT_SECONDS", 1)
    # Here of five seconds; of a minute, after which a server that does not answer is treated as gone.
    monkeypatch.setattr("pyspark_mysql_cdc_wm.client.login_settings.PATIENCE_SECONDS", 5)
    shorten(monkeypatch, answer_seconds=5)
    database, server = mysql_database, mysql_database.server
    fill(database, "t", 10)
    make_user(server, "sees", "REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*", f"INSERT ON {database.name}.t")
    with connect(server.host, server.port, database=database.name) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        life = Life(database)
        start: Mapping[str, Any] = life.reader.initialOffset()
        assert life.reader.latestOffset(start, ALL) == start
        assert f"{database.name}.t is locked, or about to be altered: its snapshot waits" in caplog.text
        with pytest.raises(RefusedError, match="may not read"):
            Life(database, username="sees")
        cursor.execute("UNLOCK TABLES")
    assert len(life.rows(start, life.reader.latestOffset(start, ALL))) == 10
    life.reader.stop()


def test_a_table_dropped_since_the_tables_were_listed_is_left_out(mysql_database: Database) -> None:
    for name in ("t", "u"):
        fill(mysql_database, name, 10)
    life = Life(mysql_database, tables=f"{mysql_database.name}.*")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mysql_database.run("DROP TABLE t")
    end = life.reader.latestOffset(start, ALL)
    life.reader.stop()
    assert end["snapshot"] == {f"{mysql_database.name}.t": [], f"{mysql_database.name}.u": [None]}


def test_a_table_made_anew_before_its_turn_is_read_in_the_order_it_has_then(mysql_database: Database) -> None:
    database = mysql_database
    by_name = "CREATE TABLE {} (id INT, name VARCHAR(40) COLLATE utf8mb4_%s PRIMARY KEY, amount BIGINT)"
    fill(database, "t", 2)
    fill(database, "u", 2, declared=by_name % "bin")
    life = Life(database, tables=f"{database.name}.*", snapshotChunkRows=1, snapshotParallelism=1)
    end: Mapping[str, Any] = life.reader.initialOffset()
    tables: Tables = {}
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    database.run("DROP TABLE u")
    fill(database, "u", 3, declared=by_name % "general_ci")
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t", "u")


def waits_for_a_table(database: Database) -> bool:
    states = database.run("SELECT STATE FROM information_schema.PROCESSLIST")
    return any("table metadata lock" in str(state) for (state,) in states)


def test_a_table_that_is_dropped_while_a_chunk_is_read_comes_whole_and_when_retried_as_the_binlog_has_it(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    fill(database, "t", 10)
    life = Life(database)
    tables: Tables = {}
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = -1 WHERE id = 4", "DELETE FROM t WHERE id = 6")
    hold = ConsistentView.hold
    with ThreadPoolExecutor() as pool:
        dropping: list[Future[Any]] = []

        def held_and_to_be_dropped(view: ConsistentView, tables: Iterable[TableName]) -> frozenset[TableName]:
            there = hold(view, tables)
            dropping.append(pool.submit(database.run, "DROP TABLE t"))
            wait_until(lambda: waits_for_a_table(database), 60, "the statement that waits")
            return there

        with monkeypatch.context() as patched:
            patched.setattr(ConsistentView, "hold", held_and_to_be_dropped)
            first = life.rows(start, end)
        dropping[0].result(90)
    assert sorted((row["id"], row["amount"]) for row in first) == [(2 * i, i) for i in range(10)]
    assert "dropped before" not in caplog.text
    again = batch(life, start, end)
    assert [(row["id"], row["amount"]) for row in again] == [(4, 2), (6, 3)]
    assert "t was dropped before" in caplog.text
    # Their changes come next, and fit.
    applied(again, tables)
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    assert tables == {"t": {4: (4, "n2", -1)}}
    life.reader.stop()


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE t",),
        ("DROP TABLE t", TABLE.format("t"), "INSERT INTO t VALUES (4, 'new', 1), (5, 'new', 1)"),
        (
            "DROP TABLE t",
            "CREATE TABLE t (name VARCHAR(40) PRIMARY KEY, id INT, amount BIGINT)",
            "INSERT INTO t VALUES ('new', 4, 1)",
            "UPDATE t SET name = 'newer'",
        ),
        (
            "DROP TABLE t",
            "CREATE TABLE t (id INT, name VARCHAR(40), amount BIGINT)",
            "INSERT INTO t VALUES (4, 'new', 1)",
        ),
        (
            "DROP DATABASE {}",
            "CREATE DATABASE {}",
            "USE {}",
            "CREATE TABLE t (name VARCHAR(40) PRIMARY KEY, id INT, amount BIGINT)",
            "INSERT INTO t VALUES ('new', 4, 1)",
        ),
    ],
    ids=["gone", "as before", "another key", "no key", "with its database"],
)
def test_of_a_table_that_is_another_one_now_a_chunk_has_what_the_binlog_has_of_the_old_one(
    statements: Sequence[str], mysql_database: Database
) -> None:
    database = mysql_database
    fill(database, "t", 10)
    fill(database, "u", 1)
    life = Life(database, tables=f"{database.name}.t")
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = -1 WHERE id = 4", *(each.format(database.name) for each in statements))
    assert [(row["id"], row["amount"]) for row in batch(life, start, end)] == [(4, 2)]
    life.reader.stop()


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD COLUMN more INT FIRST, ALGORITHM = COPY", "TRUNCATE t"])
def test_a_table_that_is_redefined_after_the_view_of_a_chunk_began_is_seen_as_it_is(
    statement: str, mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(mysql_database, "t", 10)
    life = Life(mysql_database, ignoredChanges="columns")
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    hold = ConsistentView.hold

    def redefined_before(view: ConsistentView, tables: Iterable[TableName]) -> frozenset[TableName]:
        monkeypatch.setattr(ConsistentView, "hold", hold)
        mysql_database.run(statement)
        return hold(view, tables)

    monkeypatch.setattr(ConsistentView, "hold", redefined_before)
    if statement.startswith("ALTER"):
        assert sorted(row["id"] for row in life.rows(start, end)) == [2 * i for i in range(10)]
    else:
        with pytest.raises(UnsupportedFormatError, match=r"TRUNCATE t: it changed .*\.t as a whole"):
            life.rows(start, end)
    life.reader.stop()


def test_a_table_recreated_while_a_chunk_of_it_waits_is_reported_once(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 10)
    life = Life(database)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    database.run("DROP TABLE t", TABLE.format("t"), "INSERT INTO t VALUES (4, 'new', 1), (5, 'new', 1)")
    applied(batch(life, start, end), tables)
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t")
