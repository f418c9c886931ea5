"""Partial updates of JSON: the text put together from the row before is what the server itself shows."""

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records import decoding
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.json_diffs import patched_texts
from pyspark_mysql_cdc_wm.records.row_events import INSERT, UPDATE_AFTER
from services.mysql import MySql
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_lives import ALL, Life
from watermark_source.errors import UnsupportedFormatError

PARTIAL = "SET SESSION binlog_row_value_options = PARTIAL_JSON"
_KINDS = ("update_preimage", "update_postimage")
_NAMES = ("a", "b", "bb", "ab", "", "last", "a b", "ключ", 'q"q', "back\\slash", "tab\t", "bell\u0007", "1", "日本")
_SCALARS: tuple[Any, ...] = (
    0, -1, 65_536, 2**40, 1.5, -0.25, 1e20, 1e-9, True, False, None, "", "plain", 'say "no"', "a, b: {c} [d]", "\\",
    "line\nbreak", "ключ",
)  # fmt: skip


def _document(chosen: random.Random, depth: int = 0) -> Any:
    kind = chosen.random()
    if depth < 3 and kind < 0.45:
        names = chosen.sample(_NAMES, chosen.randint(0, 6))
        return {name: _document(chosen, depth + 1) for name in names}
    if depth < 3 and kind < 0.65:
        return [_document(chosen, depth + 1) for _ in range(chosen.randint(0, 4))]
    return chosen.choice(_SCALARS)


def _path(chosen: random.Random, document: Any) -> str:
    """A path to something in a document, or to something that could be there."""
    path = "$"
    while True:
        if isinstance(document, dict):
            name = chosen.choice((*document, *_NAMES[:2], chosen.choice(_NAMES)))
            path += "." + (
                name
                if name.isascii() and name.isalpha() and chosen.random() < 0.5
                else json.dumps(name, ensure_ascii=False)
            )
            document = document.get(name)
        elif isinstance(document, list):
            index = chosen.randint(0, len(document))
            path += chosen.choice((f"[{index}]", "[last]", "[last-1]"))
            document = document[index] if index < len(document) else None
        else:
            return path if path != "$" else "$[1]"
        if chosen.random() < 0.3:
            return path


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _change(chosen: random.Random, document: Any) -> str:
    """An expression for a changed column, of one to four changes."""
    made = "j"
    for _ in range(chosen.randint(1, 4)):
        path = _quoted(_path(chosen, document))
        if chosen.random() < 0.35 and path != "'$'":
            made = f"JSON_REMOVE({made}, {path})"
            continue
        value = _quoted(json.dumps(_document(chosen, 2), ensure_ascii=False))
        made = f"{chosen.choice(('JSON_SET', 'JSON_REPLACE'))}({made}, {path}, CAST({value} AS JSON))"
    return made


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
def test_changed_documents_are_as_the_server_shows_them(mysql: MySql, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(3)
    patched = []

    def counted(values: Values, diffs: np.ndarray) -> pa.Array:
        patched.append(int(diffs.sum()))
        return patched_texts(values, diffs)

    monkeypatch.setattr(decoding, "patched_texts", counted)
    documents = [{"": "x" * 300, "z": _document(chosen), "aa": _document(chosen)} for _ in range(300)]
    with new_database(mysql) as database:
        rows = ", ".join(f"({i}, {_quoted(json.dumps(each))}, NULL)" for i, each in enumerate(documents))
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, n JSON, j JSON, other JSON)",
            f"INSERT INTO t (id, j, other) VALUES {rows}",
            PARTIAL,
            *(f"UPDATE t SET j = {_change(chosen, each)} WHERE id = {i}" for i, each in enumerate(documents)),
            "UPDATE t SET n = '{\"a\": [1]}', other = j WHERE id % 2",
            "UPDATE t SET n = JSON_SET(n, '$.a[0]', 2, '$.b', other), j = JSON_REMOVE(other, '$.z'), other = NULL",
        )  # fmt: skip
        shown = database.run("SELECT id, n, j, other FROM t ORDER BY id")
        last: dict[int, tuple[Any, ...]] = {}
        for changes in database.changes("t", batch_rows=64):
            for kind, *row in zip(
                changes.images.kinds.tolist(), *(c.to_pylist() for c in changes.columns), strict=True
            ):
                if kind == UPDATE_AFTER:
                    last[row[0]] = tuple(row)
    assert [last[row[0]] for row in shown] == list(shown)
    assert sum(patched) > 400


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
def test_of_many_documents_in_a_row_each_has_its_own_bit(mysql: MySql) -> None:
    names = [f"j{i}" for i in range(19)]
    with new_database(mysql) as database:
        database.run(
            f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'{name} JSON, v{name} INT' for name in names)})",
            f"INSERT INTO t (id, {', '.join(names)}) VALUES (1, {', '.join(['JSON_OBJECT(1, 2)'] * len(names))})",
            PARTIAL,
            "UPDATE t SET j3 = NULL, j11 = NULL",
            "UPDATE t SET j12 = '[]', j0 = JSON_SET(j0, '$.a', 5), j8 = JSON_SET(j8, '$.a', 6), "
            "j18 = JSON_SET(j18, '$.b', 7)",
        )
        (shown,) = database.run(f"SELECT {', '.join(names)} FROM t")
        *_, last = database.changes("t")
    assert tuple(last.column(name)[-1].as_py() for name in names) == shown


def _last(database: Database, table: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table with a key ``id`` after its last changes, by what the binlog states."""
    rows: dict[int, tuple[Any, ...]] = {}
    for changes in database.changes(table):
        for kind, *row in zip(changes.images.kinds.tolist(), *(c.to_pylist() for c in changes.columns), strict=True):
            if kind in (INSERT, UPDATE_AFTER):
                rows[row[0]] = tuple(row)
    return [rows[key] for key in sorted(rows)]


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
def test_values_that_json_has_not_by_itself_are_kept_and_put_in(mysql: MySql) -> None:
    others = (
        "'d', CAST(12.50 AS DECIMAL(20,10)), 'at', CAST('2024-05-07 12:30:15.120000' AS DATETIME(6)), "
        "'day', CAST('2024-02-29' AS DATE), 'time', CAST('-838:59:58.000001' AS TIME(6)), 'bytes', x'00ff', "
        "'u', 18446744073709551615, 'f', 1.5e300, 'long', REPEAT(x'41', 70), 'shape', POINT(1, 2)"
    )
    with new_database(mysql) as database:
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, j JSON, k JSON)",
            f"INSERT INTO t VALUES (1, JSON_OBJECT({others}, 'rest', REPEAT('x', 500)), '[1, 2, [3, {{}}]]'),"
            f" (2, JSON_OBJECT('a', JSON_ARRAY({others}), 'rest', REPEAT('x', 500)), NULL),"
            " (3, JSON_OBJECT('large', REPEAT('y', 70000), 'more', REPEAT('z', 20000000)), '{}')",
            PARTIAL,
            "SET SESSION binlog_transaction_compression = ON",
            f"UPDATE t SET j = JSON_SET(j, '$.at', 1, '$.new', JSON_OBJECT({others})) WHERE id = 1",
            "SET SESSION binlog_transaction_compression = OFF",
            "UPDATE t SET j = JSON_REMOVE(JSON_SET(j, '$.a[1]', CAST(0.05 AS DECIMAL(3,2)), '$.a[3]', x'0102',"
            " '$.a[last]', CAST('2015-01-15' AS DATE), '$.a[99]', POINT(3, 4)), '$.a[5]') WHERE id = 2",
            "UPDATE t SET j = JSON_SET(j, '$.large', 7), k = JSON_SET(k, '$.x', CAST('1:2:3' AS TIME)) WHERE id = 3",
            "UPDATE t SET j = JSON_REMOVE(j, '$.more'), k = JSON_REMOVE(k, '$.x') WHERE id = 3",
            "UPDATE t SET k = JSON_SET(k, '$[2][1].deep', JSON_ARRAY(), '$[2][1].deep[0]', 1, '$[2][0]', NULL)"
            " WHERE id = 1",
        )  # fmt: skip
        assert _last(database) == list(database.run("SELECT id, j, k FROM t ORDER BY id"))


_CHANGES = (
    "JSON_SET(j, '$.n', 2)", "JSON_INSERT(j, '$.new', JSON_OBJECT('k', 1))", "JSON_REMOVE(j, '$.gone')",
    "JSON_REPLACE(j, '$.list[1]', 'two')", "JSON_SET(j, '$.deep.er[0].est', 1.5)", "JSON_ARRAY('another')",
)  # fmt: skip
_BEFORE = """{"n": 1, "gone": 1, "list": [1, 2, 3], "deep": {"er": [{"est": 0}]}}"""


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
@pytest.mark.parametrize("image", ["FULL", "NOBLOB"])
def test_what_a_session_logs_in_part_comes_whole(mysql_database: Database, image: str) -> None:
    database = mysql_database
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, pad JSON)",
        *(f"INSERT INTO t VALUES ({i}, JSON_MERGE('{_BEFORE}', '{{\"pad\": \"{'x' * 200}\"}}'), '{{}}')"
          for i in range(len(_CHANGES))),
    )  # fmt: skip
    before = database.run("SELECT id, j FROM t ORDER BY id")
    life = Life(database, startingOffsets="latest")
    start = life.reader.initialOffset()
    database.run(
        f"SET SESSION binlog_row_image = {image}", PARTIAL,
        *(f"UPDATE t SET j = {change} WHERE id = {i}" for i, change in enumerate(_CHANGES)),
    )  # fmt: skip
    found = life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    shown = {kind: tuple((row["id"], row["j"]) for row in found if row["_change_type"] == kind) for kind in _KINDS}
    assert shown == dict(zip(_KINDS, (before, database.run("SELECT id, j FROM t ORDER BY id")), strict=True))


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
@pytest.mark.parametrize("read", ["id,j", "id,n"])
def test_what_a_session_logs_without_the_row_before_is_refused(mysql_database: Database, read: str) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON, n INT)", f"INSERT INTO t VALUES (1, '{_BEFORE}', 1)")
    life = Life(database, startingOffsets="latest", columns=read)
    start = life.reader.initialOffset()
    database.run("SET SESSION binlog_row_image = MINIMAL", PARTIAL, f"UPDATE t SET j = {_CHANGES[0]}")
    end = life.reader.latestOffset(start, ALL)
    with pytest.raises(UnsupportedFormatError, match=r"a row without all of its columns.*binlog_row_image to FULL"):
        life.rows(start, end)
    life.reader.stop()


@pytest.mark.needs_mysql("logs updates of JSON whole, always")
def test_a_chunk_behind_partial_updates_is_rolled_back_to_the_documents_before(mysql_database: Database) -> None:
    database = mysql_database
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
        "INSERT INTO t VALUES (1, JSON_OBJECT('a', 1, 'b', REPEAT('x', 500))), (2, JSON_ARRAY(REPEAT('y', 500), 1))",
    )
    life = Life(database)
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    before = dict(database.run("SELECT id, j FROM t"))
    database.run(PARTIAL, "UPDATE t SET j = JSON_SET(j, '$.a', 2, '$[1]', 2)", "UPDATE t SET j = JSON_REMOVE(j, '$.b')")
    rows = {row["id"]: row["j"] for row in life.rows(start, end)}
    assert rows == before
    for row in sorted(
        life.rows(end, life.reader.latestOffset(end, ALL)),
        key=lambda row: (row["_commit_version"], row["_change_number"]),
    ):
        if row["_change_type"] == "update_postimage":
            rows[row["id"]] = row["j"]
    life.reader.stop()
    assert rows == dict(database.run("SELECT id, j FROM t"))
