"""Several tables of a database kept by a query's changes, batch by batch, each of which must fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.lookup import table_list
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import Life

TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
Tables = dict[str, dict[int, tuple[Any, ...]]]


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.1)


def fill(database: Database, table: str, rows: int, *, declared: str = TABLE) -> None:
    values = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(rows))
    database.run(declared.format(table), f"INSERT INTO {table} VALUES {values}")


def applied(rows: Iterable[Mapping[str, Any]], tables: Tables) -> None:
    """Make tables what they are after some changes, each of which must fit."""
    for row in sorted(rows, key=lambda row: (row["_commit_version"], row["_table"], row["_change_number"])):
        table = tables.setdefault(row["_table"], {})
        kind, values = row["_change_type"], (row["id"], row["name"], row["amount"])
        if kind in ("insert", "update_postimage"):
            assert kind != "insert" or row["id"] not in table, row
            table[row["id"]] = values
        else:
            assert table[row["id"]] == values, (row, table[row["id"]])
            if kind == "delete":
                del table[row["id"]]


def on_server(database: Database, *names: str) -> Tables:
    return {name: {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {name}")} for name in names}


def batch(life: Life, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read a batch twice, which gives the same rows."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["_commit_version"], row["_table"], row["_change_number"], row["id"]

    once = sorted(life.rows(start, end), key=key)
    assert once == sorted(life.rows(start, end), key=key)
    return once
