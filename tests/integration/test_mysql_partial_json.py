"""Partial updates of JSON: the text put together from the row before is what the server itself shows."""

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records import decoding
from pyspark_mysql_cdc_wm.records.memory import Values
from pyspark_mysql_cdc_wm.records.rows import UPDATE_AFTER
from services.mysql import MySql
from tests.integration.mysql_binlog import new_database

PARTIAL = "SET SESSION binlog_row_value_options = PARTIAL_JSON"
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

    patched_texts = decoding.patched_texts
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
