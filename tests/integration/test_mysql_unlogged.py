"""Tables that are changed as a whole, without a row of it logged: who reports it continues, with a warning."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_tables import Tables, applied, batch, fill, on_server
from watermark_source.errors import UnsupportedFormatError

pytestmark = pytest.mark.service

_IGNORE = {"ignoredChanges": "tables"}


@pytest.mark.parametrize(
    ("partitions", "statement"),
    [
        ("", "TRUNCATE t"),
        ("PARTITION BY HASH (id) PARTITIONS 2", "ALTER TABLE t TRUNCATE PARTITION p0"),
    ],
)
def test_a_query_that_was_ended_continues_when_it_is_to_ignore_that(
    mysql_database: Database, caplog: pytest.LogCaptureFixture, partitions: str, statement: str
) -> None:
    database = mysql_database
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY) {partitions}", "INSERT INTO t VALUES (1), (2)")
    life = Life(database, startingOffsets="latest")
    start = life.reader.initialOffset()
    database.run("DELETE FROM t WHERE id = 1", statement, "INSERT INTO t VALUES (3)")
    end = life.reader.latestOffset(start, ALL)
    with pytest.raises(UnsupportedFormatError, match=r"as a whole.* or add tables to ignoredChanges"):
        life.rows(start, end)
    life.reader.stop()
    again = Life(database, startingOffsets="latest", **_IGNORE)
    with caplog.at_level(logging.WARNING):
        assert [(row["_change_type"], row["id"]) for row in again.rows(start, end)] == [("delete", 1), ("insert", 3)]
    again.reader.stop()
    assert f"{statement}: it changed {database.name}.t as a whole" in caplog.text


def test_a_table_that_takes_the_place_of_another_continues_for_it(mysql_database: Database) -> None:
    """As tools do that alter a copy of a table, and keep it as the table is; here while a chunk waits to be read."""
    database = mysql_database
    fill(database, "t", 60)
    life = Life(database, snapshotChunkRows=20, snapshotParallelism=1, **_IGNORE)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    database.run(
        "UPDATE t SET amount = -1 WHERE id < 8", "CREATE TABLE copy LIKE t",
        "ALTER TABLE copy MODIFY name VARCHAR(99), ADD INDEX (amount)", "INSERT INTO copy SELECT * FROM t",
        "DELETE FROM t WHERE id = 8", "DELETE FROM copy WHERE id = 8", "RENAME TABLE t TO old, copy TO t",
        "UPDATE t SET amount = -2 WHERE id IN (2, 12, 22)", "INSERT INTO t (id, name, amount) VALUES (-1, 'new', 0)",
        "DROP TABLE old",
    )  # fmt: skip
    first = batch(life, start, end)
    assert {row["amount"] for row in first}.isdisjoint({-1, -2})
    assert 8 in {row["id"] for row in first}
    applied(first, tables)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t")


def test_of_a_copy_that_took_the_place_of_a_table_a_chunk_sees_what_it_had_then(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As gh-ost does, which brings its copy up to date while it has locked the table, and chunks wait for that."""
    database = mysql_database
    fill(database, "t", 10)
    database.run("CREATE TABLE copy LIKE t", "INSERT INTO copy SELECT * FROM t WHERE id < 10")
    life = Life(database, **_IGNORE)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    hold = ConsistentView.hold

    def swapped_before(view: ConsistentView, tables: Iterable[TableName]) -> frozenset[TableName]:
        monkeypatch.setattr(ConsistentView, "hold", hold)
        database.run("INSERT INTO copy SELECT * FROM t WHERE id >= 10", "RENAME TABLE t TO old, copy TO t")
        return hold(view, tables)

    monkeypatch.setattr(ConsistentView, "hold", swapped_before)
    assert sorted(row["id"] for row in life.rows(start, end)) == [2 * i for i in range(10)]
    life.reader.stop()


_COPY = (
    "CREATE TABLE `_t_new` LIKE t", "ALTER TABLE `_t_new` ADD INDEX (amount)",
    "INSERT INTO `_t_new` SELECT * FROM t",
)  # fmt: skip
SWAPS = {
    # As the manual of pt-online-schema-change shows; version 3.2.1 refuses to do so on MySQL from 8.0 on.
    "drop_swap": (("SET foreign_key_checks = 0", "DROP TABLE IF EXISTS t"), ("RENAME TABLE `_t_new` TO t",)),
    # gh-ost 1.1.6.
    "two-step": (
        ("alter /* gh-ost */ table t rename `_t_del`",), ("alter /* gh-ost */ table `_t_new` rename `t`",),
    ),
    # Both, by default.
    "one RENAME": ((), ("rename /* gh-ost */ table t to `_t_del`, `_t_new` to t",)),
}  # fmt: skip
"""What tools that alter a copy of a table do at last: how the table goes, and how its copy comes."""


@pytest.mark.parametrize("at", ["plan", "read"])
@pytest.mark.parametrize("tool", SWAPS)
def test_a_table_whose_copy_takes_its_place_is_whole_however_a_tool_swaps_them(
    mysql_database: Database, looks_often: None, tool: str, at: str
) -> None:
    """While its snapshot is planned, or read, there is no table of its name for a moment."""
    database, (away, back) = mysql_database, SWAPS[tool]
    fill(database, "t", 60)
    life = Life(database, snapshotChunkRows=20, snapshotParallelism=1, **_IGNORE)
    tables: Tables = {}
    end: Mapping[str, Any] = life.reader.initialOffset()
    start, end = end, life.reader.latestOffset(end, ALL)
    applied(batch(life, start, end), tables)
    # Some of what is changed lies behind the next batch's place, and is undone.
    planned = life.reader.latestOffset(end, ALL)
    database.run(*_COPY)
    database.run(*(f"UPDATE {table} SET amount = -5 WHERE id IN (4, 44, 84)" for table in ("t", "`_t_new`")))
    later = threading.Timer(1.0, lambda: database.run(*back, "UPDATE t SET amount = -6 WHERE id IN (6, 46, 86)"))
    if away:
        database.run(*away)
    later.start()
    time.sleep(0.2)
    start, end = end, life.reader.latestOffset(end, ALL) if at == "plan" else planned
    applied(batch(life, start, end), tables)
    later.join()
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(batch(life, start, end), tables)
    life.reader.stop()
    assert tables == on_server(database, "t")


def test_a_table_that_is_taken_away_and_not_replaced_is_refused_until_it_is(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = mysql_database
    monkeypatch.setattr("pyspark_mysql_cdc_wm.reading.snapshot_rows.SWAP_SECONDS", 0.3)
    fill(database, "t", 10)
    life = Life(database, **_IGNORE)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("ALTER TABLE t RENAME away")
    with pytest.raises(UnsupportedFormatError, match=r"it renamed .*[.]t while .*Rename the table, or the copy, to"):
        life.rows(start, end)
    database.run("ALTER TABLE away RENAME t")
    assert sorted(row["id"] for row in life.rows(start, end)) == [2 * i for i in range(10)]
    life.reader.stop()
