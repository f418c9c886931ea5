"""A batch of the binlog carries the time up to which it is complete, so windows come a batch sooner."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.integration.kafka_streams import wait_for
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life, data_of
from tests.integration.mysql_streams import MySqlStreams
from tests.integration.mysql_tables import fill
from watermark_source import follow_watermark
from watermark_source.planning.watermark import watermark_text

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
Offset = Mapping[str, Any]


@contextmanager
def life_of(database: Database, **options: Any) -> Iterator[Life]:
    # No batch for the time alone.
    life = Life(database, **{"watermarkInterval": "1 hour", **options})
    try:
        yield life
    finally:
        life.reader.stop()


def millis(database: Database) -> int:
    ((now,),) = database.run("SELECT FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000)")
    return int(now)


def committed(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["_commit_timestamp"].timestamp() * 1_000) for row in rows]


def sent(life: Life, start: Offset, end: Offset) -> list[Any]:
    return [
        (row["marker"]["type"], row["marker"]["watermark"], row["marker"]["reason"])
        for each in life.batches(start, end)
        for row in each.to_pylist()
        if row["marker"] is not None
    ]


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_a_batch_carries_a_watermark_that_its_rows_are_behind_and_no_later_row_is(mysql_database: Database) -> None:
    database = mysql_database
    database.run(_TABLE)
    with life_of(database, startingOffsets="latest") as life:
        end: Offset = life.reader.initialOffset()
        for number in range(5):
            before = end
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
            reported_after = millis(database)
            time.sleep(0.002)
            start, end = end, life.reader.latestOffset(end, ALL)
            rows = life.rows(start, end)
            assert [row["id"] for row in rows] == [number]
            assert end["wm"] >= reported_after - 1 >= max(committed(rows)) - 1
            assert min(committed(rows)) > before.get("wm", 0)
            # What the tasks reported leads no further, so nothing follows for it.
            assert life.reader.latestOffset(end, ALL) == end
            assert life.reader.latestOffset(end, ALL) == end
        carried = sent(life, start, end)
        assert ("watermark", end["wm"]) in {(kind, _millis(at)) for kind, at, _ in carried}
    # A new process gives out the same, and continues from there though it reads the batch again.
    with life_of(database, startingOffsets="latest") as again:
        assert sent(again, start, end) == carried
        database.run("INSERT INTO t VALUES (100, 'n', 0)")
        later = again.reader.latestOffset(end, ALL)
        assert later["wm"] > end["wm"]
        assert min(committed(again.rows(end, later))) > end["wm"]


def _millis(at: Any) -> int | None:
    return None if at is None else int(at.timestamp() * 1_000)


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_a_process_that_was_lost_before_it_read_its_batch_changes_no_watermark(mysql_database: Database) -> None:
    database = mysql_database
    database.run(_TABLE)
    with life_of(database, startingOffsets="latest") as life:
        start = life.reader.initialOffset()
        database.run("INSERT INTO t VALUES (1, 'one', 1)")
        end = life.reader.latestOffset(start, ALL)
        carried = sent(life, start, end)
    database.run("UPDATE t SET amount = 2")
    with life_of(database, startingOffsets="latest") as other:
        assert sent(other, start, end) == carried
        following = other.reader.latestOffset(end, ALL)
        assert following["wm"] > end["wm"]
        assert min(committed(other.rows(end, following))) > end["wm"]


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_a_batch_that_a_limit_cut_carries_what_was_read_before(mysql_database: Database) -> None:
    database = mysql_database
    database.run(_TABLE)
    with life_of(database, startingOffsets="latest", maxRowsPerTrigger=2) as life:
        end: Offset = life.reader.initialOffset()
        for number in range(6):
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
        times: list[tuple[int, int]] = []
        ends = []
        while (start := end) != (end := life.reader.latestOffset(end, ReadMaxRows(2))):
            rows = life.rows(start, end)
            ends.append(end.get("wm", 0))
            times += [(number, len(ends)) for number in committed(rows)]
        assert len(times) == 6
        assert all(at > wm for at, number in times for wm in ends[: number - 1])
        # All but the last end before rows that are left.
        last = max(at for at, _ in times)
        assert len(ends) >= 3
        assert all(wm < last for wm in ends[:2])
        assert ends[-1] >= last - 1


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_no_row_is_late_while_a_clock_that_was_set_back_is_behind_and_a_warning_names_until_when(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    database.run(_TABLE)
    with life_of(database, startingOffsets="latest") as life:
        begin = json.loads(json.dumps(life.reader.initialOffset()))
        # As if the clock had been five minutes ahead until now.
        begin["wm"] = ahead = millis(database) + 300_000
        begin["splits"]["binlog"]["0"] = begin["splits"]["binlog"]["0"][:2]
        end: Mapping[str, Any] = begin
        for number in range(2):
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
            start, end = end, life.reader.latestOffset(end, ALL)
            (row,) = life.rows(start, end)
            assert _millis(row["event_time"]) == ahead + 1
            assert committed([row])[0] < ahead
            assert end["wm"] == ahead
    (logged,) = [each.getMessage() for each in caplog.records if "set back" in each.getMessage()]
    assert (
        "binlog-0: the server's clock, which dates the rows, is 5 min behind the watermark" in logged
        or "4 min" in logged
    )
    assert f"Until it has passed {watermark_text(ahead)} UTC" in logged


def test_nothing_is_reported_by_the_clock_where_event_time_is_a_column(mysql_database: Database) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)")
    life = Life(database, startingOffsets="latest", eventTimeColumn="at")
    start = life.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, '2030-01-01 00:00:00')")
    end = life.reader.latestOffset(start, ALL)
    assert "wm" not in end
    assert len(life.rows(start, end)) == 1
    life.reader.stop()


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_nothing_is_reported_before_the_snapshot_is_complete(mysql_database: Database) -> None:
    database = mysql_database
    fill(database, "t", 50)
    with life_of(database, snapshotChunkRows=10, snapshotParallelism=1) as life:
        end: Offset = life.reader.initialOffset()
        number = 1_000
        while "snapshot" in end or number == 1_000:
            number += 1
            database.run(f"INSERT INTO t VALUES ({number}, 'new', 0)")
            start, end = end, life.reader.latestOffset(end, ALL)
            data_of(life.batches(start, end))
            assert ("wm" in end) == ("snapshot" not in end)


@pytest.mark.spark
@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
@pytest.mark.long("test_a_batch_carries_a_watermark_that_its_rows_are_behind_and_no_later_row_is")
def test_a_window_comes_with_the_batch_after_the_row_that_closes_it(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(_TABLE)
    frame = follow_watermark(mysql_streams.source(startingOffsets="latest", watermarkInterval="1 hour"))
    running = mysql_streams.start(frame.groupBy(F.window("event_time", "10 milliseconds")).count().select("count"))
    running.settle()

    def with_rows() -> list[int]:
        return [n for n, p in enumerate(running.progress) if p["numInputRows"] >= 2]

    for number in range(4):
        time.sleep(0.05)
        mysql_streams.run_sql(f"INSERT INTO t VALUES ({number}, 'n', 0)")
        wait_for(lambda: len(with_rows()) == number + 1, running.query)  # noqa: B023
    # A batch of rows and, for the window before, Spark's own without rows: none for the watermark alone.
    assert 2 in {b - a for a, b in pairwise(with_rows())}
    assert len(running.rows()) >= 3
    assert running.dropped == 0
