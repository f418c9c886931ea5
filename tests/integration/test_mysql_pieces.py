"""One batch's range of the binlog in many pieces, each a task's: together exactly what one task reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user

pytestmark = pytest.mark.service

Row = tuple[Any, ...]


def _insert(table: str, first: int, count: int) -> str:
    rows = (f"({i}, '{'x' * (i % 60 * 50)}')" for i in range(first, first + count))
    return f"INSERT INTO {table} VALUES {', '.join(rows)}"


def _history(database: Database) -> None:
    """Transactions of one row and of megabytes, of two tables by turns, packed and not, over several files."""
    packed = "SET SESSION binlog_transaction_compression = ON"
    database.run(
        "BEGIN", _insert("t", 0, 2_000), _insert("u", 0, 1_000), "UPDATE t SET name = 'changed' WHERE id % 3 = 0",
        _insert("t", 2_000, 1_000), "DELETE FROM u WHERE id < 500", "COMMIT",
        *(_insert("t", 10_000 + i, 1) for i in range(40)), "FLUSH BINARY LOGS",
        *(_insert("u", 10_000 + i, 1) for i in range(40)),
    )  # fmt: skip
    if database.server.flavour is Flavour.MYSQL:
        database.run(packed, "BEGIN", _insert("t", 20_000, 1_500), "DELETE FROM t WHERE id < 1000", "COMMIT")
    database.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "BEGIN", _insert("u", 30_000, 1_500), "COMMIT")


def _shown(row: Mapping[str, Any]) -> Row:
    names = ("_commit_version", "_table", "_change_number", "_change_type", "id", "name", "event_time")
    return tuple(row[name] for name in names)


def _rows(database: Database, pieces: int) -> tuple[int, list[Row]]:
    """Read all with so many tasks: their number, and the rows. All that they report is of use."""
    place = f'{{"file": "{database.since.file}", "position": {database.since.position}}}'
    tables = f"{database.name}.t,{database.name}.u"
    life = Life(database, tables=tables, startingOffsets=place, minPartitions=pieces)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    tasks = len(life.reader.partitions(start, end))
    rows = [_shown(row) for row in life.rows(start, end)]
    life.reader.latestOffset(end, ALL)
    life.reader.stop()
    return tasks, sorted(rows)


@pytest.fixture(params=each_flavour(), ids=lambda flavour: flavour.name.lower())
def database(request: pytest.FixtureRequest, mysql: MySql) -> Iterator[Database]:
    if request.param is mysql.flavour:
        make_user(mysql, USER, *RIGHTS)
        with new_database(mysql) as made:
            yield made
        return
    with mysql_service(flavour=request.param, where=Where.LOCAL) as server, new_database(server) as made:
        make_user(server, USER, *RIGHTS)
        yield made


def test_a_range_in_pieces_is_the_same_rows_with_the_same_numbers(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watermark_source")
    database.run(*(f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(3000))" for table in ("t", "u")))
    _history(database)

    few, rows = _rows(database, 1)

    assert len(rows) > 7_000
    assert len({row[:3] for row in rows}) == len(rows)
    assert few <= 2
    for pieces in (7, 60):
        tasks, found = _rows(database, pieces)
        assert tasks >= pieces
        assert found == rows
    assert "again" not in caplog.text


def test_a_query_that_began_with_a_snapshot_reads_the_binlog_in_pieces_too(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(3000))", "CREATE TABLE u LIKE t")
    database.run(_insert("t", 40_000, 300), _insert("u", 40_000, 300))
    tables = f"{database.name}.t,{database.name}.u"
    life = Life(database, tables=tables, snapshotChunkRows=100, snapshotParallelism=2)
    start: Mapping[str, Any] = life.reader.initialOffset()
    while len(start.get("complete", ())) < 2:
        start = life.reader.latestOffset(start, ALL)
    _history(database)
    end = life.reader.latestOffset(start, ALL)
    whole = sorted(map(_shown, life.rows(start, end)))
    assert len(whole) > 7_000

    again = Life(database, tables=tables, minPartitions=20)
    assert len(again.reader.partitions(dict(start), dict(end))) >= 20
    assert sorted(map(_shown, again.rows(start, end))) == whole
    again.reader.stop()
    life.reader.stop()


def test_what_no_task_reported_of_a_range_in_pieces_is_looked_at_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(3000))")
    database.run(_insert("t", 0, 3_000), "UPDATE t SET name = 'changed'")
    caplog.set_level(logging.INFO, "watermark_source")
    place = f'{{"file": "{database.since.file}", "position": {database.since.position}}}'
    life = Life(database, startingOffsets=place, minPartitions=5)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    tasks = life.reader.partitions(start, end)
    reported = [batch for task in tasks[1::2] for batch in life.reader.read(task)]
    assert 0 < sum(batch.num_rows for batch in reported) < 9_000

    life.reader.latestOffset(end, ALL)
    status = life.reader.reportLatestOffset()
    life.reader.stop()

    assert "again" in caplog.text
    assert status is not None
    assert status["rows"] == 9_000
