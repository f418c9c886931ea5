"""Which tables a query reads, and what is stated of one that is not there, by the answers of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pytest

from pyspark_mysql_cdc_wm.lookup import table_list
from pyspark_mysql_cdc_wm.lookup.table_list import TableList, check_found, is_sequence, names_of, tables_of
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType, TableMap
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, checked_server, in_turn
from watermark_source.errors import RefusedError, UnknownSplitError

MARIADB = "11.8.9-MariaDB"
HELD: list[tuple[str, ...]] = [
    ("shop", "orders", "BASE TABLE", "InnoDB"),
    ("shop", "orders_old", "SYSTEM VERSIONED", "InnoDB"), ("shop", "open", "VIEW", "InnoDB"),
    ("shop", "numbers", "SEQUENCE", "InnoDB"),
    ("other", "orders", "BASE TABLE", "InnoDB"),
]  # fmt: skip


def connection(
    held: Answer = HELD, version: str = "9.7.4", more: Mapping[str, Answer] | None = None, refused: Sequence[str] = ()
) -> RecordedConnection:
    """Answer that there are these tables, and that the user may SELECT all but ``refused`` ones."""

    def readable(*asked: str) -> list[tuple[str, ...]]:
        databases = {"shop", "other"}.intersection(asked)
        return list(product(databases, set(asked) - databases - set(refused)))

    return RecordedConnection(
        {"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": held, "SELECT DISTINCT": readable, **(more or {})}, version
    )


def found(text: str, asked: RecordedConnection | None = None, *, rule: str = "0") -> list[str]:
    server = checked_server({"SHOW GLOBAL VARIABLES": [("lower_case_table_names", rule)]}, tables=text)
    asked, selection = asked or connection(), server.selection
    tables = tables_of(asked, selection)
    check_found(asked, selection, tables)
    return sorted(map(str, tables.read))


def test_patterns_find_tables_and_neither_views_nor_sequences() -> None:
    assert found("*.*") == ["other.orders", "shop.orders", "shop.orders_old"]
    assert found("shop.or*") == ["shop.orders", "shop.orders_old"]
    assert found(r"(shop|other)\.orders") == ["other.orders", "shop.orders"]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("shop.open", "shop.open is a view, not a table, and the binlog has no rows of it"),
        ("shop.numbers", "shop.numbers is a sequence, not a table"),
        (
            "shop.order",
            "there is no table shop.order, or the user 'cdc' may not see it.*GRANT SELECT ON `shop`.`order`",
        ),
        ("shop.order", "The tables it may see: .*shop.orders"),
        ("none.like*", "there is no table like none.like.*The tables it may see: (\\w+\\.\\w+(, )?){3}$"),
    ],
)
def test_a_table_that_is_not_there_is_named_with_those_that_are(text: str, refusal: str) -> None:
    with pytest.raises(UnknownSplitError, match=refusal):
        found(text)


def test_where_the_user_sees_nothing_that_is_reported() -> None:
    with pytest.raises(UnknownSplitError, match="The tables it may see: none"):
        found("*.*", connection([]))


@pytest.mark.parametrize(("number", "ignores"), [(0, False), (1, True), (2, True)])
def test_the_servers_rule_for_the_case_of_names_is_the_selections(number: int, ignores: bool) -> None:
    rule = str(number)
    if ignores:
        assert found("Shop.Orders", rule=rule) == ["shop.orders"]
    else:
        with pytest.raises(UnknownSplitError, match=r"there is no table Shop\.Orders"):
            found("Shop.Orders", rule=rule)


def test_tables_that_may_not_be_read_are_left_out_of_patterns_and_refused_by_name() -> None:
    asked = connection(refused=["orders_old"])
    assert found("shop.*", asked) == ["shop.orders"]
    tables = tables_of(asked, parse_tables("shop.*"))
    assert tables.left_out == {TableName("shop", "orders_old")}
    with pytest.raises(RefusedError, match=r"may not read shop\.orders_old\. On the server: GRANT SELECT ON `shop`"):
        found("shop.*,shop.orders_old", asked)
    with pytest.raises(RefusedError, match=r"may not read shop\.orders, shop\.orders_old: the stream lacks these"):
        found("shop.*", connection(refused=["orders", "orders_old"]))


def test_a_table_that_is_dropped_while_rights_are_looked_up_is_not_taken_for_one_that_may_not_be_read() -> None:
    asked = connection(in_turn(HELD, HELD[1:]), refused=["orders"])
    assert not tables_of(asked, parse_tables("shop.*")).left_out


def test_a_new_table_that_may_not_be_read_is_named_once_and_read_when_it_may_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    refused = ["orders_old"]
    asked = connection(refused=refused)
    tables = TableList(asked, parse_tables("shop.*"))
    assert tables.now() == tables.now() == {TableName("shop", "orders")}
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith(
        "MySQL at db1:3306: the user 'cdc' may not read shop.orders_old: the stream lacks this table"
    )
    assert logged.endswith("On the server: GRANT SELECT ON `shop`.`orders_old` TO 'cdc'@'%'")
    # What is known is not asked for again.
    assert tables.now() == TableList(asked, parse_tables("shop.*"), tables.now()).now()
    refused.clear()
    assert tables.now() == {TableName("shop", "orders"), TableName("shop", "orders_old")}


def test_tables_are_listed_again_after_a_while_or_when_one_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(table_list.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
    asked = connection(in_turn([("shop", "a", "BASE TABLE", "InnoDB")], [("shop", "b", "BASE TABLE", "InnoDB")], []))
    tables = TableList(asked, parse_tables("shop.*"))
    assert tables.now() == {TableName("shop", "a")}
    now += 4.9
    assert tables.now() == {TableName("shop", "a")}
    now += 0.2
    assert tables.now() == {TableName("shop", "b")}
    tables.expire()
    assert tables.now() == frozenset()
    assert len([sent for sent in asked.sent if "TABLE_TYPE" in sent]) == 3


SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "version", "kind", "expected"),
    [
        (SEQUENCE, MARIADB, [("SEQUENCE",)], True),
        # It was dropped since.
        (SEQUENCE, MARIADB, [], True),
        (SEQUENCE, MARIADB, [("BASE TABLE",)], False),
        (SEQUENCE, "9.7.4", [], False),
        (SEQUENCE[:-1], MARIADB, [], False),
    ],
)
def test_states_of_a_sequence_are_distinguished_from_rows_of_a_table(
    names: tuple[str, ...], version: str, kind: list[tuple[str]], expected: bool
) -> None:
    columns = tuple(Column(ColumnType.LONGLONG, name=name) for name in names)
    table = TableMap("shop", "numbers", columns)
    assert is_sequence(connection(version=version, more={"SELECT TABLE_TYPE": kind}), table) is expected


def test_names_that_a_server_shows_are_between_commas() -> None:
    assert names_of("a, b,,c") == {"a", "b", "c"}
    assert names_of(None) == names_of("") == frozenset()
