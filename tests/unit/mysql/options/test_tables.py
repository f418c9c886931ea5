"""Which tables a text chooses, and how names, names with asterisks and regular expressions are distinguished."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import pytest

from pyspark_mysql_cdc_wm.options.tables import TableName, TableReading, parse_readings, parse_tables

_SHOP = [
    TableName(*name)
    for name in (
        ("shop", "orders"), ("shop", "order_1"), ("shop", "order_22"), ("shop", "Orders"), ("shop", "a$b"),
        ("shop", "x.y"), ("shop", "a,b"), ("shop2", "orders"), ("shopxorders", "z"), ("mysql", "user"),
        ("sys", "orders"), ("information_schema", "tables"), ("performance_schema", "threads"),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("shop.orders", ["shop.orders"]),
        (" shop.orders , shop2.orders ,", ["shop.orders", "shop2.orders"]),
        ("shop.a$b", ["shop.a$b"]),
        ("shop.order_*", ["shop.order_1", "shop.order_22"]),
        ("*.orders", ["shop.orders", "shop2.orders"]),
        ("shop2.*,shop.order_1", ["shop2.orders", "shop.order_1"]),
        (r"shop\.order_\d", ["shop.order_1"]),
        (r"shop\d?\.orders", ["shop.orders", "shop2.orders"]),
        (r"shop\.(orders|order_\d{2,3}),shop2.*", ["shop.orders", "shop.order_22", "shop2.orders"]),
        ("^shop.orders$", ["shop.orders"]),
        (r"shop\.(a\(|orders),shop2.orders", ["shop.orders", "shop2.orders"]),
        (r"shop\.a\(?,shop2.orders", ["shop2.orders"]),
        ("`shop`.`x.y`", ["shop.`x.y`"]),
        ("`shop`.`50%`,shop.orders", ["shop.orders"]),
        ("`shop`.`a,b`,shop.orders", ["shop.a,b", "shop.orders"]),
        (r".*\..*", [str(name) for name in _SHOP if name.database.startswith("shop")]),
        ("*.*", [str(name) for name in _SHOP if name.database.startswith("shop")]),
    ],
)
def test_a_text_chooses_these_tables(text: str, chosen: list[str]) -> None:
    selection = parse_tables(text)
    assert {str(name) for name in _SHOP if selection.matches(name)} == set(chosen)


def test_names_ignore_case_where_the_servers_do() -> None:
    selection = replace(parse_tables(r"SHOP.ORDERS,shop\.ORDER_1"), ignores_case=True)
    assert {str(name) for name in _SHOP if selection.matches(name)} == {"shop.orders", "shop.Orders", "shop.order_1"}
    assert selection.databases is None


@pytest.mark.parametrize("wild", [0, 700])
def test_many_entries_take_no_time(wild: int) -> None:
    texts = [f"shop.table_{i}" for i in range(2_000)] + [f"shop.lines_{i}_*" for i in range(wild)]
    selection = pickle.loads(pickle.dumps(replace(parse_tables(",".join(texts)), ignores_case=True)))
    begun = time.process_time()
    names = [TableName("Shop", f"Table_{i}") for i in range(1_000, 3_000)]
    assert [selection.matches(name) for name in names] == [True] * 1_000 + [False] * 1_000
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "databases"),
    [("shop.*,shop2.orders,shop.orders", ["shop", "shop2"]), ("shop.orders,*.x", None), (r"shop\.x", None)],
)
def test_the_server_is_asked_about_no_other_databases_than_needed(text: str, databases: list[str] | None) -> None:
    assert parse_tables(text).databases == databases


@pytest.mark.parametrize(
    ("text", "here", "elsewhere"),
    [("shop.*,shop2.orders", "shop2", "mall"), (r"shop\.x", "mall", None), ("shop.orders,*.x", "mall", None)],
)
def test_whether_a_database_may_hold_one_of_them(text: str, here: str, elsewhere: str | None) -> None:
    selection = parse_tables(text)
    assert selection.may_be_in(here)
    assert elsewhere is None or not selection.may_be_in(elsewhere)
    assert replace(selection, ignores_case=True).may_be_in(here.upper())
    assert str(selection) == text.replace(",", ", ")


@pytest.mark.parametrize("name", [*_SHOP, TableName("a`b", "c.`d"), TableName("..", "`")])
def test_a_tables_text_names_it_alone(name: TableName) -> None:
    assert TableName.of(str(name)) == name


@pytest.mark.parametrize(
    "text", ["", " , ", "orders", "shop.", ".orders", "shop.a.b", "shop.orders,shop.orders", "a`.b", "mysql.user"]
)
def test_what_names_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no table|is not database\.table|twice|tables of system databases"):
        parse_tables(text)


@pytest.mark.parametrize(
    ("text", "logs"),
    [
        ("shop.orders:1", ["shop.orders.1"]),
        (" shop.orders:2026-11-29 ,shop.orders:again,", ["shop.orders.2026-11-29", "shop.orders.again"]),
        ("`my.shop`.`a,b:c`:x", ["`my.shop`.a,b:c.x"]),
    ],
)
def test_a_reading_of_a_table_has_a_log_of_its_own(text: str, logs: list[str]) -> None:
    readings = parse_readings(text)
    assert [str(each) for each in readings] == logs
    assert tuple(map(TableReading.of, logs)) == readings


@pytest.mark.parametrize("name", [("shop", "orders"), ("shop", "x.y"), ("a.b", "c"), ("shop", "orders`.1")])
def test_no_table_has_the_log_of_a_reading(name: tuple[str, str]) -> None:
    table = TableName(*name)
    assert TableReading.of(str(table)) == (table, None)
    assert TableReading.of(f"{table}.1") == (table, "1")


@pytest.mark.parametrize("text", ["", "shop.orders", "shop.orders:", "shop.orders:a.b", "orders:1", "a.b:1,a.b:1"])
def test_what_is_no_reading_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"label|names no table|is not database\.table"):
        parse_readings(text)
