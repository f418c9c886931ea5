"""MariaDB's binlog through the source."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from services.mysql import mysql_service
from services.mysql_program import Flavour
from services.where import Where
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from watermark_source.errors import OffsetError, RefusedError, UnsupportedFormatError

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Database]:
    with mysql_service(flavour=Flavour.MARIADB, where=Where.LOCAL) as server:
        make_user(server, USER, *RIGHTS)
        with new_database(server) as database:
            database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)")
            yield database


def test_changes_come_in_order_from_file_to_file(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start = life.reader.initialOffset()
    mariadb.run(
        "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)", "FLUSH BINARY LOGS",
        "UPDATE t SET name = 'x' WHERE id = 1",
        "BEGIN", "UPDATE t SET id = 3 WHERE id = 2", "DELETE FROM t WHERE id = 1", "COMMIT",
    )  # fmt: skip
    end = life.reader.latestOffset(start, ALL)
    found = sorted(life.changes(start, end))
    assert [change[2:5] for change in found] == [
        ("insert", 1, "one"), ("insert", 2, "two"), ("update_preimage", 1, "one"), ("update_postimage", 1, "x"),
        ("delete", 2, "two"), ("insert", 3, "two"), ("delete", 1, "x"),
    ]  # fmt: skip
    assert len({change[0] for change in found}) == 3
    assert life.reader.latestOffset(end, ALL)["wm"] > 0
    life.reader.stop()


def test_who_may_not_have_the_binlog_is_refused_at_load(mariadb: Database) -> None:
    # Its statements about the binlog take REPLICATION CLIENT alone.
    make_user(mariadb.server, "poor", *(right for right in RIGHTS if not right.startswith("REPLICATION SLAVE")))
    with pytest.raises(RefusedError, match=r"REPLICATION SLAVE .* GRANT REPLICATION SLAVE, .* TO 'poor'@'%'"):
        Life(mariadb, username="poor")


def test_a_binlog_of_compressed_events_is_refused_at_load(mariadb: Database) -> None:
    mariadb.run("SET GLOBAL log_bin_compress = ON")
    try:
        with pytest.raises(
            UnsupportedFormatError, match=r"log_bin_compress is ON, and must be OFF.*log_bin_compress = O"
        ):
            Life(mariadb)
    finally:
        mariadb.run("SET GLOBAL log_bin_compress = OFF")


def test_a_table_that_is_replaced_is_one_that_was_dropped(mariadb: Database, caplog: pytest.LogCaptureFixture) -> None:
    anew = "CREATE OR REPLACE TABLE u (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
    mariadb.run(anew, "INSERT INTO u VALUES (1, 'one', 1), (2, 'two', 2)")
    life = Life(mariadb, tables=f"{mariadb.name}.u")
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    mariadb.run("UPDATE u SET amount = 3 WHERE id = 2", anew, "INSERT INTO u VALUES (2, 'new', 4)")
    assert [change[3:] for change in life.changes(start, end)] == [(2, "two", 2)]
    found = life.changes(end, life.reader.latestOffset(end, ALL))
    life.reader.stop()
    assert [change[2:] for change in sorted(found)] == [
        ("update_preimage", 2, "two", 2), ("update_postimage", 2, "two", 3), ("insert", 2, "new", 4),
    ]  # fmt: skip
    assert ".u was dropped; of the rows that were delivered of it no deletion comes" in caplog.text


def test_a_checkpoint_of_another_server_is_refused(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start = life.reader.initialOffset()
    assert start["system"] == "server_id 1"
    for asked in (life.reader.latestOffset, life.reader.partitions):
        with pytest.raises(OffsetError, match=r"of another server, and mean nothing to MySQL at .* without GTIDs"):
            asked({**start, "system": "server_id 2"}, ALL if asked == life.reader.latestOffset else start)
    life.reader.stop()


def test_a_limit_cuts_and_a_moment_is_found_by_the_second(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start = life.reader.initialOffset()
    mariadb.run("DELETE FROM t", *(f"INSERT INTO t VALUES ({key}, 'n', 0)" for key in range(10, 16)))
    time.sleep(2.1)
    moment = 1_000 * int(time.time())
    mariadb.run("FLUSH BINARY LOGS", *(f"INSERT INTO t VALUES ({key}, 'n', 0)" for key in range(20, 26)))
    found = []
    while (end := life.reader.latestOffset(start, ReadMaxRows(4))) != start:
        rows = [change[3] for change in life.changes(start, end) if change[2] == "insert"]
        assert len(rows) <= 4
        found += rows
        start = end
    assert found == [*range(10, 16), *range(20, 26)]
    later = Life(mariadb, startingTimestamp=moment)
    begin = later.reader.initialOffset()
    assert [change[3] for change in later.changes(begin, later.reader.latestOffset(begin, ALL))] == [*range(20, 26)]
    # There are no commit times to align by: batches go on in steps.
    grouped = Life(mariadb, startingTimestamp=moment, alignmentGroup="g", alignmentMaxDrift="1 second")
    assert len(grouped.changes(begin, grouped.reader.latestOffset(begin, ALL))) == 6
    for each in (life, later, grouped):
        each.reader.stop()
