"""Which tables a stream is of: patterns, and tables that come, go or are chosen later, exactly as on the server."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.lookup import table_list
from pyspark_mysql_cdc_wm.lookup.bounds import BinlogBounds
from pyspark_mysql_cdc_wm.reading.snapshot_rows import SnapshotRows
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import MySqlStreams
from tests.integration.mysql_writers import writers
from watermark_source.errors import SchemaError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
Tables = dict[str, dict[int, tuple[Any, ...]]]


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_list, "LOOK_SECONDS", 0.1)


def fill(database: Database, table: str, rows: int, *, declared: str = _TABLE) -> None:
    values = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(rows))
    database.run(declared.format(table), f"INSERT INTO {table} VALUES {values}")


def applied(rows: Iterable[Mapping[str, Any]], tables: Tables) -> None:
    """Make tables what they are after some changes, each of which must fit."""
    for row in sorted(rows, key=lambda row: (row["_commit_version"], row["_table"], row["_change_number"])):
        table = tables.setdefault(row["_table"], {})
        kind, values = row["_change_type"], (row["id"], row["name"], row["amount"])
        if kind in ("insert", "update_postimage"):
            assert kind != "insert" or row["id"] not in table, row
            table[row["id"]] = values
        else:
            assert table[row["id"]] == values, (row, table[row["id"]])
            if kind == "delete":
                del table[row["id"]]


def on_server(database: Database, *names: str) -> Tables:
    return {name: {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {name}")} for name in names}


def batch(life: Life, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read a batch twice, which gives the same rows."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["_commit_version"], row["_table"], row["_change_number"], row["id"]

    once = sorted(life.rows(start, end), key=key)
    assert once == sorted(life.rows(start, end), key=key)
    return once


def test_tables_that_come_later_are_read_whole_while_the_binlog_goes_on(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 300)
    # One that comes by another name is there in whole at once.
    fill(database, "hidden", 2_000)
    life = Life(database, tables=f"{database.name}.t,{database.name}.new_*", snapshotChunkRows=100)
    tables: Tables = {}
    watermarks: list[int] = []
    meanwhile: set[int] = set()
    end: Mapping[str, Any] = life.reader.initialOffset()
    with ExitStack() as running:
        running.enter_context(writers(database, "t", count=2, keys=600))
        for turn in range(1_000):
            start, end = end, life.reader.latestOffset(end, ALL)
            applied(batch(life, start, end), tables)
            if "wm" in end:
                watermarks.append(end["wm"])
                if "snapshot" in end:
                    meanwhile.add(end["wm"])
            if turn == 6:
                database.run("RENAME TABLE hidden TO new_renamed", _TABLE.format("new_created"))
                running.enter_context(writers(database, "new_renamed", count=1, keys=4_000))
                running.enter_context(writers(database, "new_created", count=1, keys=500))
                # It ends before anybody has found it.
                fill(database, "new_short", 5)
                database.run("DROP TABLE new_short")
            complete = {name.partition(".")[2] for name in end.get("complete", ())}
            if {"new_renamed", "new_created"} <= complete and turn > 20:
                break
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    life.reader.stop()
    names = ("t", "new_renamed", "new_created")
    assert {name: tables[name] for name in names} == on_server(database, *names)
    assert watermarks == sorted(watermarks)
    # It does not wait for the new ones.
    assert len(meanwhile) > 1


def test_a_table_chosen_later_gets_its_snapshot_in_the_next_life_of_the_query(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    for name in ("t", "u"):
        fill(database, name, 50)
    tables: Tables = {}
    end: Mapping[str, Any] | None = None
    for chosen in ("t", "t,u", "t", "t,u"):
        life = Life(database, tables=",".join(f"{database.name}.{name}" for name in chosen.split(",")))
        end = life.reader.initialOffset() if end is None else end
        # The position moves on between the lives.
        database.run("UPDATE t SET amount = amount + 1", "UPDATE u SET amount = amount + 1")
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            if chosen == "t" and "u" in tables:
                # What it told of u is of no use when u is chosen again.
                del tables["u"]
            applied(batch(life, start, end), tables)
        life.reader.stop()
        assert tables == on_server(database, *chosen.split(","))


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
        # After its snapshot; and one of the same name is another table, whose rows are told from its beginning.
        database.run("DROP TABLE b", _TABLE.format("b"), "INSERT INTO b VALUES (1001, 'new', 1)")
        start, end = end, life.reader.latestOffset(end, ALL)
        assert [(row["_table"], row["id"]) for row in batch(life, start, end)] == [("b", 1001)]
        assert ".b was dropped; of the rows that were delivered of it no deletion comes" in caplog.text
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
def test_a_database_that_is_dropped_is_told_of(
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
    assert f"the database {other} was dropped; of the rows that were delivered of its tables no deletion" in caplog.text
    assert f"{other}_2" not in caplog.text


def test_a_binlog_read_alone_tells_of_new_tables_from_their_first_row_and_takes_only_those_that_fit(
    mysql_database: Database,
) -> None:
    database = mysql_database
    fill(database, "t", 3)
    life = Life(database, tables=f"{database.name}.*", startingOffsets="latest")
    start = life.reader.initialOffset()
    fill(database, "u", 2)
    end = life.reader.latestOffset(start, ALL)
    assert [(row["_table"], row["id"]) for row in batch(life, start, end)] == [("u", 0), ("u", 2)]
    database.run("CREATE TABLE v (id INT PRIMARY KEY, more INT)", "INSERT INTO v VALUES (1, 1)")
    start, end = end, life.reader.latestOffset(end, ALL)
    with pytest.raises(SchemaError, match=r"\.v, which came after the query began, has the columns id, more"):
        life.rows(start, end)
    life.reader.stop()


def test_a_restart_looks_again_at_a_table_that_came_in_whole(mysql_database: Database) -> None:
    database = mysql_database
    fill(database, "t", 3)
    fill(database, "hidden", 3)
    chosen = f"{database.name}.t,{database.name}.new_*"
    life = Life(database, tables=chosen)
    end: Mapping[str, Any] = life.reader.initialOffset()
    tables: Tables = {}
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    database.run("UPDATE t SET amount = -1", "RENAME TABLE hidden TO new_one")
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    life.reader.stop()
    # Nobody has told this process what the last batch saw.
    again = Life(database, tables=chosen)
    while (start := end) != (end := again.reader.latestOffset(end, ALL)):
        applied(batch(again, start, end), tables)
    again.reader.stop()
    assert tables == on_server(database, "t", "new_one")
    assert end["wm"] > 0


def test_a_table_dropped_since_the_tables_were_listed_is_left_out(mysql_database: Database) -> None:
    for name in ("t", "u"):
        fill(mysql_database, name, 10)
    life = Life(mysql_database, tables=f"{mysql_database.name}.*")
    start = life.reader.initialOffset()
    mysql_database.run("DROP TABLE t")
    end = life.reader.latestOffset(start, ALL)
    life.reader.stop()
    assert end["snapshot"] == {f"{mysql_database.name}.t": [], f"{mysql_database.name}.u": [None]}


def test_a_table_dropped_between_a_look_at_it_and_its_rows_ends_nothing(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(mysql_database, "t", 10)
    life = Life(mysql_database)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    mysql_database.run("UPDATE t SET amount = -1 WHERE id = 4")
    looks = SnapshotRows._undone

    def looks_and_drops(*given: Any) -> Any:
        yield from looks(*given)
        mysql_database.run("DROP TABLE t")

    monkeypatch.setattr(SnapshotRows, "_undone", looks_and_drops)
    # The one that was changed before is in the binlog as it was, and its changes come next.
    assert [(row["id"], row["amount"]) for row in life.rows(start, end)] == [(4, 2)]
    assert "t was dropped before" in caplog.text
    life.reader.stop()


def test_a_table_made_anew_while_a_chunk_of_it_waits_is_told_of_once(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 10)
    life = Life(database)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    database.run("DROP TABLE t", _TABLE.format("t"), "INSERT INTO t VALUES (4, 'new', 1), (5, 'new', 1)")
    applied(batch(life, start, end), tables)
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t")


def test_a_table_that_comes_in_whole_while_a_batch_is_planned_waits_for_the_next(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "LOOK_SECONDS", 0.0)
    database = mysql_database
    fill(database, "t", 3)
    fill(database, "hidden", 3)
    life = Life(database, tables=f"{database.name}.t,{database.name}.new_*")
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    asked = BinlogBounds.current_ends

    def asked_just_before(bounds: BinlogBounds, splits: Any) -> Any:
        ends = asked(bounds, splits)
        monkeypatch.setattr(BinlogBounds, "current_ends", asked)
        database.run("RENAME TABLE hidden TO new_one", "UPDATE new_one SET amount = -1")
        return ends

    monkeypatch.setattr(BinlogBounds, "current_ends", asked_just_before)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t", "new_one")


@pytest.mark.timeout(600)
def test_a_query_finds_new_tables_and_goes_on_after_restarts(mysql_streams: MySqlStreams) -> None:
    database = mysql_streams.database
    fill(database, "t", 400)
    fill(database, "hidden", 400)
    frame = mysql_streams.source("t,new_*", snapshotChunkRows=50, snapshotParallelism=2)

    def wait(name: str) -> None:
        until = time.monotonic() + 240
        while not any(f"{database.name}.{name}" in o.get("complete", ()) for o in mysql_streams.offsets("all")):
            assert query.exception() is None, query.exception()
            assert time.monotonic() < until
            time.sleep(0.1)

    with writers(database, "t", count=1, keys=800, pause=0.01):
        query = mysql_streams.start_file(frame, "all")
        wait("t")
        database.run("RENAME TABLE hidden TO new_one")
        with writers(database, "new_one", count=1, keys=800, pause=0.01):
            while not any("new_one" in str(o.get("snapshot")) for o in mysql_streams.offsets("all")):
                assert query.exception() is None, query.exception()
                time.sleep(0.05)
            # In the middle of its snapshot.
            query.stop()
            query = mysql_streams.start_file(frame, "all")
            wait("new_one")
            query.stop()
    mysql_streams.run(frame, "all")
    columns = ("_commit_version", "_change_number", "_change_type", "_table", "id", "name", "amount")
    tables: Tables = {}
    applied((row.asDict() for row in mysql_streams.changes("all", columns)), tables)
    assert tables == on_server(database, "t", "new_one")
    watermarks = [offset["wm"] for offset in mysql_streams.offsets("all") if "wm" in offset]
    assert watermarks == sorted(watermarks)
