"""The binlog of a real server through Spark: changes, restarts, replays, watermarks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.kafka_streams import wait_for
from tests.integration.mysql_binlog import Database, new_database, purge_before_end
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import MySqlStreams
from watermark_source import follow_watermark

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2))"
SHOWN = ("_change_type", "id", "name")


def place_of(database: Database) -> str:
    """Return where the database's binlog begins, as ``startingOffsets``."""
    return json.dumps({"file": database.since.file, "position": database.since.position})


def test_inserts_updates_and_deletes_come_in_order(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE, "INSERT INTO t VALUES (0, 'before', 0)")
    frame = mysql_streams.source(startingOffsets="latest")
    assert frame.columns == [
        "id", "name", "amount", "_change_type", "_snapshot", "_commit_version", "_change_number", "_commit_timestamp",
        "_database", "_table", "event_time", "marker",
    ]  # fmt: skip
    mysql_streams.run(frame, "all")
    assert mysql_streams.changes("all", SHOWN) == []
    mysql_streams.run_sql(
        "INSERT INTO t VALUES (1, 'one', 1.5), (2, 'two', NULL)", "UPDATE t SET name = 'uno' WHERE id = 1",
        "BEGIN", "UPDATE t SET name = 'due' WHERE id = 2", "UPDATE t SET name = 'dos' WHERE id = 2", "COMMIT",
        "UPDATE t SET id = 3 WHERE id = 1", "DELETE FROM t WHERE id = 2",
    )  # fmt: skip
    mysql_streams.run(frame, "all")
    assert [tuple(row) for row in mysql_streams.changes("all", SHOWN)] == [
        ("insert", 1, "one"), ("insert", 2, "two"),
        ("update_preimage", 1, "one"), ("update_postimage", 1, "uno"),
        ("update_preimage", 2, "two"), ("update_postimage", 2, "due"),
        ("update_preimage", 2, "due"), ("update_postimage", 2, "dos"),
        ("delete", 1, "uno"), ("insert", 3, "uno"),
        ("delete", 2, "dos"),
    ]  # fmt: skip
    shown = ("_database", "_table", "_commit_timestamp", "event_time", "_commit_version", "_snapshot")
    rows = mysql_streams.changes("all", shown)
    assert {(row[0], row[1], row[5]) for row in rows} == {(mysql_streams.database.name, "t", False)}
    assert all(row[2] == row[3] for row in rows)
    assert all(abs(row[2] - datetime.now(UTC).replace(tzinfo=None)) < timedelta(minutes=5) for row in rows)
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)
    assert len({row[4] for row in rows}) == 5


def test_a_new_query_begins_at_the_place_of_its_option(mysql_database: Database) -> None:
    # Of what others left behind not all may be read: a commit whose rows were purged, for example.
    mysql_database.run("FLUSH BINARY LOGS")
    purge_before_end(mysql_database)
    with new_database(mysql_database.server) as database:
        database.run(_TABLE, "INSERT INTO t VALUES (1, 'one', 1)")
        for where in (place_of(database), "earliest"):
            life = Life(database, startingOffsets=where)
            start = life.reader.initialOffset()
            found = life.changes(start, life.reader.latestOffset(start, ALL))
            life.reader.stop()
            assert [change[2:5] for change in found] == [("insert", 1, "one")]


def test_a_restart_goes_on_where_the_query_was_and_a_replay_gives_equal_rows(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE)
    frame = mysql_streams.source(startingOffsets=place_of(mysql_streams.database))
    seen = []
    for number in range(2):
        values = ", ".join(f"({100 * number + i}, 'n{i}', {i})" for i in range(100))
        mysql_streams.run_sql(f"INSERT INTO t VALUES {values}", "FLUSH BINARY LOGS", "UPDATE t SET amount = amount + 1")
        mysql_streams.run(frame, "all")
        everything = ("id", "name", "amount", "_change_type", "_commit_version", "_change_number", "event_time")
        seen.append(mysql_streams.changes("all", everything))
        if number == 1:
            mysql_streams.uncommit("all")
            mysql_streams.run_sql("INSERT INTO t VALUES (9999, 'later', 0)", "DELETE FROM t WHERE id = 9999")
            mysql_streams.run(frame, "all")
            again = mysql_streams.changes("all", everything)
            assert [row for row in again if row.id != 9999] == seen[-1]
            seen[-1] = again
    assert all(len(set(rows)) == len(rows) for rows in seen)
    assert seen[-1][: len(seen[-2])] == seen[-2]
    assert len(seen[-1]) == 200 + 2 * (100 + 200) + 2


@pytest.mark.long("test_a_batch_carries_a_watermark_that_its_rows_are_behind_and_no_later_row_is")
@pytest.mark.long("test_changes_come_in_order_from_file_to_file")
def test_windows_close_by_the_commit_times_of_the_binlog(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE, "CREATE TABLE other (id INT PRIMARY KEY)")
    frame = follow_watermark(mysql_streams.source(startingOffsets="latest"))
    counted = frame.groupBy(F.window("event_time", "1 second")).count()
    running = mysql_streams.start(counted)
    running.settle()
    for second in range(2):
        mysql_streams.run_sql(f"SET TIMESTAMP = {1_700_000_000 + second}", f"INSERT INTO t VALUES ({second}, 'a', 0)")
        running.settle()
        mysql_streams.run_sql("DO SLEEP(1.1)")
    # A transaction of another table shows as well that time has passed.
    mysql_streams.run_sql("INSERT INTO other VALUES (1)")
    running.settle()
    assert sum(row[1] for row in running.rows()) == 2
    assert running.dropped == 0


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_while_nothing_is_written_the_servers_clock_closes_windows(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE)
    frame = follow_watermark(mysql_streams.source(startingOffsets="latest", watermarkInterval="200 milliseconds"))
    running = mysql_streams.start(frame.groupBy(F.window("event_time", "1 second")).count())
    # On the clock there may be a batch at any time.
    running.run_on(0)
    mysql_streams.run_sql("INSERT INTO t VALUES (1, 'one', 1)")
    wait_for(lambda: running.rows(), running.query)
    # What is written next is on time, however long nothing was.
    mysql_streams.run_sql("INSERT INTO t VALUES (2, 'two', 2)")
    wait_for(lambda: len(running.rows()) == 2, running.query)
    assert running.dropped == 0


@pytest.mark.long("test_windows_of_a_topic_and_a_table_wait_for_the_snapshot_and_then_close_with_the_clock")
def test_with_the_clock_during_the_binlog_there_is_no_watermark_before_and_the_clock_after(
    mysql_streams: MySqlStreams,
) -> None:
    rows = ", ".join(f"({number}, 'n', 0)" for number in range(50))
    mysql_streams.run_sql(_TABLE, f"INSERT INTO t VALUES {rows}")
    options: dict[str, Any] = {
        "snapshotChunkRows": 10,
        "watermarkStrategy": "none",
    }
    frame = mysql_streams.source(**options)
    mysql_streams.run(frame, "all")
    mysql_streams.run_sql("SET TIMESTAMP = 1000000000", "INSERT INTO t VALUES (100, 'later', 0)")
    before = datetime.now(UTC).replace(tzinfo=None)
    mysql_streams.run(frame, "all")
    offsets = mysql_streams.offsets("all")
    flips = [("snapshot" in offset, "pt" in offset, "wm" in offset) for offset in offsets]
    assert flips == sorted(flips, reverse=True)
    assert set(flips) == {(True, False, False), (False, True, True)}
    times = mysql_streams.changes("all", ("event_time",))
    assert [row[0].year for row in times[:50]] == [1970] * 50
    assert [row[0] >= before for row in times[50:]] == [True]
    logged = mysql_streams.result("all").where("marker IS NOT NULL").select("marker.*").collect()
    complete = [row for row in logged if row["reason"] == "snapshot_complete"]
    assert [(row["type"], row["log"], row["status"], row["use_processing_time"]) for row in complete] == [
        ("status", None, "active", True)
    ]
    assert {row["use_processing_time"] for row in logged if row["type"] == "watermark"} == {True}


@pytest.mark.long("test_a_row_without_a_value_has_its_commits_time")
def test_rows_of_the_snapshot_are_on_time_for_operators_of_sparks_own(mysql_streams: MySqlStreams) -> None:
    """Spark's watermark is 0 before the first, and what is of just then is late."""
    mysql_streams.run_sql(_TABLE, "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)")
    rows = follow_watermark(mysql_streams.source()).dropDuplicatesWithinWatermark(["id"])
    query = mysql_streams.run(rows.select("id", "event_time"), "once")
    found = mysql_streams.result("once").selectExpr("id", "unix_micros(event_time)").collect()
    assert sorted(tuple(row) for row in found) == [(1, 1), (2, 1)]
    assert sum(each["numRowsDroppedByWatermark"] for p in query.recentProgress for each in p["stateOperators"]) == 0


@pytest.mark.long("test_tables_with_different_columns_and_keys_are_one_stream")
def test_tables_with_equal_columns_are_one_stream_of_what_is_wanted_of_them(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE, "CREATE TABLE u LIKE t", "INSERT INTO t VALUES (1, 'one', 1)")
    left_out = "_snapshot,_change_number,_commit_timestamp,_database"
    frame = mysql_streams.source("t,u", columns="id,name", excludeColumns=left_out, includeMarkers="false")
    assert frame.columns == ["id", "name", "_change_type", "_commit_version", "_table", "event_time"]
    mysql_streams.run(frame, "all")
    both = ("INSERT INTO u VALUES (2, 'two', 2)", "UPDATE t SET name = 'uno'")
    mysql_streams.run_sql("BEGIN", *both, "COMMIT")
    mysql_streams.run(frame, "all")
    rows = mysql_streams.result("all").collect()
    assert sorted((row["_table"], row["id"], row["name"], row["_change_type"]) for row in rows) == [
        ("t", 1, "one", "insert"), ("t", 1, "one", "update_preimage"), ("t", 1, "uno", "update_postimage"),
        ("u", 2, "two", "insert"),
    ]  # fmt: skip
    assert len({row["_commit_version"] for row in rows}) == 2
