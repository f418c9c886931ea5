"""A limit of rows: batches of the binlog end between transactions, have so many rows, and lose and double none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import Delivered, fill, held
from tests.integration.mysql_lives import ALL, Change, Life
from tests.integration.mysql_streams import MySqlStreams
from tests.integration.mysql_writers import writers
from tests.integration.test_mysql_transactions import befores

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
_LIMIT = 100
_BATCH = tuple[Mapping[str, Any], list[Change]]


def insert(first: int, count: int, table: str = "t") -> str:
    return f"INSERT INTO {table} VALUES " + ", ".join(f"({i}, 'name {i}', {i})" for i in range(first, first + count))


@pytest.fixture
def database(mysql_database: Database) -> Database:
    mysql_database.run(_TABLE, "CREATE TABLE unread LIKE t")
    return mysql_database


def written(database: Database) -> None:
    """Write transactions of one to 50 rows, one of 350, and ones of another table, into several files."""
    packed = ["SET SESSION binlog_transaction_compression = ON"] if database.server.flavour is Flavour.MYSQL else []
    database.run(*packed, insert(0, 50), insert(50, 350), insert(400, 30))
    for number in range(25):
        database.run(
            insert(1_000 + 50 * number, 1 + 7 * number % 50), insert(300 * number, 300, "unread"), "BEGIN",
            f"UPDATE t SET amount = -1 WHERE id BETWEEN {1_000 + 50 * number} AND {1_010 + 50 * number}",
            f"DELETE FROM t WHERE id = {1_000 + 50 * number}", "COMMIT",
        )  # fmt: skip
        if number % 13 == 0:
            database.run("FLUSH BINARY LOGS")


def place(offset: Mapping[str, Any]) -> int:
    """Return where an offset is in the binlog."""
    found: int = offset["splits"]["binlog"]["0"][0]
    return found


def batches(life: Life, start: Mapping[str, Any], rows: int = _LIMIT) -> Iterator[_BATCH]:
    """Plan and read batch after batch, to the end of what there is."""
    while (end := life.reader.latestOffset(start, ReadMaxRows(rows))) != start:
        yield end, life.changes(start, end)
        start = end


def test_batches_have_so_many_rows_at_most_and_together_all_and_are_the_same_when_done_again(
    database: Database,
) -> None:
    life = Life(database, startingOffsets="latest")
    begin: Mapping[str, Any] = life.reader.initialOffset()
    start = begin
    written(database)
    found = []
    for number, (end, rows) in enumerate(batches(life, start)):
        found.append(rows)
        if number % 5 == 0:
            again = Life(database)
            assert again.changes(start, end) == rows
            # The event time of the last one is of the server's clock.
            assert place(again.reader.latestOffset(start, ReadMaxRows(_LIMIT))) == place(end)
            again.reader.stop()
        start = end
    whole = Life(database)
    assert [row for rows in found for row in rows] == whole.changes(begin, whole.reader.latestOffset(begin, ALL))
    found = [rows for rows in found if rows]
    large = [len(rows) for rows in found if len(rows) > _LIMIT]
    assert large == [350], "only a transaction that is larger by itself"
    for rows, after in pairwise(found):
        assert not {row[0] for row in rows} & {row[0] for row in after}
        next_transaction = sum(row[0] == after[0][0] for row in after)
        assert len(rows) + next_transaction > _LIMIT, "one more would have fitted"


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_a_place_at_which_a_batch_ends_is_named_by_the_transactions_before_it(database: Database) -> None:
    database.run("FLUSH BINARY LOGS")
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    written(database)
    done = {end["splits"]["binlog"]["0"][0]: end["done"] for end, _ in batches(life, start)}
    assert len(done) > 8
    assert done == dict(befores(database, set(done)))


def test_few_bytes_are_not_read_ahead(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mysql_cdc_wm.lookup.binlog_search.batch_end", None)
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run(insert(0, 10))
    assert [len(rows) for _, rows in batches(life, start, 1_000) if rows] == [10]


def test_where_others_are_written_to_a_batch_ends_as_well(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mysql_cdc_wm.lookup.binlog_search._MOST_BYTES", 1_000_000)
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run(insert(0, 1_000, "unread"))
    for number in range(8):
        database.run(f"INSERT INTO unread SELECT id + {1_000 << number}, name, amount FROM unread")
    database.run(insert(0, 10))
    found = [len(rows) for _, rows in batches(life, start)]
    assert found.index(10) > 1
    assert sum(found) == 10


@pytest.mark.long("test_batches_have_so_many_rows_at_most_and_together_all_and_are_the_same_when_done_again")
def test_a_catch_up_through_spark_is_of_many_batches_and_complete(mysql_streams: MySqlStreams) -> None:
    database = mysql_streams.database
    fill(database, rows=1_000)
    frame = mysql_streams.source(maxRowsPerTrigger=500)
    mysql_streams.run(frame, "all")
    snapshot = [p["numInputRows"] for p in _progress(mysql_streams)]
    assert sum(snapshot) >= 1_000
    for number in range(20):
        database.run(f"UPDATE t SET amount = {number} WHERE id < 100")
    query = mysql_streams.run(frame, "all")
    sizes = [p["numInputRows"] for p in query.recentProgress]
    # Markers are rows to Spark.
    assert max(sizes) <= 500 + 2
    assert len([size for size in sizes if size > 400]) >= 20 * 100 // 500
    found = copy_of(Delivered.of(mysql_streams, "all").rows)
    assert (found.lost, found.doubled) == (0, 0)
    assert found.table == held(database)


def test_a_snapshot_beside_writers_keeps_to_it_and_is_exact(database: Database) -> None:
    database.run(insert(0, 2_000))
    found = []
    with writers(database, "t", count=2, keys=3_000):
        life = Life(database, snapshotParallelism=3, maxRowsPerTrigger=150)
        start: Mapping[str, Any] = life.reader.initialOffset()
        end = start
        while end == start or "snapshot" in end:
            start, end = end, life.reader.latestOffset(end, ReadMaxRows(150))
            found.append(life.changes(start, end))
    found += [rows for _, rows in batches(life, end, 150)]
    # Its chunks, and the changes beside them.
    assert max(map(len, found)) <= 2 * 150 + 3 * 42
    copied = copy_of(sorted(row for rows in found for row in rows))
    assert (copied.lost, copied.doubled) == (0, 0)
    assert copied.table == held(database)


def _progress(streams: MySqlStreams) -> list[Any]:
    return list(streams.started[-1].recentProgress)


def test_a_files_own_events_are_no_batch(database: Database) -> None:
    database.run("FLUSH BINARY LOGS", insert(0, _LIMIT + 50))
    file = database.run("SHOW BINARY LOGS")[-1][0]
    life = Life(database, startingOffsets=f'{{"file": "{file}", "position": 4}}')
    assert [len(rows) for _, rows in batches(life, life.reader.initialOffset())][:1] == [_LIMIT + 50]
    life.reader.stop()
