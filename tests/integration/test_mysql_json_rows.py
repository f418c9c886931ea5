"""Tables with different columns as one stream of JSON texts: every table whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import CHANGE, RIGHTS, USER, MySqlStreams, make_user
from tests.integration.mysql_writers import writers

pytestmark = pytest.mark.service


@pytest.fixture(scope="module", params=each_flavour(), ids=lambda flavour: flavour.value)
def server(request: pytest.FixtureRequest, mysql: MySql) -> Iterator[MySql]:
    if request.param is mysql.flavour:
        yield mysql
        return
    with mysql_service(flavour=request.param, where=Where.LOCAL) as other:
        yield other


@pytest.fixture
def database(server: MySql) -> Iterator[Database]:
    make_user(server, USER, *RIGHTS)
    with new_database(server) as made:
        yield made


def applied(rows: Iterable[Mapping[str, Any]], keys: Mapping[str, tuple[str, ...]]) -> dict[str, set[str]]:
    """Return the rows, as texts, that are left of each table after some changes, each of which must fit."""
    tables: dict[str, dict[tuple[Any, ...], str]] = {}
    for row in sorted(rows, key=lambda row: (row["_commit_version"], row["_table"], row["_change_number"])):
        table, values = tables.setdefault(row["_table"], {}), json.loads(row["_row"])
        key = tuple(values[name] for name in keys[row["_table"]])
        if row["_change_type"] in ("insert", "update_postimage"):
            assert row["_change_type"] != "insert" or key not in table, row
            table[key] = row["_row"]
        else:
            assert table[key] == row["_row"], row
            if row["_change_type"] == "delete":
                del table[key]
    return {name: set(table.values()) for name, table in tables.items()}


KEYS = {"t": ("id",), "lines": ("order_id", "line"), "words": ("word",)}


def fill(database: Database) -> None:
    lines = ", ".join(f"({i // 3}, {i % 3}, {i}.50, '2024-01-02 03:04:05.678')" for i in range(900))
    words = ", ".join(f"('w{i}{'ä' if i % 2 else 'Ä'}')" for i in range(300))
    amounts = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(500))
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)", f"INSERT INTO t VALUES {amounts}",
        "CREATE TABLE `lines` (order_id INT, line TINYINT, price DECIMAL(8,2), at DATETIME(3), "
        "PRIMARY KEY (order_id, line))", f"INSERT INTO `lines` VALUES {lines}",
        "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)", f"INSERT INTO words VALUES {words}",
    )  # fmt: skip


def on_server(database: Database) -> dict[str, set[str]]:
    """Return every row as the text that it should be."""
    queries = {
        "t": ('{{"id":{},"name":"{}","amount":{}}}', "SELECT id, name, amount FROM t"),
        "lines": (
            '{{"order_id":{},"line":{},"price":{},"at":"{}"}}',
            "SELECT order_id, line, CAST(price AS CHAR), CAST(at AS CHAR) FROM `lines`",
        ),
        "words": ('{{"word":"{}"}}', "SELECT word FROM words"),
    }
    return {name: {form.format(*row) for row in database.run(query)} for name, (form, query) in queries.items()}


def test_tables_with_different_columns_and_keys_are_one_stream(database: Database) -> None:
    fill(database)
    life = Life(
        database, tables=f"{database.name}.*", rowFormat="json", snapshotChunkRows=200, snapshotParallelism=2
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    end: Mapping[str, Any] = life.reader.initialOffset()
    batches = 0
    with ExitStack() as running:
        running.enter_context(writers(database, "t", count=2, keys=1_000))
        while batches < 4:
            start, end = end, life.reader.latestOffset(end, ALL)
            once = life.rows(start, end)
            database.run(
                f"UPDATE `lines` SET order_id = order_id + 1000 WHERE order_id = {batches * 7} AND line = 1",
                f"UPDATE `lines` SET price = price + 0.25 WHERE order_id < {100 + batches}",
                f"UPDATE words SET word = CONCAT('x', word) WHERE word LIKE 'w{batches}%'",
                "DELETE FROM words WHERE word LIKE 'w9%'",
            )
            assert sorted(map(str, life.rows(start, end))) == sorted(map(str, once))
            found += once
            batches += "snapshot" not in end
    start, end = end, life.reader.latestOffset(end, ALL)
    found += life.rows(start, end)
    life.reader.stop()
    assert applied(found, KEYS) == on_server(database)


def test_columns_that_come_go_and_change_are_followed(mysql_database: Database) -> None:
    database = mysql_database
    fill(database)
    life = Life(database, tables=f"{database.name}.t", rowFormat="json")
    end: Mapping[str, Any] = life.reader.initialOffset()
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        pass
    database.run(
        "INSERT INTO t VALUES (-1, 'a', 1)", "ALTER TABLE t ADD COLUMN more JSON, MODIFY amount DECIMAL(10,2)",
        """INSERT INTO t VALUES (-2, 'b\\n"', 2, '{"x": [1, null]}')""", "ALTER TABLE t DROP COLUMN name",
        "DELETE FROM t WHERE id = -2",
    )  # fmt: skip
    start, end = end, life.reader.latestOffset(end, ALL)
    life_rows = sorted(life.rows(start, end), key=lambda row: row["_commit_version"])
    life.reader.stop()
    document = '{"x": [1, null]}'
    # To MariaDB JSON is text.
    more = document if database.server.flavour is Flavour.MYSQL else json.dumps(document)
    assert [(row["_change_type"], row["_row"]) for row in life_rows] == [
        ("insert", '{"id":-1,"name":"a","amount":1}'),
        ("insert", f'{{"id":-2,"name":"b\\n\\"","amount":2.00,"more":{more}}}'),
        ("delete", f'{{"id":-2,"amount":2.00,"more":{more}}}'),
    ]


def test_json_is_read_through_spark_and_says_what_it_is(mysql_streams: MySqlStreams) -> None:
    database = mysql_streams.database
    fill(database)
    frame = mysql_streams.source("*", rowFormat="json", excludeColumns="at", snapshotChunkRows=600)
    assert frame.columns[0] == "_row"
    assert "amount" not in frame.columns
    mysql_streams.run(frame, "all")
    database.run("UPDATE `lines` SET price = 1000 WHERE order_id = 1", "DELETE FROM words WHERE word = 'w1ä'")
    mysql_streams.run(frame, "all")
    rows = [row.asDict() for row in mysql_streams.changes("all", ("_row", "_table", *CHANGE))]
    at = re.compile(r',"at":"[^"]*"')
    without = {name: {at.sub("", text) for text in each} for name, each in on_server(database).items()}
    assert applied(rows, KEYS) == without
    # Spark reads the texts back, decimals to the digit.
    prices = mysql_streams.result("all").where("_table = 'lines' AND _change_type = 'update_postimage'")
    parsed = prices.select(F.from_json("_row", "order_id INT, price DECIMAL(8,2)").alias("r")).select("r.price")
    assert {row[0] for row in parsed.collect()} == {Decimal("1000.00")}
