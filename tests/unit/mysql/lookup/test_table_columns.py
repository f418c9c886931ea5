"""The columns of tables and what keeps one from being read, by the answers of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.lookup.table_columns import (
    TableColumns,
    as_described,
    declared_labels,
    described,
)
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType, KeyPart, TableMap
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection
from watermark_source.errors import RefusedError, UnsupportedFormatError

MYSQL, MARIADB = "9.7.4", "11.8.9-MariaDB"
T = TableName("shop", "t")
COLLATIONS: Answer = [
    (255, "utf8mb4", "utf8mb4_0900_ai_ci"),
    (63, "binary", "binary"),
    (8, "latin1", "latin1_swedish_ci"),
]


def column(name: str, declared: str = "int", **more: Any) -> tuple[Any, ...]:
    """A row of information_schema.COLUMNS, with the privileges and the key's mark behind it."""
    shown = {"nullable": "NO", "precision": None, "scale": None, "fraction": None, "octets": None, "collation": None,
             "extra": "", "expression": "", "privileges": "select,insert", "key": "", **more}  # fmt: skip
    kind = declared.partition("(")[0].partition(" ")[0].lower()
    return ("shop", "t", name, kind, declared, *shown.values())


def connection(
    columns: Sequence[tuple[Any, ...]],
    version: str = MYSQL,
    *,
    key: Sequence[tuple[Any, ...]] = (),
    more: Mapping[str, Answer] | None = None,
) -> RecordedConnection:
    answers: dict[str, Answer] = {
        "SELECT ID, CHARACTER_SET_NAME": COLLATIONS,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, SUB_PART": [("shop", "t", *part) for part in key],
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE)": columns,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES": [],
        "SELECT CURRENT_ROLE()": [("NONE",)],
        "SHOW GRANTS": [("GRANT SELECT ON `shop`.`t` TO `cdc`@`%`",)],
        **(more or {}),
    }
    return RecordedConnection(answers, version)


def table(found: RecordedConnection, **choice: Any) -> TableColumns:
    return described(found, [T], ColumnChoice(**choice))[T]


ID, NAME = column("id"), column("name", "varchar(20)", octets=80, collation="utf8mb4_0900_ai_ci", nullable="YES")


def test_a_table_has_its_columns_their_types_and_its_key_in_the_keys_order() -> None:
    day = column("day", "date")
    found = table(connection([ID, NAME, day], key=[("day", None), ("id", None)]))
    assert found.names == ("id", "name", "day")
    assert found.types == (pa.int32(), pa.string(), pa.date32())
    assert found.key == ("day", "id")
    assert [each.name for each in found.chunk_columns] == ["day", "id"]
    assert not found.by_name["id"].nullable


def test_a_key_over_a_part_of_a_column_is_none() -> None:
    assert table(connection([ID, NAME], key=[("name", 10)])).key == ()


def test_a_chosen_column_cuts_a_snapshot_and_does_not_become_the_key() -> None:
    found = table(connection([ID, column("n")], key=[("id", None)]), chunked_by=((None, "N"),))
    assert (found.key, [each.name for each in found.chunk_columns]) == (("id",), ["n"])
    assert found.chunk_columns[0].chosen


def test_a_column_that_is_left_out_is_read_only_as_part_of_the_key() -> None:
    found = table(connection([ID, NAME, column("at", "polygon")], key=[("id", None)]), only=("name",))
    assert found.names == ("id", "name", "at")
    assert list(found.by_name) == ["id", "name"]


def test_tables_that_do_not_exist_and_columns_of_other_users_are_left_out() -> None:
    assert described(connection([]), [T], ColumnChoice()) == {}
    assert table(connection([ID, column("secret", privileges="insert")], key=[("id", None)])).names == ("id",)
    assert described(connection([column("secret", privileges="")]), [T], ColumnChoice()) == {}


def test_a_key_that_the_user_may_not_read_is_refused_with_the_grant() -> None:
    hidden = column("id", privileges="insert")
    grant = r"GRANT SELECT ON `shop`.`t` TO 'cdc'@'%'"
    with pytest.raises(UnsupportedFormatError, match=f"may not read id of the primary key.*{grant}"):
        table(connection([hidden, NAME], key=[("id", None)]))


@pytest.mark.parametrize(("unique", "is_refused"), [([], True), ([("b",)], True), ([("a",), ("b",)], False)])
def test_mariadb_hides_a_key_of_which_a_column_may_not_be_read(unique: list[tuple[str]], is_refused: bool) -> None:
    columns = [column("a", key="PRI"), column("b", key="PRI")]
    found = connection(columns, MARIADB, more={"SELECT COLUMN_NAME FROM information_schema.STATISTICS": unique})
    if is_refused:
        with pytest.raises(UnsupportedFormatError, match="may not read every column of the primary key"):
            table(found)
    else:
        # A unique key of a table without a primary key is marked alike.
        assert table(found).key == ()


@pytest.mark.parametrize(
    ("declared", "version", "refusal"),
    [
        ("inet6", MARIADB, "column c: the type inet6 is not read; leave it out by the option excludeColumns"),
        ("year(2)", MARIADB, r"the type year\(2\) is not read, because a SELECT shows two .* MODIFY `c` YEAR\(4\)"),
        (
            "datetime(3) /* mariadb-5.3 */",
            MARIADB,
            "the binlog does not have the length of its values.*MODIFY `c` DATETIME",
        ),
        ("set('','?')", MYSQL, "has an empty label, so its values are read by their numbers, and a label with a"),
    ],
)
def test_a_type_whose_values_would_be_guessed_is_refused(declared: str, version: str, refusal: str) -> None:
    columns = [ID, column("c", declared, collation=None)]
    with pytest.raises(UnsupportedFormatError, match=refusal):
        table(connection(columns, version, key=[("id", None)]))
    assert table(connection(columns, version, key=[("id", None)]), without=("C",)).key == ("id",)


def test_generated_columns_of_mariadb_are_refused_unless_left_out() -> None:
    columns = [ID, column("twice", extra="STORED GENERATED")]
    with pytest.raises(UnsupportedFormatError, match="logs no values of the generated columns twice"):
        table(connection(columns, MARIADB, key=[("id", None)]))
    with pytest.raises(UnsupportedFormatError, match="logs no values of the generated columns twice"):
        table(connection(columns, MARIADB, key=[("id", None)]), without=("twice",), chunked_by=((None, "twice"),))
    assert table(connection(columns, MARIADB, key=[("id", None)]), without=("twice",)).key == ("id",)
    assert table(connection(columns, key=[("id", None)])).names == ("id", "twice")


def test_a_table_that_keeps_former_rows_is_refused() -> None:
    versioned: dict[str, Answer] = {"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES": [("shop", "t")]}
    with pytest.raises(UnsupportedFormatError, match=r"ALTER TABLE `shop`\.`t` DROP SYSTEM VERSIONING"):
        table(connection([ID], MARIADB, more=versioned))
    # MySQL has no such tables, and is not asked.
    assert table(connection([ID], more=versioned)).names == ("id",)


@pytest.mark.parametrize(
    ("declared", "labels"),
    [
        ("enum('a','b')", (b"a", b"b")),
        ("set('it''s','a,b','')", (b"it's", b"a,b", b"")),
        (r"enum('\\','\n','\0x','ä')", (b"\\", b"\n", b"\0x", "ä".encode())),
    ],
)
def test_labels_are_read_as_the_server_writes_them(declared: str, labels: tuple[bytes, ...]) -> None:
    assert declared_labels(declared) == labels


# Table maps without names.

LOGGED = TableMap("shop", "t", (Column(ColumnType.LONG), Column(ColumnType.ENUM)))
STATE = column("state", "enum('new','paid')", collation="utf8mb4_0900_ai_ci")


def completed(columns: Sequence[tuple[Any, ...]], logged: TableMap = LOGGED, *, is_read: bool = True) -> TableMap:
    readable: Answer = [(each[2],) for each in columns]
    found = connection(
        columns, key=[("id", None)], more={"SELECT COLUMN_NAME FROM information_schema.COLUMNS": readable}
    )
    return as_described(found, lambda _: is_read, lambda _: None, Rights(found))(logged)


def test_names_labels_and_key_that_are_not_logged_are_those_of_the_server_now() -> None:
    found = completed([ID, STATE])
    assert [each.name for each in found.columns] == ["id", "state"]
    assert found.columns[1].labels == (b"new", b"paid")
    assert found.primary_key == (KeyPart(0),)
    assert completed([], is_read=False) is LOGGED


@pytest.mark.parametrize(
    ("columns", "seen"),
    [
        ([], "it does not exist now"),
        ([ID], "it had 2 columns then, and has 1 now"),
        ([column("id", "int unsigned"), STATE], "the column id had another type then, and is int unsigned now"),
        ([ID, column("state", "date")], "the column state had another type then, and is date now"),
        ([ID, column("state", "inet6")], "the column state had another type then, and is inet6 now"),
    ],
)
def test_a_table_that_was_altered_since_is_refused_where_names_are_not_logged(
    columns: Sequence[tuple[Any, ...]], seen: str
) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"was altered after this position of the binlog: {seen}"):
        completed(columns)


def test_a_label_that_the_server_does_not_show_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="which the server shows for characters beyond"):
        completed([ID, column("state", "enum('?')", collation="utf8mb4_0900_ai_ci")])


# Columns that are in the binlog alone.


def hidden(logged: TableMap, shown: Sequence[str], *, mariadb: bool = True, granted: str = "") -> list[str | None]:
    answers: dict[str, Answer] = {
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS": [(name,) for name in shown],
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES": [],
        "SELECT CURRENT_ROLE()": [("NONE",)], "SHOW GRANTS": [(f"GRANT SELECT{granted} ON `shop`.`t` TO `cdc`@`%`",)],
        "SELECT * FROM `shop`.`t`": RefusedError("no"),
    }  # fmt: skip
    asked = RecordedConnection(answers, MARIADB if mariadb else MYSQL)
    marked = as_described(asked, lambda _: True, lambda _: None, Rights(asked))(logged)
    return [each.name for each in marked.columns if each.hidden]


def logged(*names: str, kind: ColumnType = ColumnType.LONGLONG) -> TableMap:
    return TableMap("shop", "t", tuple(Column(kind, name=name) for name in names))


def test_mariadbs_hash_of_a_unique_key_is_hidden_and_a_column_of_that_name_is_not() -> None:
    table = logged("id", "DB_ROW_HASH_1", "DB_ROW_HASH_2")
    assert hidden(table, ["id", "DB_ROW_HASH_2"]) == ["DB_ROW_HASH_1"]
    assert hidden(table, [], mariadb=False) == []
    assert hidden(logged("DB_ROW_HASH_1", kind=ColumnType.LONG), []) == []


def test_columns_that_were_not_granted_are_hidden() -> None:
    assert hidden(logged("id", "secret"), ["id"], mariadb=False, granted=" (`id`)") == ["secret"]
    # Of a table that was dropped nothing is known.
    assert hidden(logged("id", "secret"), [], mariadb=False, granted=" (`id`)") == ["id", "secret"]
    # With the privilege for the table, the column was dropped since.
    assert hidden(logged("id", "secret"), ["id"], mariadb=False) == []


def test_a_key_that_was_granted_until_now_is_refused_in_the_binlog() -> None:
    keyed = replace(logged("id", "secret"), primary_key=(KeyPart(1),))
    with pytest.raises(UnsupportedFormatError, match="the user 'cdc' may not read secret of the primary key"):
        hidden(keyed, ["id"], granted=" (`id`)")


def test_a_period_that_is_not_described_is_that_of_a_table_that_keeps_former_rows() -> None:
    table = logged("id", "row_start", "row_end")
    assert hidden(table, ["id", "row_start", "row_end"]) == []
    with pytest.raises(UnsupportedFormatError, match="DROP SYSTEM VERSIONING"):
        hidden(table, ["id"])
