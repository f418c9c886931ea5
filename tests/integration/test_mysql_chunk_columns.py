"""Snapshots cut by a column which is not the primary key: exact where there is a key, and read once without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import DefaultSource
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, USER
from tests.integration.test_mysql_snapshot import snapshot_under_load
from watermark_source.errors import OffsetError, OptionError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT NOT NULL, KEY (amount))"


def test_rows_that_move_from_chunk_to_chunk_are_read_once_on_every_replay(mysql_database: Database) -> None:
    found = snapshot_under_load(mysql_database, 1, declared=_TABLE, snapshotChunkColumn="amount")
    assert found.replays > 5


def test_a_table_without_a_key_is_cut_however_many_rows_have_one_value(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["a"] * 5 + ["A", "b"] + ["c"] * 4 + ["d", "e", "f"]
    values = ", ".join(f"('{word}', {number})" for number, word in enumerate(words))
    mysql_database.run(
        "CREATE TABLE t (word VARCHAR(9) NOT NULL, number INT, KEY (word))", f"INSERT INTO t VALUES {values}"
    )
    life = Life(mysql_database, snapshotChunkRows=2, snapshotParallelism=2, snapshotChunkColumn="WORD")
    end: Mapping[str, Any] = life.reader.initialOffset()
    rows: list[tuple[str, str, int]] = []
    batches = 0
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        batches += "snapshot" in end
        rows += [(row["_change_type"], row["word"], row["number"]) for row in life.rows(start, end)]
        if batches == 2:
            # Of a value that was read, and of one whose turn has not come.
            mysql_database.run("UPDATE t SET number = 100 WHERE number IN (0, 13)")
    life.reader.stop()
    assert "tables without a primary key" in caplog.text
    assert batches > 2
    changed = [("update_preimage", "a", 0), ("update_postimage", "a", 100)]
    whole = [("insert", word, 100 if number == 13 else number) for number, word in enumerate(words)]
    assert sorted(rows) == sorted([*whole, *changed])


def test_a_snapshot_does_not_go_on_by_another_column(mysql_database: Database) -> None:
    mysql_database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, one INT NOT NULL, other INT NOT NULL)",
        "INSERT INTO t VALUES " + ", ".join(f"({i}, {i}, {i})" for i in range(40)),
    )
    chosen = {"snapshotChunkRows": 5, "snapshotParallelism": 1}
    life = Life(mysql_database, snapshotChunkColumn=f"{mysql_database.name}.t:one", **chosen)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    assert end["snapshot"] == {f"{mysql_database.name}.t": [["one", 5]]}
    life.reader.stop()
    for column in ("other", "id"):
        later = Life(mysql_database, snapshotChunkColumn=column, **chosen)
        with pytest.raises(OffsetError, match=rf"begun in the order of \(one\), and the table is read by \({column}\)"):
            later.reader.latestOffset(end, ALL)
        later.reader.stop()


@pytest.mark.parametrize(
    ("alter", "by"),
    [
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (k)", "k"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (k, id)", "k, id COLLATE utf8mb4_general_ci"),
        ("DROP PRIMARY KEY", ""),
        ("MODIFY id VARCHAR(9) COLLATE utf8mb4_bin", "id COLLATE utf8mb4_bin"),
    ],
)
def test_a_snapshot_does_not_continue_in_another_order(alter: str, by: str, mysql_database: Database) -> None:
    mysql_database.run(
        "CREATE TABLE t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, k INT NOT NULL)",
        "INSERT INTO t VALUES ('a', 51), ('B', 2), ('c', 63), ('D', 4)",
    )
    life = Life(mysql_database, snapshotChunkRows=1, snapshotParallelism=1)
    start = life.reader.initialOffset()
    read = life.reader.latestOffset(start, ALL)
    planned = life.reader.latestOffset(read, ALL)
    assert read["snapshot"] == {f"{mysql_database.name}.t": [["id COLLATE utf8mb4_general_ci", "B"]]}
    mysql_database.run(f"ALTER TABLE t {alter}")
    message = rf"begun in the order of \(id COLLATE utf8mb4_general_ci\), and the table is read by \({by}\)"
    with pytest.raises(OffsetError, match=message):
        life.rows(read, planned)
    life.reader.stop()
    later = Life(mysql_database, snapshotChunkRows=1, snapshotParallelism=1)
    with pytest.raises(OffsetError, match=message):
        later.rows(planned, later.reader.latestOffset(planned, ALL))
    later.reader.stop()


@pytest.mark.parametrize(
    ("declared", "values", "altered"),
    [
        ("ENUM('b','a','c')", "('b'), ('a'), ('c')", "ENUM('a','b','c')"),
        ("SET('b','a','c')", "('b'), ('a'), ('c')", "SET('a','b','c')"),
        ("DATETIME", "('2026-01-01'), ('2026-01-02'), ('2026-01-03')", "TIMESTAMP"),
    ],
)
def test_a_snapshot_does_not_continue_where_the_same_places_mean_other_rows(
    declared: str, values: str, altered: str, mysql_database: Database
) -> None:
    mysql_database.run(f"CREATE TABLE t (k {declared} PRIMARY KEY)", f"INSERT INTO t VALUES {values}")
    life = Life(mysql_database, snapshotChunkRows=1, snapshotParallelism=1, rowFormat="json")
    read = life.reader.latestOffset(life.reader.initialOffset(), ALL)
    planned = life.reader.latestOffset(read, ALL)
    mysql_database.run("SET time_zone = '-03:00'", f"ALTER TABLE t MODIFY k {altered}")
    with pytest.raises(OffsetError, match=r"begun in the order of \(k.*\), and the table is read by \(k.*\) now"):
        life.rows(read, planned)
    life.reader.stop()


def test_a_snapshot_continues_where_labels_were_added_behind_the_others(mysql_database: Database) -> None:
    # A server describes a column without characters like the first.
    mysql_database.run("CREATE TABLE t (k ENUM('😀','a') PRIMARY KEY)", "INSERT INTO t VALUES ('a'), ('😀')")
    life = Life(mysql_database, snapshotChunkRows=1, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    rows = life.rows(start, end)
    mysql_database.run(
        "ALTER TABLE t MODIFY k ENUM('😀','a','c')", "INSERT INTO t VALUES ('c')", "DELETE FROM t WHERE k = '😀'"
    )
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        rows += life.rows(start, end)
    life.reader.stop()
    assert [(row["_change_type"], row["k"]) for row in rows if row["k"] != "😀"] == [("insert", "a"), ("insert", "c")]
    assert [row["_change_type"] for row in rows if row["k"] == "😀"] == ["insert", "delete"]


@pytest.mark.parametrize("consistency", ["batch", "table"])
def test_a_chunk_may_end_at_a_label_that_was_added_since_the_query_began(
    consistency: str, mysql_database: Database
) -> None:
    database = mysql_database
    database.run(
        "CREATE TABLE t (id INT, k ENUM('b','a') NOT NULL, PRIMARY KEY (id, k))",
        "INSERT INTO t VALUES (1, 'b'), (1, 'a'), (2, 'b'), (2, 'a')",
    )
    options = {"snapshotChunkRows": 2, "snapshotParallelism": 1, "snapshotConsistency": consistency}
    life = Life(database, **options)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    rows = life.rows(start, end)
    database.run(
        "DELETE FROM t WHERE id = 2 AND k = 'a'", "ALTER TABLE t MODIFY k ENUM('b','a','c') NOT NULL",
        "INSERT INTO t VALUES (3, 'c'), (4, 'c'), (5, 'c')",
    )  # fmt: skip
    start, end = end, life.reader.latestOffset(end, ALL)
    assert end["snapshot"][f"{database.name}.t"][-1][2:] == [4, 3]
    rows += life.rows(start, end)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        rows += life.rows(start, end)
    life.reader.stop()
    left = Counter[tuple[Any, ...]]()
    for row in rows:
        left[row["id"], row["k"]] += 1 if row["_change_type"] == "insert" else -1
    assert left == Counter(database.run("SELECT id, k FROM t"))


def test_a_chunk_may_end_at_a_date_that_is_none(mysql_database: Database) -> None:
    database = mysql_database
    none = "'0000-00-00', '0000-00-00', '0000-00-00'"
    database.run(
        "SET sql_mode = ''",
        "CREATE TABLE t (born DATE, at TIMESTAMP(3) NOT NULL DEFAULT '2020-01-01', till DATETIME, id INT, "
        "PRIMARY KEY (born, at, till, id))",
        f"INSERT INTO t VALUES ({none}, 1), ({none}, 2), ({none}, 3), ({none}, 4), ('0000-00-00', '2020-01-01', 0, 5)",
    )
    life = Life(database, snapshotChunkRows=2, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("DELETE FROM t WHERE id IN (1, 4)", "UPDATE t SET id = 6 WHERE id = 3")
    rows = life.rows(start, end)
    assert sorted(row["id"] for row in rows) == [1, 2]
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        rows += life.rows(start, end)
    life.reader.stop()
    left = Counter[int]()
    for row in rows:
        left[row["id"]] += 1 if row["_change_type"] == "insert" else -1
    assert +left == Counter([2, 5, 6])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("nowhere", "there is no column nowhere; .*t has id, name, amount"),
        ("shop.t:id", "the table shop.t is not one of"),
        ("name", "may be NULL, and must be a column that is NOT NULL"),
        ("t:id", "database.table:column"),
        (":id", "database.table:column"),
        ("id,name", "database.table:column"),
    ],
)
def test_what_no_snapshot_can_be_cut_by_is_refused(column: str, message: str, mysql_database: Database) -> None:
    mysql_database.run(_TABLE.format("t"))
    server = mysql_database.server
    given = {
        "hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD,
        "tables": f"{mysql_database.name}.t", "snapshotChunkColumn": column,
    }  # fmt: skip
    with pytest.raises(OptionError, match=message):
        DefaultSource(given).schema()
