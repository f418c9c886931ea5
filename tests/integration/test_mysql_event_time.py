"""Event time from a column of the table: of snapshot and binlog, with rows that come out of order or have none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from pyspark_mysql_cdc_wm import DefaultSource
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, USER, MySqlStreams
from tests.unit.planning import generators
from watermark_source import follow_watermark
from watermark_source.errors import OptionError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount INT, at DATETIME(3), moment TIMESTAMP(6) NULL)"
# As the server and Spark show them, in UTC.
_NOON = datetime(2024, 5, 7, 12)  # noqa: DTZ001
_FOUR_HOURS = timedelta(hours=4)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def row(number: int, seconds: float | None) -> str:
    at = "NULL" if seconds is None else f"'{_NOON + timedelta(seconds=seconds)}'"
    return f"({number}, 'n', 0, {at}, {at})"


@pytest.mark.parametrize("column", ["at", pytest.param("MOMENT", marks=pytest.mark.long("the column of DATETIME"))])
def test_windows_go_by_the_column_and_rows_within_the_disorder_are_on_time(
    column: str, mysql_streams: MySqlStreams
) -> None:
    mysql_streams.run_sql(_TABLE, f"INSERT INTO t VALUES {row(1, 0)}, {row(2, 61)}")
    frame = mysql_streams.source(eventTimeColumn=column, maxOutOfOrderness="30 seconds", columns="id")
    assert frame.columns[0:2] == ["id", "_change_type"]
    counted = follow_watermark(frame).groupBy(F.window("event_time", "1 minute")).count()
    running = mysql_streams.start(counted)
    running.settle()
    assert running.rows() == []
    mysql_streams.run_sql(f"INSERT INTO t VALUES {row(3, 100)}")
    running.settle()
    # 30 seconds behind the newest: on time, and in the second minute.
    mysql_streams.run_sql(f"INSERT INTO t VALUES {row(4, 70)}")
    running.settle()
    mysql_streams.run_sql(f"INSERT INTO t VALUES {row(5, 200)}")
    running.settle()
    closed = [(entry[0]["start"], entry[1]) for entry in running.rows()]
    assert closed == [(_NOON, 1), (_NOON + timedelta(minutes=1), 3)]
    assert running.dropped == 0


@pytest.mark.parametrize(("column", "chosen", "is_warned"), [
    ("timestamp", {}, True),
    ("_commit_timestamp", {}, False),
    ("timestamp", {"eventTimeColumn": "At"}, True),
    ("_commit_timestamp", {"eventTimeColumn": "At"}, True),
    ("at", {"eventTimeColumn": "At"}, False),
])  # fmt: skip
def test_a_column_other_than_that_of_the_event_time_has_times_of_its_own(
    column: str, chosen: dict[str, str], is_warned: bool, mysql_streams: MySqlStreams, caplog: pytest.LogCaptureFixture
) -> None:
    mysql_streams.run_sql("CREATE TABLE t (id INT PRIMARY KEY, `timestamp` TIMESTAMP(6) NULL, at TIMESTAMP(6) NULL)")
    follow_watermark(mysql_streams.source(**chosen), column)
    text = f"column {column} has times of its own, and the watermark of mysql-cdc-wm is about those of"
    assert (text in caplog.text) is is_warned


def test_a_row_without_a_value_has_its_commits_time(mysql_database: Database) -> None:
    mysql_database.run(_TABLE, f"INSERT INTO t VALUES {row(1, None)}, {row(2, 5)}")
    life = Life(mysql_database, eventTimeColumn="moment")
    start: Mapping[str, Any] = life.reader.initialOffset()
    snapshot = life.reader.latestOffset(start, ALL)
    times = {each["id"]: each["event_time"].replace(tzinfo=None) for each in life.rows(start, snapshot)}
    assert times == {1: _EPOCH + timedelta(microseconds=1), 2: _NOON + timedelta(seconds=5)}
    mysql_database.run(f"INSERT INTO t VALUES {row(3, None)}", f"INSERT INTO t VALUES {row(4, 7)}")
    end = life.reader.latestOffset(snapshot, ALL)
    found = {each["id"]: each for each in life.rows(snapshot, end)}
    assert found[3]["event_time"] == found[3]["_commit_timestamp"]
    assert found[4]["event_time"].replace(tzinfo=None) == _NOON + timedelta(seconds=7)
    mysql_database.run("UPDATE t SET moment = NULL WHERE id = 4", "DELETE FROM t WHERE id IN (1, 2)")
    last = life.reader.latestOffset(end, ALL)
    changed = [
        (each["id"], each["_change_type"], each["event_time"] == each["_commit_timestamp"])
        for each in life.rows(end, last)
    ]
    # A delete has the time of the row that it deletes.
    expected = [(1, "delete", True), (2, "delete", False), (4, "update_postimage", True), (4, "update_preimage", False)]
    assert sorted(changed) == expected
    life.reader.stop()


def test_a_datetime_is_of_the_clocks_of_the_zone_that_is_named(mysql_database: Database) -> None:
    mysql_database.run(_TABLE, f"INSERT INTO t VALUES {row(1, 0)}")
    life = Life(mysql_database, eventTimeColumn="at", timeZone="America/New_York")
    start: Mapping[str, Any] = life.reader.initialOffset()
    snapshot = life.reader.latestOffset(start, ALL)
    mysql_database.run(f"INSERT INTO t VALUES {row(2, 5)}")
    end = life.reader.latestOffset(snapshot, ALL)
    found = {each["id"]: each for each in (*life.rows(start, snapshot), *life.rows(snapshot, end))}
    # Daylight saving: four hours behind UTC. The column itself is what the server shows.
    assert [found[each]["event_time"].replace(tzinfo=None) - found[each]["at"] for each in (1, 2)] == [_FOUR_HOURS] * 2
    assert [found[each]["at"] for each in (1, 2)] == [_NOON, _NOON + timedelta(seconds=5)]
    life.reader.stop()


def test_quiet_does_not_move_a_watermark_of_rows(mysql_database: Database) -> None:
    mysql_database.run(_TABLE)
    life = Life(mysql_database, eventTimeColumn="at", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mysql_database.run(f"INSERT INTO t VALUES {row(1, 3)}")
    end = life.reader.latestOffset(start, ALL)
    life.rows(start, end)
    reported = life.reader.latestOffset(end, ALL)
    assert reported["wm"] == 1_000 * int((_NOON - _EPOCH).total_seconds()) + 2_999
    assert life.reader.latestOffset(reported, ALL) == reported
    life.reader.stop()


def test_a_strategy_of_the_users_own_gets_the_times_of_the_binlog(mysql_database: Database) -> None:
    mysql_database.run(_TABLE)
    own = {"watermarkStrategy": f"{generators.__name__}:RangesAndRows", "startingOffsets": "latest"}
    found, counted = [], []
    position: Mapping[str, Any] | None = None
    for seconds in (10, 200, 300):
        # A process each.
        life = Life(mysql_database, eventTimeColumn="at", **own)
        position = position or life.reader.initialOffset()
        mysql_database.run(f"INSERT INTO t VALUES {row(seconds, seconds)}")
        read = life.reader.latestOffset(position, ALL)
        assert [each["id"] for each in life.rows(position, read)] == [seconds]
        position = life.reader.latestOffset(read, ALL)
        found.append(position.get("wm"))
        counted.append([counts for of in position["own"].get("states", {}).values() for counts in of.values()])
        life.reader.stop()
    noon = (_NOON - _EPOCH) // timedelta(milliseconds=1)
    # The number of the binlog is even: half a minute behind, from the second range on.
    assert found == [None, noon + 170_000, noon + 270_000]
    # The rows themselves, as tasks have seen them, and as the driver does that reads them again.
    assert counted == [[], *([{"ranges": n, "rows": n}] for n in (2, 3))]


def test_a_restart_within_a_snapshot_counts_the_event_times_of_what_was_delivered(mysql_database: Database) -> None:
    mysql_database.run(_TABLE, "INSERT INTO t VALUES " + ", ".join(row(number, 0) for number in range(40)))
    life = Life(mysql_database, eventTimeColumn="at", snapshotChunkRows=10, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    life.rows(start, end)
    # One of the keys that were read, and one whose turn has not come.
    mysql_database.run(f"REPLACE INTO t VALUES {row(3, 60)}", f"REPLACE INTO t VALUES {row(33, 3_600)}")
    start, end = end, life.reader.latestOffset(end, ALL)
    assert sorted(each["id"] for each in life.rows(start, end)) == [3, 3, *range(10, 20)]
    reported = life.reader.latestOffset(end, ALL)
    life.reader.stop()
    # This process does not know what the last batch saw.
    again = Life(mysql_database, eventTimeColumn="at", snapshotChunkRows=10, snapshotParallelism=1)
    seen = again.reader.latestOffset(end, ALL)
    again.reader.stop()
    minute = 1_000 * int((_NOON - _EPOCH).total_seconds()) + 60_000
    assert reported["splits"]["binlog"]["0"][2] == minute - 1
    assert seen["splits"] == reported["splits"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eventTimeColumn": "amounts"}, "there is no column amounts; .*the nearest is amount"),
        ({"eventTimeColumn": "amount"}, "is int32 in .*[.]t, and must be TIMESTAMP or DATETIME"),
        ({"eventTimeColumn": "at", "watermarkInterval": "1 second"}, "its watermark follows rows, not the clock"),
        (
            {"eventTimeColumn": "at", "watermarkStrategy": "none"},
            "event time is the clock",
        ),
    ],
)
def test_what_cannot_be_event_time_is_refused(options: dict[str, str], message: str, mysql_database: Database) -> None:
    mysql_database.run(_TABLE)
    server = mysql_database.server
    given = {
        "hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD,
        "tables": f"{mysql_database.name}.t", **options,
    }  # fmt: skip
    with pytest.raises(OptionError, match=message):
        DefaultSource(given).schema()
