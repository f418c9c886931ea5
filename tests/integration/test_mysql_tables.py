"""Which tables a stream is of: patterns, and tables that come, go or are chosen later, exactly as on the server."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.client import connection as mysql_connection
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup import collations, table_list
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import BinlogBounds
from pyspark_mysql_cdc_wm.lookup.table_list import Kind
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.source import MySqlSource
from services.mysql_program import Flavour, flavour_from_environment
from services.wait_until import wait_until
from tests.integration.mysql_binlog import Database, end_of_binlog
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, USER
from tests.integration.mysql_tables import TABLE, Tables, applied, batch, fill, on_server
from tests.integration.mysql_writers import writers
from watermark_source.errors import OptionError, SchemaError

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)


@pytest.mark.parametrize(
    "count",
    [1, 60, pytest.param(5_000, marks=pytest.mark.long("test_loading_many_tables_takes_as_few_statements_as_one"))],
)
def test_loading_many_tables_takes_as_few_statements_as_one(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Also where each has a computed column and a foreign key, about which MySQL is asked for all at once."""
    more = ", twice INT AS (2 * id)"
    if count <= 60:
        # Each is opened with the table that all refer to.
        more += ", FOREIGN KEY (parent) REFERENCES t0 (id) ON DELETE CASCADE"
    table = "CREATE TABLE t{} (id INT PRIMARY KEY, parent INT{})"
    mariadb = flavour_from_environment() is Flavour.MARIADB
    mysql_database.run(*(table.format(number, "" if mariadb else more) for number in range(count)))
    sent: list[str] = []
    send = mysql_connection._Connection._execute_command

    def noted(self: Any, command: int, sql: str | bytes) -> None:
        sent.append(sql if isinstance(sql, str) else sql.decode())
        send(self, command, sql)

    monkeypatch.setattr(mysql_connection._Connection, "_execute_command", noted)
    server = mysql_database.server
    given = {"hostname": server.host, "port": server.port, "username": USER, "password": PASSWORD}
    options = mysql_options.parse({**{k: str(v) for k, v in given.items()}, "tables": f"{mysql_database.name}.*"})
    collations._cache.clear()
    for most in (10, 9):
        sent.clear()
        begun = time.monotonic()
        assert len(MySqlSource.of(options).known) == count
        _log.info("%d tables: %d statements, %.2f s", count, len(sent), time.monotonic() - begun)
        about_tables = [each for each in sent if "TABLE_SCHEMA IN" in each]
        assert len(about_tables) <= 4 * math.ceil(count / 5_000), about_tables
        others = [each for each in sent if each not in about_tables and not each.startswith("SET ")]
        # What a server's collations are is asked once.
        assert len(others) <= most, others


def test_tables_that_come_later_are_read_whole_while_the_binlog_continues_and_across_a_restart(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 300)
    # One that comes by another name is there in whole at once.
    fill(database, "hidden", 2_000)
    options = {"tables": f"{database.name}.t,{database.name}.new_*", "snapshotChunkRows": 100}
    life = Life(database, **options)
    restarted = False
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
            if not restarted and f"{database.name}.new_renamed" in end.get("snapshot", ()):
                life.reader.stop()
                life, restarted = Life(database, **options), True
            if turn == 6:
                database.run("RENAME TABLE hidden TO new_renamed", TABLE.format("new_created"))
                running.enter_context(writers(database, "new_renamed", count=1, keys=4_000))
                running.enter_context(writers(database, "new_created", count=1, keys=500))
                # It ends before anyone has found it.
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
    assert restarted
    # It does not wait for the new ones.
    assert len(meanwhile) > 1


def test_a_table_is_read_again_beside_all_changes_and_across_restarts_once_a_label(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 600)
    fill(database, "u", 300)
    options = {"tables": f"{database.name}.t,{database.name}.u", "snapshotChunkRows": 100, "snapshotParallelism": 2}
    life = Life(database, **options)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    reread: dict[int, tuple[Any, ...]] = {}
    batches = 0

    def take_batch() -> None:
        nonlocal end, batches
        start, end = end, life.reader.latestOffset(end, ALL)
        rows = batch(life, start, end)
        again = {row["id"]: (row["id"], row["name"], row["amount"]) for row in rows if row["_change_type"] == "reread"}
        applied((row for row in rows if row["_change_type"] != "reread"), tables)
        # They are what the changes have made of them by the end of the batch, which goes on in the binlog.
        assert all(tables["t"][key] == values for key, values in again.items())
        assert all(row["_table"] == "t" and row["_snapshot"] for row in rows if row["_change_type"] == "reread")
        if again:
            batches += 1
            assert end["splits"]["binlog"]["0"] > start["splits"]["binlog"]["0"]
            # As of this batch: what was read before is changed by the changes alone.
            reread.update(again)

    with writers(database, "t", count=1, keys=1_200), writers(database, "u", count=1, keys=600):
        while "snapshot" in end:
            take_batch()
        for label in ("one", "two"):
            reread.clear()
            before = batches
            for restarts in range(20):  # noqa: B007 - read behind the loop
                life.reader.stop()
                life = Life(database, **options, rereadTables=f"{database.name}.t:{label}")
                take_batch()
                take_batch()
                if f"{database.name}.t.{label}" in end["complete"]:
                    break
            assert restarts > 1
            assert batches > before + 1
            # It is asked for once.
            done = batches
            for _ in range(3):
                take_batch()
            assert batches == done
            # Also where the key was deleted since, or came after its chunk.
            assert len(reread) > 300
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert f"{database.name}.t.one" not in end["complete"]
    assert tables == on_server(database, "t", "u")


def test_a_table_that_is_read_again_from_the_start_waits_for_its_first_reading(mysql_database: Database) -> None:
    fill(mysql_database, "t", 250)
    labels = f"{mysql_database.name}.t:a,{mysql_database.name}.t:b"
    life = Life(mysql_database, rereadTables=labels, snapshotChunkRows=100)
    end: Mapping[str, Any] = life.reader.initialOffset()
    kinds: list[str] = []
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        kinds += (row["_change_type"] for row in batch(life, start, end))
    life.reader.stop()
    assert kinds == ["insert"] * 250 + ["reread"] * 500


def test_a_reading_ends_with_its_table_and_is_refused_of_what_cannot_be_read_again(
    mysql_database: Database, looks_often: None
) -> None:
    database = mysql_database
    fill(database, "t", 250)
    fill(database, "u", 5)
    options = {"tables": f"{database.name}.t,{database.name}.u", "snapshotChunkRows": 100, "snapshotParallelism": 1}
    life = Life(database, **options)
    end: Mapping[str, Any] = life.reader.initialOffset()
    while f"{database.name}.t" not in end.get("complete", ()):
        end = life.reader.latestOffset(end, ALL)
    life.reader.stop()
    life = Life(database, **options, rereadTables=f"{database.name}.t:a")
    kinds: list[tuple[str, str]] = []

    def take_batch() -> bool:
        nonlocal end
        start, end = end, life.reader.latestOffset(end, ALL)
        kinds.extend((row["_table"], row["_change_type"]) for row in batch(life, start, end))
        return start != end

    while not kinds:
        take_batch()
    # It is gone after one chunk of three.
    database.run("DROP TABLE t", "INSERT INTO u VALUES (1001, 'x', 1)")
    while take_batch():
        pass
    life.reader.stop()
    assert kinds == [("t", "reread")] * 100 + [("u", "insert")]
    assert "snapshot" not in end
    database.run("CREATE TABLE keyless (id INT, name VARCHAR(40), amount BIGINT)")
    refused: list[tuple[str, dict[str, str], str]] = [
        (f"{database.name}.keyless", {}, "the table has no primary key, by which its rows would be known again"),
        ("elsewhere.t", {}, "is not one of"),
        (f"{database.name}.u", {"startingOffsets": "latest"}, "needs a query that begins with a snapshot"),
    ]
    for table, more, why in refused:
        with pytest.raises(OptionError, match=f"rereadTables.*{why}"):
            Life(database, **more, tables=f"{database.name}.*", rereadTables=f"{table}:b")
    # A query is restarted with the label of a table that was dropped.
    Life(database, tables=f"{database.name}.t*,{database.name}.u", rereadTables=f"{database.name}.t:a").reader.stop()


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
                # What it reported of u is of no use when u is chosen again.
                del tables["u"]
            applied(batch(life, start, end), tables)
        life.reader.stop()
        assert tables == on_server(database, *chosen.split(","))


def test_a_binlog_read_alone_reports_new_tables_from_their_first_row_and_takes_only_those_that_fit(
    mysql_database: Database,
) -> None:
    database = mysql_database
    fill(database, "t", 3)
    life = Life(database, tables=f"{database.name}.*", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    fill(database, "u", 2)
    end = life.reader.latestOffset(start, ALL)
    assert [(row["_table"], row["id"]) for row in batch(life, start, end)] == [("u", 0), ("u", 2)]
    database.run("CREATE TABLE v (id INT PRIMARY KEY, more INT)", "INSERT INTO v VALUES (1, 1)")
    start, end = end, life.reader.latestOffset(end, ALL)
    with pytest.raises(SchemaError, match=r"\.v, which was created after the query began, has the columns id, more"):
        life.rows(start, end)
    life.reader.stop()


def test_a_table_that_came_later_and_is_altered_then_ends_the_query_as_others_do(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    database = mysql_database
    fill(database, "t", 1)
    life = Life(database, tables=f"{database.name}.*")
    end: Mapping[str, Any] = life.reader.initialOffset()
    fill(database, "new_one", 1)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        batch(life, start, end)
    assert f"{database.name}.new_one" in end["complete"]
    database.run("ALTER TABLE new_one RENAME COLUMN name TO nick", "UPDATE new_one SET amount = -1")
    altered = r"new_one was altered by .* RENAME COLUMN name TO nick: where the binlog is read it has columns"
    with pytest.raises(SchemaError, match=altered):
        life.rows(end, life.reader.latestOffset(end, ALL))
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
    # This process does not know what the last batch saw.
    again = Life(database, tables=chosen)
    while (start := end) != (end := again.reader.latestOffset(end, ALL)):
        applied(batch(again, start, end), tables)
    again.reader.stop()
    assert tables == on_server(database, "t", "new_one")
    assert end["wm"] > 0


def test_a_table_that_comes_in_whole_while_a_batch_is_planned_waits_for_the_next(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
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


def test_a_table_that_comes_in_whole_beyond_a_limit_of_rows_waits_until_all_before_it_is_read(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    database = mysql_database
    fill(database, "t", 3)
    fill(database, "hidden", 3)
    life = Life(database, tables=f"{database.name}.t,{database.name}.new_*")
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    database.run(*["UPDATE t SET amount = amount + 1"] * 10)
    database.run("RENAME TABLE hidden TO new_one", "UPDATE new_one SET amount = -1")
    batches = 0
    while (start := end) != (end := life.reader.latestOffset(end, ReadMaxRows(20))):
        applied(batch(life, start, end), tables)
        batches += 1
    life.reader.stop()
    assert batches > 2
    assert tables == on_server(database, "t", "new_one")


def test_a_snapshot_goes_on_while_a_table_that_came_later_waits_for_the_end_of_the_binlog(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is before it by name took its turns, and had to wait: in a group everybody waited for ever."""
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    database = mysql_database
    fill(database, "t", 10)
    chosen = f"{database.name}.t,{database.name}.a_*"
    aligned = {"alignmentGroup": "g", "alignmentMaxDrift": "1 hour", "alignmentStore": "none"}
    life = Life(database, tables=chosen, snapshotChunkRows=2, snapshotParallelism=1, **aligned)
    tables: Tables = {}
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    applied(batch(life, start, end), tables)
    fill(database, "a_new", 3)
    database.run(*["UPDATE t SET amount = amount + 1"] * 10)
    t, a_new = f"{database.name}.t", f"{database.name}.a_new"
    while t not in end.get("complete", ()):
        start, end = end, life.reader.latestOffset(end, ReadMaxRows(1))
        applied(batch(life, start, end), tables)
        # The last chunk's batch is followed by the one that counts it.
        assert t in end.get("complete", ()) or end["splits"][t]["0"][0] > start["splits"][t]["0"][0]
    assert a_new not in end["splits"]
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t", "a_new")


def test_a_table_that_is_renamed_while_tables_are_listed_is_not_taken_for_dropped(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of an ALTER that copies: MariaDB lists it by no name for a moment."""
    database = mysql_database
    fill(database, "t", 6)
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    life = Life(database, snapshotChunkRows=2, snapshotParallelism=1)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    database.run("DELETE FROM t WHERE id = 0")
    listed = table_list._table_kinds

    def listed_meanwhile(connection: MySqlConnection, selection: Selection | None = None) -> dict[TableName, Kind]:
        monkeypatch.setattr(table_list, "_table_kinds", listed)
        database.run("SET SESSION sql_log_bin = 0", "RENAME TABLE t TO _t_old")
        found = listed(connection, selection)
        database.run("SET SESSION sql_log_bin = 0", "RENAME TABLE _t_old TO t")
        return found

    monkeypatch.setattr(table_list, "_table_kinds", listed_meanwhile)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert table_list._table_kinds is listed
    assert tables == on_server(database, "t")


def test_a_table_that_is_made_anew_from_a_long_select_is_waited_for(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL does not list it, and no one else may ask for it, until it has all its rows."""
    database = mysql_database
    fill(database, "t", 6)
    fill(database, "u", 1)
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(mysql_connection, "LOCK_WAIT_SECONDS", 1)
    life = Life(database, snapshotChunkRows=2, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    batch(life, start, end)
    database.run("DROP TABLE t")
    making = "CREATE TABLE t AS SELECT * FROM u WHERE SLEEP(8) = 0"
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(database.run, making)
        likewise = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO = '{making}'"
        wait_until(lambda: bool(made.done() or database.run(likewise)), 60, "the statement")
        assert f"{database.name}.t" in life.reader.latestOffset(end, ALL)["snapshot"]
        made.result()
    life.reader.stop()


def test_chunks_of_a_run_are_as_of_its_end_when_they_are_planned_and_not_as_of_its_beginning(
    mysql_database: Database,
) -> None:
    """As of the beginning each chunk would read, and undo, all that was written since."""
    database = mysql_database
    fill(database, "t", 12)
    life = Life(database, tables=f"{database.name}.*", snapshotChunkRows=2, snapshotParallelism=1)
    life.reader.prepareForTriggerAvailableNow()
    end: Mapping[str, Any] = life.reader.initialOffset()
    tables: Tables = {}
    written = planned = 0
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        if "snapshot" in end:
            at = LogPosition.of(end["splits"]["binlog"]["0"][0])
            now = end_of_binlog(database.server)
            assert at == (file_number(now.file), now.position), written
            planned += 1
        applied(batch(life, start, end), tables)
        database.run("UPDATE t SET amount = amount + 1", "CREATE TABLE IF NOT EXISTS later (id INT PRIMARY KEY)")
        written += 1
    life.reader.stop()
    assert planned > 5
    # The run ends though there is always more to read, and takes no table that came while it ran.
    assert tables.keys() == {"t"}
    assert set(tables["t"]) == {2 * number for number in range(12)}
