"""Tables with different columns as one stream of JSON texts: every type as the server shows it, every table whole."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812

from services.container_or_local import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_columns import SAMPLES, Sample
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import CHANGE, RIGHTS, USER, MySqlStreams, make_user
from tests.integration.mysql_writers import writers

pytestmark = pytest.mark.service

_ANYTHING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
_BYTES = ("BINARY", "VARBINARY", "BLOB")
_NUMBERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR", "DECIMAL")


@pytest.fixture(scope="module", params=[Flavour.MYSQL, Flavour.MARIADB], ids=lambda flavour: flavour.value)
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


def shown(sample: Sample) -> Callable[[str | None], Any]:
    """Return what makes of a text of the server's what ``json.loads`` makes of ours, numbers as they are written."""
    kind = sample.declaration.split("(")[0].split()[0]
    if kind in _BYTES:
        return lambda text: base64.b64encode(bytes.fromhex(text or "")).decode()
    if kind == "FLOAT":
        # The shortest digits that mean the four bytes; the server is asked for eight.
        return lambda value: float(str(np.float32(value)))
    if kind == "DOUBLE":
        return lambda value: float(value or 0)
    if kind == "BIT":
        width = (int(sample.declaration[4:-1]) + 7) // 8
        if sample.name == "bit_1":
            return lambda number: bool(number)
        return lambda number: base64.b64encode(int(number or 0).to_bytes(width, "big")).decode()
    if kind in _NUMBERS:
        return lambda text: Decimal(text or 0) if kind == "DECIMAL" else int(text or 0)
    if kind == "SET":
        return lambda text: text.split(",") if text else []
    if kind == "JSON":
        return lambda text: json.loads(text or "", parse_float=Decimal)
    if kind in ("POINT", "GEOMETRY"):
        return lambda text: {
            "srid": int.from_bytes(bytes.fromhex(text or "")[:4], "little"),
            "wkb": base64.b64encode(bytes.fromhex(text or "")[4:]).decode(),
        }
    if kind == "VECTOR":
        return lambda text: [float(each) for each in json.loads(text or "")]
    return lambda text: f"{text}Z" if kind == "TIMESTAMP" else text


def rows_of(life: Life) -> dict[int, str]:
    """Return the texts of what a new query reads first."""
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    texts = [row["_row"] for row in life.rows(start, end)]
    life.reader.stop()
    return {json.loads(text)["id"]: text for text in texts}


def test_every_value_is_in_the_text_as_the_server_shows_it(database: Database) -> None:
    columns = [each for each in SAMPLES if each.only in (None, database.server.flavour)]
    declared = ", ".join(f"{each.name} {each.declaration}" for each in columns)
    literals = [
        f"({row}, " + ", ".join(each.literals[row] if row < len(each.literals) else "NULL" for each in columns) + ")"
        for row in range(max(len(each.literals) for each in columns) + 1)
    ]
    names = ", ".join(each.name for each in columns)
    database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) ROW_FORMAT = DYNAMIC", _ANYTHING,
        f"INSERT INTO t (id, {names}) VALUES " + ", ".join(literals),
    )  # fmt: skip
    since = json.dumps({"file": database.since.file, "position": database.since.position})
    logged = rows_of(Life(database, startingOffsets=since, rowFormat="json"))
    assert rows_of(Life(database, rowFormat="json")) == logged
    asked = ", ".join(each.asked.format(each.name) for each in columns)
    expected = database.run(_ANYTHING, f"SELECT id, {asked} FROM t ORDER BY id")
    assert len(expected) == len(logged) == len(literals)
    for number, *values in expected:
        found = json.loads(logged[number], parse_float=Decimal)
        assert list(found) == ["id", *(each.name for each in columns)]
        for sample, value in zip(columns, values, strict=True):
            seen = found[sample.name]
            if isinstance(seen, Decimal) and sample.declaration.startswith(("FLOAT", "DOUBLE")):
                seen = float(seen)
            if sample.name == "vector_s" and seen is not None:
                seen = [float(f"{each:.5e}") for each in seen]
            right = None if value is None else shown(sample)(value)
            assert seen == right, (sample.name, number, seen, value)
            if isinstance(right, Decimal):
                # As many digits, too: 1.50 is not 1.5.
                assert f'"{sample.name}":{value}' in logged[number]


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
