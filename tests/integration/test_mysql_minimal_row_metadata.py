"""``MINIMAL`` row metadata: the same values under the same names, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.lookup.table_columns import as_described
from pyspark_mysql_cdc_wm.options.tables import parse_tables
from pyspark_mysql_cdc_wm.records.changes import Changes
from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database, python_rows, root
from tests.integration.mysql_columns import samples_of, version_of
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import fill, held
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from tests.integration.mysql_writers import writers
from watermark_source.errors import UnsupportedFormatError

pytestmark = pytest.mark.service

_ODD = r"'it''s','(','back\\slash','new\nline','\t',' x','größe','漢'"
_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"


@pytest.fixture(scope="module", params=each_flavour(), ids=lambda flavour: flavour.value)
def server(request: pytest.FixtureRequest) -> Iterator[MySql]:
    config = {"binlog_row_metadata": "MINIMAL"}
    with mysql_service(flavour=request.param, where=Where.LOCAL, config=config) as made:
        make_user(made, USER, *RIGHTS)
        yield made


@pytest.fixture
def database(server: MySql) -> Iterator[Database]:
    with new_database(server) as made:
        yield made


def changes(database: Database, table: str) -> list[Changes]:
    with closing(MySqlConnection(root(database.server))) as connection:
        selected = parse_tables(f"{database.name}.*").matches
        completed = as_described(connection, selected, lambda _: None, Rights(connection))
        return list(database.changes(table, completed=completed))


def test_every_type_has_the_values_that_full_metadata_give_it(database: Database) -> None:
    # A server copies a SET by its text, which does not have an empty label.
    samples = [each for each in samples_of(database.server) if each.name != "set_empty"]
    columns = ", ".join(f"{each.name} {each.declaration}" for each in samples)
    database.run(
        f"CREATE TABLE t ({columns}, b VARCHAR(5) NOT NULL, a INT, odd ENUM('a,b',{_ODD}), odds SET({_ODD}), "
        "PRIMARY KEY (a, b)) ROW_FORMAT = DYNAMIC",
        "CREATE TABLE u LIKE t",
    )
    names = ", ".join(["a", "b", "odd", "odds", *(each.name for each in samples)])
    for number in range(max(9, *(len(each.literals) for each in samples))):
        literals = [each.literals[number] if number < len(each.literals) else "NULL" for each in samples]
        values = ", ".join([str(number), f"'k{number}'", str(number % 9 + 1), str(number), *literals])
        database.run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", f"INSERT INTO t ({names}) VALUES ({values})")
    database.run("UPDATE t SET b = CONCAT(b, '!') WHERE a % 2 = 1")
    least = changes(database, "t")
    try:
        database.run("SET GLOBAL binlog_row_metadata = 'FULL'")
        database.run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", "INSERT INTO u SELECT * FROM t")
        full = changes(database, "u")
    finally:
        database.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    assert {(each.names, each.key) for each in least} == {(each.names, each.key) for each in full}
    assert {tuple(column.type for column in each.columns) for each in least} == {
        tuple(column.type for column in each.columns) for each in full
    }
    key = full[0].names.index("a")
    last = {row[key]: row for each in least for row in python_rows(each)}
    assert last == {row[key]: row for each in full for row in python_rows(each)}
    assert len({row[full[0].names.index("odd")] for row in last.values()}) == 9


def test_a_snapshot_and_its_binlog_are_exact_beside_writers(database: Database) -> None:
    fill(database, rows=500)
    life = Life(database, snapshotChunkRows=100, snapshotParallelism=2)
    start: Mapping[str, Any] = life.reader.initialOffset()
    found = []
    with writers(database, "t", count=2, keys=1_500):
        for _ in range(8):
            end = life.reader.latestOffset(start, ALL)
            found += life.changes(start, end)
            start = end
    end = life.reader.latestOffset(start, ALL)
    found += life.changes(start, end)
    copied = copy_of(sorted(found))
    assert (copied.lost, copied.doubled) == (0, 0)
    assert copied.table == held(database)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER TABLE t ADD COLUMN more INT", "it had 3 columns then, and has 4 now"),
        ("ALTER TABLE t MODIFY amount INT", "the column amount had another type then, and is int"),
        ("ALTER TABLE t MODIFY amount BIGINT UNSIGNED", "the column amount had another type then, and is bigint"),
        ("ALTER TABLE t MODIFY name VARCHAR(40) CHARACTER SET latin1", "the column name had another type then"),
        ("DROP TABLE t", "it does not exist now"),
    ],
)
def test_a_table_that_was_altered_since_is_refused(database: Database, statement: str, message: str) -> None:
    database.run(_TABLE)
    life = Life(database, startingOffsets="latest", ignoredChanges="columns")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 'one', 1)", statement)
    end = life.reader.latestOffset(start, ALL)
    with pytest.raises(UnsupportedFormatError, match=f"was altered .*{message}.* binlog_row_metadata = 'FULL'"):
        life.changes(start, end)
    if statement.endswith("INT"):
        # What is logged from then on is read.
        start = end
        database.run("UPDATE t SET amount = 2")
        assert [row[5] for row in life.changes(start, life.reader.latestOffset(start, ALL))] == [1, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t RENAME COLUMN amount TO price, RENAME COLUMN price TO amount",
        "ALTER TABLE t MODIFY amount BIGINT AFTER price",
        "ALTER TABLE t CHANGE amount price BIGINT, CHANGE price amount BIGINT",
        "ALTER TABLE t MODIFY mood ENUM('bad', 'good')",
        "RENAME TABLE t TO gone, u TO t",
    ],
)
@pytest.mark.parametrize("pieces", ["in the range", "behind the range"])
def test_rows_from_before_their_columns_changed_places_are_refused(
    database: Database, statement: str, pieces: str
) -> None:
    """The number of columns and their types are as before, so only the statement shows it."""
    declared = "(id INT PRIMARY KEY, amount BIGINT, price BIGINT, mood ENUM('good', 'bad'))"
    turned = "(id INT PRIMARY KEY, price BIGINT, amount BIGINT, mood ENUM('good', 'bad'))"
    database.run(f"CREATE TABLE t {declared}", f"CREATE TABLE u {turned}")
    life = Life(database, startingOffsets="latest", ignoredChanges="columns,tables")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 10, 20, 'good')")
    end = life.reader.latestOffset(start, ALL)
    database.run(statement)
    if pieces == "in the range":
        end = life.reader.latestOffset(start, ALL)
    for _ in range(2):
        with pytest.raises(
            UnsupportedFormatError,
            match=r"t was altered after rows .*(ALTER|RENAME) TABLE .* binlog_row_metadata = 'FULL'",
        ):
            life.rows(start, end)
    # What is logged from then on has the present names, and other statements since are no reason to refuse it.
    start = life.reader.latestOffset(end, ALL)
    database.run(
        "INSERT INTO t (id, amount, price, mood) VALUES (2, 30, 40, 'bad')", "CREATE TABLE IF NOT EXISTS t (id INT)",
        "ALTER TABLE t ADD INDEX (amount), ALTER COLUMN price SET DEFAULT 1", "DROP TABLE IF EXISTS other",
    )  # fmt: skip
    (row,) = life.rows(start, life.reader.latestOffset(start, ALL))
    assert [row[name] for name in ("id", "amount", "price", "mood")] == [2, 30, 40, "bad"]
    life.reader.stop()


def test_statements_of_a_binlog_that_was_reset_are_not_taken_for_those_of_the_new_one(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, amount INT, price INT)", "CREATE TABLE u (text LONGTEXT)")
    longer = "INSERT INTO u VALUES (REPEAT('x', {}))"
    has_new_name = database.server.flavour is Flavour.MYSQL and version_of(database.server) >= (8, 2)
    reset = "RESET BINARY LOGS AND GTIDS" if has_new_name else "RESET MASTER"
    database.run(reset, longer.format(1_000))
    before = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = before.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 10, 20)")
    end = before.reader.latestOffset(start, ALL)
    database.run(longer.format(100_000))
    assert [row["amount"] for row in before.rows(start, end)] == [10]
    before.reader.stop()
    # The new query reads, and the table is altered, where the former one found no such statement.
    database.run(reset, longer.format(50_000))
    life = Life(database, startingOffsets="latest")
    start = life.reader.initialOffset()
    database.run("INSERT INTO t VALUES (2, 30, 40)")
    end = life.reader.latestOffset(start, ALL)
    database.run("ALTER TABLE t MODIFY amount INT AFTER price", longer.format(100_000))
    with pytest.raises(UnsupportedFormatError, match=r"t was altered after rows .*MODIFY amount INT AFTER price"):
        life.rows(start, end)
    life.reader.stop()


def test_a_snapshot_refuses_changes_from_before_columns_changed_places(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, amount INT, price INT)", "INSERT INTO t VALUES (1, 10, 20)")
    life = Life(database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = 11", "ALTER TABLE t MODIFY amount INT AFTER price")
    with pytest.raises(UnsupportedFormatError, match=r"t was altered after rows .*MODIFY amount INT AFTER price"):
        life.rows(start, end)
    life.reader.stop()


def test_columns_that_may_not_be_read_are_not_known_without_names(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, n INT, secret INT)")
    others = [right for right in RIGHTS if not right.startswith("SELECT")]
    make_user(database.server, "some", *others, f"SELECT (id, n) ON {database.name}.t")
    logged = (
        r"the user 'some' may read.* With binlog_row_metadata = MINIMAL the binlog does not have the names of columns"
        r".*GRANT SELECT ON .*; or SET PERSIST binlog_row_metadata = 'FULL'"
    )
    with pytest.raises(UnsupportedFormatError, match=logged):
        Life(database, username="some", startingOffsets="latest")
    # The setting may have been another when the rows were logged.
    try:
        database.run("SET GLOBAL binlog_row_metadata = 'FULL'")
        life = Life(database, username="some", startingOffsets="latest")
        start: Mapping[str, Any] = life.reader.initialOffset()
        database.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "INSERT INTO t VALUES (1, 2, 3)")
    finally:
        database.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    with pytest.raises(UnsupportedFormatError, match=rf"the binlog has 3 columns, of which {logged}"):
        life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


@pytest.mark.parametrize("label", ["really?", "😀"])
def test_a_label_that_the_server_does_not_show_is_refused(database: Database, label: str) -> None:
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, mood ENUM('good', '{label}'))", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(UnsupportedFormatError, match=r"column mood: a label .* has a \?.* binlog_row_metadata"):
        changes(database, "t")


def test_a_limit_of_rows_counts_them_without_names(database: Database) -> None:
    database.run(_TABLE)
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run(*(f"INSERT INTO t VALUES ({key}, 'one', 1)" for key in range(5)))
    end = life.reader.latestOffset(start, ReadMaxRows(3))
    assert [row[3] for row in life.changes(start, end)] == [0, 1, 2]


def test_tables_that_no_one_reads_are_not_asked_for(database: Database) -> None:
    database.run(_TABLE, "CREATE TABLE gone LIKE t")
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run("INSERT INTO gone VALUES (1, 'one', 1)", "DROP TABLE gone", "INSERT INTO t VALUES (2, 'two', 2)")
    assert [row[3] for row in life.changes(start, life.reader.latestOffset(start, ALL))] == [2]


def test_a_table_that_is_not_of_the_chunk_may_have_been_altered(database: Database) -> None:
    database.run(_TABLE, "CREATE TABLE z LIKE t", "INSERT INTO t VALUES (1, 'one', 1)")
    life = Life(database, tables=f"{database.name}.t,{database.name}.z", snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("INSERT INTO z VALUES (1, 'one', 1)", "ALTER TABLE z ADD COLUMN more INT")
    assert [row[3:] for row in life.changes(start, end)] == [(1, "one", 1)]


def test_a_query_goes_on_within_its_snapshot(database: Database) -> None:
    rows = ", ".join(f"({key}, 'n', {key})" for key in range(9))
    database.run(_TABLE, f"INSERT INTO t VALUES {rows}")
    options = {"snapshotChunkRows": 2, "snapshotParallelism": 1}
    life = Life(database, **options)
    one = life.reader.latestOffset(life.reader.initialOffset(), ALL)
    database.run("UPDATE t SET amount = 100 WHERE id = 0")
    two = life.reader.latestOffset(one, ALL)
    assert ("update_postimage", 0) in [change[2:4] for change in life.changes(one, two)]
    life.reader.stop()

    again = Life(database, **options)
    three = again.reader.latestOffset(two, ALL)
    assert [change[3] for change in again.changes(two, three)] == [4, 5]
    again.reader.stop()


def test_a_table_dropped_while_its_snapshot_is_read_ends_nothing(database: Database) -> None:
    database.run(_TABLE, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    life = Life(database, snapshotChunkRows=1, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = -1", "DROP TABLE t")
    # No one can show any more what its columns were called.
    assert life.rows(start, end) == []
    life.reader.stop()


def test_metadata_that_is_set_within_a_transaction_changes_no_numbers(database: Database) -> None:
    database.run(_TABLE)
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    try:
        database.run(
            "BEGIN", "INSERT INTO t VALUES (1, 'one', 1)", "SET GLOBAL binlog_row_metadata = 'FULL'",
            "UPDATE t SET amount = 2", "SET GLOBAL binlog_row_metadata = 'MINIMAL'", "UPDATE t SET amount = 3",
            "COMMIT",
        )  # fmt: skip
    finally:
        database.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    found = life.changes(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    assert [(change[1], change[5]) for change in found] == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3)]
