"""Tables whose columns are altered: each row is read with the columns its table had where the row is in the binlog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from watermark_source.errors import SchemaError, UnsupportedFormatError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(8,2), size FLOAT)"


def rows_of(life: Life, start: Mapping[str, Any], *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of what comes next, in the order of the changes."""
    rows = life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    rows.sort(key=lambda row: (row["_commit_version"], row["_change_number"]))
    return [tuple(row[name] for name in columns) for row in rows]


def from_now_on(database: Database) -> tuple[Life, Mapping[str, Any]]:
    """Make the table, and return a stream that begins behind that, with its place."""
    database.run(_TABLE)
    life = Life(database, startingOffsets="latest")
    return life, life.reader.initialOffset()


def test_what_was_logged_before_the_columns_were_as_they_are_now_fits_them(mysql_database: Database) -> None:
    database = mysql_database
    database.run(
        _TABLE, "INSERT INTO t VALUES (1, 'one', 1.25, 0.5)",
        "ALTER TABLE t MODIFY amount DECIMAL(30,4), MODIFY size DOUBLE, MODIFY id BIGINT, ADD COLUMN more INT FIRST",
        "INSERT INTO t VALUES (7, 2, 'two', 1e20, 0.1)",
        "ALTER TABLE t MODIFY name TEXT, DROP COLUMN size", "DELETE FROM t WHERE id = 1",
    )  # fmt: skip
    place = json.dumps({"file": database.since.file, "position": database.since.position})
    life = Life(database, startingOffsets=place)
    assert rows_of(life, life.reader.initialOffset(), "_change_type", "more", "id", "name", "amount") == [
        ("insert", None, 1, "one", Decimal("1.2500")),
        ("insert", 7, 2, "two", Decimal(10**20)),
        ("delete", None, 1, "one", Decimal("1.2500")),
    ]


def test_a_column_that_is_dropped_while_a_query_runs_is_null_from_there_on_and_is_reported(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    database.run(_TABLE, "INSERT INTO t VALUES (1, 'one', 1.25, 0.5)")
    life = Life(database, ignoredChanges="columns")
    start: Mapping[str, Any] = life.reader.initialOffset()
    while (before := start) != (start := life.reader.latestOffset(start, ALL)):
        life.rows(before, start)
    database.run(
        "UPDATE t SET size = 1.5", "ALTER TABLE t DROP COLUMN name, ADD COLUMN new INT", "UPDATE t SET size = 2.5"
    )  # fmt: skip
    assert rows_of(life, start, "_change_type", "id", "name", "size") == [
        ("update_preimage", 1, "one", 0.5), ("update_postimage", 1, "one", 1.5),
        ("update_preimage", 1, None, 1.5), ("update_postimage", 1, None, 2.5),
    ]  # fmt: skip
    assert "it has columns that the stream lacks: new. Their values are not delivered" in caplog.text
    altered = f"{database.name}.t was altered: where the binlog is read it"
    assert f"{altered} lacks columns of the stream, which are null: name" in caplog.text


_INSERTED = "INSERT INTO t VALUES (2, 'two', 2, 2)", "INSERT INTO t (id, amount) VALUES (3, 3)"


def test_rows_without_any_column_of_the_stream_are_null(mysql_database: Database) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (name INT)")
    life = Life(database, startingOffsets="latest", ignoredChanges="columns")
    start = life.reader.initialOffset()
    snapshot = Life(database, ignoredChanges="columns")
    begin = snapshot.reader.initialOffset()
    planned = snapshot.reader.latestOffset(begin, ALL)
    database.run("INSERT INTO t VALUES (1)", "ALTER TABLE t RENAME COLUMN name TO new", "INSERT INTO t VALUES (2), (3)")
    assert [row["name"] for row in snapshot.rows(begin, planned)] == [None] * 3
    snapshot.reader.stop()
    assert rows_of(life, start, "_change_type", "_change_number", "name") == [
        ("insert", 0, 1), ("insert", 0, None), ("insert", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"columns": "name"}, {"columns": "name", "rowFormat": "json"}])
def test_a_chunk_of_a_table_that_lost_all_chosen_columns_has_all_its_rows(
    mysql_database: Database, options: Mapping[str, str]
) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (name INT, other INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    life = Life(database, **options)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("ALTER TABLE t DROP COLUMN name")
    found = life.rows(start, end)
    life.reader.stop()
    assert [row.get("name", row.get("_row")) for row in found] == [None if "rowFormat" not in options else "{}"] * 2


@pytest.mark.parametrize(
    ("alter", "new"),
    [
        pytest.param("ALTER TABLE t RENAME COLUMN name TO nick", "nick", id="renamed"),
        pytest.param("ALTER TABLE t DROP COLUMN name, ADD COLUMN more VARCHAR(40) AFTER id", "more", id="added"),
    ],
)
def test_a_column_that_the_stream_has_not_ends_the_query_which_continues_with_it_when_loaded_again(
    mysql_database: Database, alter: str, new: str
) -> None:
    database = mysql_database
    life, start = from_now_on(database)
    database.run("INSERT INTO t VALUES (1, 'one', 1, 1)", alter, *_INSERTED)
    reported = (
        rf"{database.name}\.t was altered by .*{re.escape(alter)}: where the binlog is read it has columns that the "
        rf"stream lacks: {new}\. Load the stream again .* add columns to ignoredChanges"
    )
    with pytest.raises(SchemaError, match=reported):
        rows_of(life, start, "id")
    # The rows before have a column that no one has any more, and that ends nothing.
    again = Life(database, startingOffsets="latest")
    assert rows_of(again, start, "id", new) == [(1, None), (2, "two"), (3, None)]


@pytest.mark.parametrize(
    "alter",
    [
        ("ALTER TABLE t RENAME COLUMN name TO nick, RENAME COLUMN nick TO name",),
        ("ALTER TABLE t DROP COLUMN nick, RENAME COLUMN name TO nick",),
        ("ALTER TABLE t DROP COLUMN nick", "ALTER TABLE t CHANGE name Nick VARCHAR(20)"),
    ],
)
def test_a_column_that_takes_the_name_of_another_ends_the_query(
    mysql_database: Database, alter: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), nick VARCHAR(20))")
    life, snapshot = Life(database, startingOffsets="latest"), Life(database)
    ignoring = Life(database, startingOffsets="latest", ignoredChanges="columns")
    start, begin = life.reader.initialOffset(), snapshot.reader.initialOffset()
    planned = snapshot.reader.latestOffset(begin, ALL)
    database.run("INSERT INTO t VALUES (1, 'name', 'nick')", *alter)
    refused = r"[.]t to another, and logged no row: .*\. Begin a new query, or add columns to ignoredChanges"
    with pytest.raises(SchemaError, match=refused):
        rows_of(life, start, "id")
    with pytest.raises(SchemaError, match=refused):
        snapshot.rows(begin, planned)
    snapshot.reader.stop()
    assert rows_of(ignoring, start, "id", "nick") == [(1, "nick")]
    assert "and logged no row" in caplog.text


def test_rows_in_json_go_on_where_columns_swap_their_names_with_a_warning(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name INT, nick INT)")
    life = Life(database, startingOffsets="latest", rowFormat="json")
    start = life.reader.initialOffset()
    database.run(
        "INSERT INTO t VALUES (1, 2, 3)", "ALTER TABLE t RENAME COLUMN name TO nick, RENAME COLUMN nick TO name",
        "INSERT INTO t (id, name) VALUES (2, 4)",
    )  # fmt: skip
    rows = [json.loads(row) for (row,) in rows_of(life, start, "_row")]
    assert rows == [{"id": 1, "name": 2, "nick": 3}, {"id": 2, "nick": None, "name": 4}]
    assert "to another, and logged no row: name, nick" in caplog.text


def test_a_column_with_a_wider_type_ends_the_query_which_goes_on_with_it_when_loaded_again(
    mysql_database: Database,
) -> None:
    database = mysql_database
    life, start = from_now_on(database)
    database.run(
        "INSERT INTO t VALUES (1, 'one', 1, 1)", "ALTER TABLE t MODIFY id BIGINT",
        "INSERT INTO t VALUES (1 << 40, '', 2, 2)",
    )  # fmt: skip
    reported = (
        "the column id is int64, and the stream has it as int32. Load the stream again and start the query with its"
    )
    with pytest.raises(UnsupportedFormatError, match=reported):
        rows_of(life, start, "id")
    assert rows_of(Life(database, startingOffsets="latest"), start, "id") == [(1,), (1 << 40,)]


def test_a_column_that_was_added_and_dropped_again_ends_nothing(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    life, start = from_now_on(database)
    database.run(
        "ALTER TABLE t ADD COLUMN brief INT", "INSERT INTO t VALUES (1, 'one', 1, 1, 1)",
        "ALTER TABLE t DROP COLUMN brief", "INSERT INTO t VALUES (2, 'two', 2, 2)",
    )  # fmt: skip
    assert rows_of(life, start, "id") == [(1,), (2,)]
    assert "has columns that the stream lacks: brief. Their values are not delivered" in caplog.text


def test_a_chunk_of_a_table_that_was_altered_since_it_was_planned_is_rolled_back(mysql_database: Database) -> None:
    database = mysql_database
    database.run(_TABLE, "INSERT INTO t VALUES (1, 'one', 1.25, 0.5), (2, 'two', 2.5, 1)")
    life = Life(database, ignoredChanges="columns")
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run(
        "UPDATE t SET amount = 9 WHERE id = 1", "ALTER TABLE t ADD COLUMN new INT FIRST",
        "UPDATE t SET amount = 10, new = 1 WHERE id = 1",
    )  # fmt: skip
    rows = sorted((row["id"], row["name"], row["amount"]) for row in life.rows(start, end))
    life.reader.stop()
    assert rows == [(1, "one", Decimal("1.25")), (2, "two", Decimal("2.50"))]


def test_a_chunk_of_a_table_that_was_altered_and_altered_back_is_rolled_back_in_order(mysql_database: Database) -> None:
    database = mysql_database
    database.run(_TABLE, "INSERT INTO t (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    life = Life(database)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run(
        "UPDATE t SET name = 'x' WHERE id = 3", "ALTER TABLE t ADD COLUMN new INT",
        "UPDATE t SET name = 'x' WHERE id = 1", "DELETE FROM t WHERE id = 2", "ALTER TABLE t DROP COLUMN new",
        "UPDATE t SET name = 'y' WHERE id = 1", "INSERT INTO t (id, name) VALUES (2, 'y')",
    )  # fmt: skip
    assert sorted((row["id"], row["name"]) for row in life.rows(start, end)) == [(1, "one"), (2, "two"), (3, "three")]
    later = life.rows(end, life.reader.latestOffset(end, ALL))
    life.reader.stop()
    # As they come: all of them are of one range, which is read in the order of the binlog.
    assert [row["id"] for row in later] == [3, 3, 1, 1, 2, 1, 1, 2]


def test_a_column_that_is_new_to_a_quiet_table_ends_its_snapshot_which_continues_with_it_when_loaded_again(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = mysql_database
    database.run(_TABLE, "INSERT INTO t (id, name) VALUES (1, 'one')")
    life = Life(database)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("ALTER TABLE t RENAME COLUMN name TO nick")
    altered = f"{database.name}.t was altered: where its snapshot is read it"
    with pytest.raises(SchemaError, match=f"{altered} has columns that the stream lacks: nick. Load the stream"):
        life.rows(start, end)
    life.reader.stop()
    again = Life(database)
    assert [(row["id"], row["nick"]) for row in again.rows(start, end)] == [(1, "one")]
    again.reader.stop()
    database.run("ALTER TABLE t DROP COLUMN nick")
    assert [row["nick"] for row in again.rows(start, end)] == [None]
    assert f"{altered} lacks columns of the stream, which are null: nick" in caplog.text


@pytest.mark.parametrize("options", [{}, {"columns": "ID, name"}, {"rowFormat": "json"}])
def test_a_column_whose_name_changes_its_case_is_the_same_column(
    mysql_database: Database, caplog: pytest.LogCaptureFixture, options: Mapping[str, str]
) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    life = Life(database, snapshotChunkRows=1, snapshotParallelism=1, **options)
    end: Mapping[str, Any] = life.reader.initialOffset()
    found: list[dict[str, Any]] = []
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        if not found:
            database.run(
                "UPDATE t SET name = 'c'", "ALTER TABLE t CHANGE id ID INT, RENAME COLUMN name TO Name",
                "UPDATE t SET name = 'd'",
            )  # fmt: skip
        found += life.rows(start, end)
    life.reader.stop()
    rows = [json.loads(row["_row"]) if "_row" in row else row for row in found]
    state: dict[int, str] = {}
    for row, values in sorted(zip(found, rows, strict=True), key=lambda each: each[0]["_commit_version"]):
        key, name = ({column.lower(): value for column, value in values.items()}[each] for each in ("id", "name"))
        if row["_change_type"] in ("insert", "update_postimage"):
            state[key] = name
        else:
            assert state[key] == name
    assert state == {1: "d", 2: "d"}
    assert "lacks" not in caplog.text


@pytest.mark.parametrize(
    ("declared", "wider"),
    [
        ("INT", "BIGINT"),
        ("SMALLINT UNSIGNED", "BIGINT"),
        ("INT UNSIGNED", "BIGINT UNSIGNED"),
        ("DECIMAL(8,2)", "DECIMAL(20,2)"),
        ("FLOAT", "DOUBLE"),
    ],
)
def test_a_key_that_was_widened_while_a_chunk_waited_is_the_same_key(
    mysql_database: Database, declared: str, wider: str
) -> None:
    database = mysql_database
    database.run(f"CREATE TABLE t (id {declared} PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
    life = Life(database)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    life.reader.stop()
    database.run(
        "UPDATE t SET n = 1 WHERE id = 1", f"ALTER TABLE t MODIFY id {wider}", "UPDATE t SET n = 2 WHERE id IN (1, 2)"
    )
    with pytest.raises(UnsupportedFormatError, match=r"table .*[.]t was altered: .* the column id .* Load the stream"):
        life.rows(start, end)
    again = Life(database)
    assert sorted((int(row["id"]), row["n"]) for row in again.rows(start, end)) == [(1, 0), (2, 0), (3, 0)]
    again.reader.stop()


def test_a_key_with_another_type_ends_its_snapshot_with_the_name_of_the_table(mysql_database: Database) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    life = Life(database, excludeColumns="id")
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET n = 1", "ALTER TABLE t MODIFY id VARCHAR(9)", "UPDATE t SET n = 2")
    refused = r"table .*[.]t was altered while .*: its primary key \(id\) was of \(decimal128.* and is of \(string"
    with pytest.raises(UnsupportedFormatError, match=refused):
        life.rows(start, end)
    life.reader.stop()
