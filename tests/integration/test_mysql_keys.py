"""Snapshots of tables with keys of every kind, while they are written to: equal to the server, and on every replay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.binlog.character_sets import first_codes_alone
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from pyspark_mysql_cdc_wm.snapshot.key_order import condition
from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_client import connect
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_keys import KINDS, Keys
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from tests.integration.mysql_writers import writers
from watermark_source.errors import UnsupportedFormatError, WatermarkSourceError
from watermark_source.planning.snapshot_ranges import Chunk

pytestmark = pytest.mark.service

_KEYS = 400
Row = tuple[Any, ...]


def fill(database: Database, kind: Keys) -> int:
    """Insert what the table takes, of keys that its collation finds equal one; return how many rows that were."""
    rows = ", ".join(f"({kind.values(2 * i)}, 'n{i}', {i})" for i in range(_KEYS // 2))
    database.run(kind.create("t"), f"INSERT IGNORE INTO t VALUES {rows}")
    return int(database.run("SELECT COUNT(*) FROM t")[0][0])


def rows_of(life: Life, start: Mapping[str, Any], end: Mapping[str, Any], names: Iterable[str]) -> list[Row]:
    shown = ("_commit_version", "_change_number", "_change_type", *names, "name", "amount")
    return sorted(tuple(hashable(row[name]) for name in shown) for row in life.rows(start, end))


def hashable(value: Any) -> Any:
    """Return a value; a SET's as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def applied(changes: Iterable[Row], table: dict[Row, Row], parts: int) -> None:
    for _, _, kind, *row in changes:
        key = tuple(row[:parts])
        if kind in ("insert", "update_postimage"):
            assert kind != "insert" or key not in table, (kind, row)
            table[key] = tuple(row)
        else:
            assert table[key] == tuple(row), (kind, row)
            if kind == "delete":
                del table[key]


def check(database: Database, kind: Keys) -> None:
    """Stream the table while it is written to, each batch twice."""
    rows = fill(database, kind)
    life = Life(database, snapshotChunkRows=rows // 8, snapshotParallelism=2)
    table: dict[Row, Row] = {}
    parts = len(kind.names)
    end: Mapping[str, Any] = life.reader.initialOffset()
    batches = 0
    with writers(database, "t", count=2, keys=_KEYS, kind=kind):
        while batches == 0 or "snapshot" in end:
            start, end = end, life.reader.latestOffset(end, ALL)
            changes = rows_of(life, start, end, kind.names)
            time.sleep(0.02)
            assert rows_of(life, start, end, kind.names) == changes
            applied(changes, table, parts)
            batches += 1
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(rows_of(life, start, end, kind.names), table, parts)
    life.reader.stop()
    held = Life(database, startingOffsets="snapshot", snapshotChunkRows=1_000_000)
    start = held.reader.initialOffset()
    as_it_is: dict[Row, Row] = {}
    applied(rows_of(held, start, held.reader.latestOffset(start, ALL), kind.names), as_it_is, parts)
    held.reader.stop()
    assert table == as_it_is
    assert len(table) == database.run("SELECT COUNT(*) FROM t")[0][0] > 20
    assert batches > 3


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MySql]:
    with mysql_service(flavour=Flavour.MARIADB, where=Where.LOCAL) as server:
        make_user(server, USER, *RIGHTS)
        yield server


IN_EACH_RUN = {
    "text and number", "0900_ai_ci", "latin1_german2_ci", "cp932_bin", "CHAR of utf16", "long text", "uuid",
    "DECIMAL", "ENUM", "SET with an empty label", "BIT(60)", "TIME(3)", "DOUBLE(10,2)",
}  # fmt: skip
"""One of each way in which keys are compared; the others differ by their type alone."""


def kinds_of_mysql() -> Iterator[object]:
    for name, kind in KINDS.items():
        if kind.flavour is not Flavour.MARIADB:
            marks = () if name in IN_EACH_RUN else pytest.mark.long("IN_EACH_RUN")
            yield pytest.param(name, marks=marks, id=name)


@pytest.mark.parametrize("name", list(kinds_of_mysql()))
def test_a_key_of_any_kind_is_read_once_while_it_is_written_to(name: str, mysql_database: Database) -> None:
    check(mysql_database, KINDS[name])


@pytest.mark.parametrize(
    "name",
    [
        "uca1400_ai_ci", "uuid",
        *(pytest.param(name, marks=pytest.mark.long("the others")) for name in ("one number", "text and number")),
    ],
)  # fmt: skip
def test_mariadb_shows_what_can_be_seen_without_gtids(name: str, mariadb: MySql) -> None:
    with new_database(mariadb) as database:
        check(database, KINDS[name])


_TWINS = "(x'81E0', 1), (x'8790', 2), (x'EEF9', 3), (x'FA54', 4), (x'81CA', 5)"
"""Keys in cp932 of which two and three are one text."""


@pytest.mark.parametrize("option", [{}, {"snapshotChunkRows": 2}, {"startingOffsets": "latest"}])
def test_keys_that_are_one_text_are_refused_in_a_snapshot_and_in_the_binlog(
    option: Mapping[str, Any], mysql_database: Database
) -> None:
    mysql_database.run("CREATE TABLE t (k VARCHAR(9) CHARACTER SET cp932 COLLATE cp932_bin PRIMARY KEY, n INT)")
    follows = "startingOffsets" in option
    life = Life(mysql_database, **option) if follows else None
    start: Mapping[str, Any] = life.reader.initialOffset() if life is not None else {}
    mysql_database.run(f"INSERT INTO t VALUES {_TWINS}")
    if life is None:
        life = Life(mysql_database, **option)
        start = life.reader.initialOffset()
    refused = r"table .*[.]t column k: a key of the character set cp932 .* IS NULL, k being the column"
    with pytest.raises(UnsupportedFormatError, match=refused):
        life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    finds = first_codes_alone("k", "cp932")
    assert mysql_database.run(f"SELECT n FROM t WHERE {finds} IS NULL ORDER BY n") == ((2,), (3,), (4,))


@pytest.mark.needs_mysql("generates no primary keys")
def test_a_key_that_the_server_generated_and_does_not_show_is_one(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    mysql_database.run(
        "SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF",
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE t (name VARCHAR(9))",
        "INSERT INTO t VALUES ('a'), ('b'), ('c')",
    )
    try:
        life = Life(mysql_database, snapshotChunkRows=1, snapshotParallelism=1)
        start = life.reader.initialOffset()
        end = life.reader.latestOffset(start, ALL)
        assert [(row["my_row_id"], row["name"]) for row in life.rows(start, end)] == [(1, "a")]
        assert "primary key" not in caplog.text
        life.reader.stop()
    finally:
        mysql_database.run("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")


@pytest.mark.parametrize("declared", ["shop INT", "shop ENUM('z','y','x')"])
def test_a_chunk_reads_no_more_of_the_index_than_its_rows(declared: str, mysql_database: Database) -> None:
    name, *kind = declared.split()
    key = [
        KeyColumn(name, ColumnType.ENUM, pa.string(), choices=3)
        if "ENUM" in declared
        else KeyColumn(name, ColumnType.LONG, pa.int32()),
        KeyColumn("day", ColumnType.LONG, pa.int32()),
        KeyColumn("id", ColumnType.LONG, pa.int32()),
    ]
    rows = ", ".join(f"({number // 1_500 + 1}, {number // 100}, {number})" for number in range(3_000))
    mysql_database.run(
        f"CREATE TABLE t ({name} {' '.join(kind)}, day INT, id INT, PRIMARY KEY ({name}, day, id))",
        f"INSERT INTO t VALUES {rows}", "ANALYZE TABLE t",
    )  # fmt: skip
    of_chunk = condition(key, Chunk((name, "day", "id", 2, 17, 1_750), (name, "day", "id", 2, 18, 1_850)))
    server = mysql_database.server
    with connect(server.host, server.port, database=mysql_database.name) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM t{of_chunk}")
        assert [row[0] for row in cursor.fetchall()] == list(range(1_750, 1_850))
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read_next'")
        ((_, read),) = cursor.fetchall()
    assert int(read) < 150


def test_a_table_without_a_key_is_one_chunk(mysql_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (name CHAR, amount INT)", "INSERT INTO t VALUES ('a', 1), ('a', 1), ('b', 2)")
    life = Life(database, snapshotChunkRows=1)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    assert f"tables without a primary key: {database.name}.t." in caplog.text
    assert end["snapshot"] == {f"{database.name}.t": [None]}
    database.run("UPDATE t SET amount = 3 WHERE name = 'b'")
    found = rows_of(life, start, end, ()) + rows_of(life, end, life.reader.latestOffset(end, ALL), ())
    life.reader.stop()
    # What was written between planning and reading is reported twice: in what the table holds, and as a change.
    assert [row[2:] for row in sorted(found)] == [
        ("insert", "a", 1), ("insert", "a", 1), ("insert", "b", 3),
        ("update_preimage", "b", 2), ("update_postimage", "b", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("bound", [[7], [7, 1], ["abc", "1"], [["a"], 1], ["a", 1, 2]])
def test_a_bound_that_is_no_key_of_the_table_is_refused(
    bound: list[Any], named: bool, mysql_database: Database
) -> None:
    kind = KINDS["text and number"]
    fill(mysql_database, kind)
    life = Life(mysql_database, snapshotChunkRows=10)
    start = life.reader.initialOffset()
    end = dict(life.reader.latestOffset(start, ALL))
    log = f"{mysql_database.name}.t"
    first, *others = end["snapshot"][log][:-1]
    names = first[: len(first) // 2] if named else []
    end["snapshot"] = {log: [first, *others, [*names, *bound]]}
    with pytest.raises(WatermarkSourceError, match=r"checkpoint") as refused:
        life.rows(start, end)
    assert "Traceback" not in str(refused.value)
    life.reader.stop()
