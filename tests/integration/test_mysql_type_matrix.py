"""Every type of column with every attribute: in the snapshot and in each kind of change the value that the server has.

Each table has all types with one attribute, and one history: its rows are inserted, updated, replaced and deleted, and
what two streams of it deliver, of columns and of JSON texts, is compared with what the server showed in between.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database
from tests.integration.mysql_columns import Sample, has_invisible_columns, samples_of
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from watermark_source.errors import UnsupportedFormatError

pytestmark = pytest.mark.service

_ANYTHING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
_BYTES = ("BINARY", "VARBINARY", "BLOB")
_NUMBERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR", "DECIMAL")
Values = dict[int, list[Any]]


def _as_declared(sample: Sample) -> str:
    return f"{sample.name} {sample.declaration}"


def _invisible(sample: Sample) -> str:
    return f"{sample.name} {sample.declaration} INVISIBLE"


def _by_default(sample: Sample) -> str:
    """Have the first value as the default, which the rows that have it are not given."""
    return f"{sample.name} {sample.declaration} DEFAULT ({sample.literals[0]})"


def _generated(how: str) -> Callable[[Sample], str]:
    def declared(sample: Sample) -> str:
        kind, _, null = sample.declaration.partition(" NULL")
        base = f"b_{sample.name} {sample.declaration} INVISIBLE"
        return f"{base}, {sample.name} {kind} GENERATED ALWAYS AS (b_{sample.name}) {how}{' NULL' if null else ''}"

    return declared


_GENERATED = ("virtual", "stored")
_DECLARED: Mapping[str, Callable[[Sample], str]] = {
    "as declared": _as_declared,
    "invisible": _invisible,
    "by default": _by_default,
    "virtual": _generated("VIRTUAL"),
    "stored": _generated("STORED"),
}


@dataclass(frozen=True)
class History:
    """What two streams of a table delivered, and what the server showed after each step."""

    samples: tuple[Sample, ...]
    held: tuple[Values, ...]
    """After the insert, the update, the replacing of all rows, and their deletion."""
    snapshot: pa.Table
    undone: pa.Table
    """The snapshot, planned before the update and read behind it."""
    logged: pa.Table
    """The inserts, of the binlog."""
    changes: tuple[list[tuple[str, list[Any]]], ...]
    """By step behind the snapshot: what each is, and the values of all columns."""
    texts: Mapping[int, str]
    """The snapshot's."""
    logged_texts: Mapping[int, str]
    text_changes: tuple[list[tuple[str, str]], ...]


class _Table:
    def __init__(self, database: Database, attribute: str) -> None:
        self._database = database
        self.is_generated = attribute in _GENERATED
        self.is_by_default = attribute == "by default"
        self.samples = tuple(
            each
            for each in samples_of(database.server)
            # MySQL has no generated vectors.
            if not (self.is_generated and each.declaration.startswith("VECTOR"))
        )
        declared = ", ".join(map(_DECLARED[attribute], self.samples))
        if not has_invisible_columns(database.server):
            declared = declared.replace(" INVISIBLE", "")
        database.run(_ANYTHING, f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) ROW_FORMAT = DYNAMIC")
        prefix = "b_" if self.is_generated else ""
        self._names = [f"{prefix}{each.name}" for each in self.samples]
        self.rows = max(len(each.literals) for each in self.samples) + 1

    def write(self, verb: str, turn: int) -> None:
        """Write each row with the values of another one, which is so many behind it; the last one's are null."""
        rows = []
        for row in range(self.rows):
            of = (row + turn) % self.rows
            values = [each.literals[of] if of < len(each.literals) else "NULL" for each in self.samples]
            if self.is_by_default and of == 0:
                values = ["DEFAULT"] * len(values)
            rows.append(f"({row}, {', '.join(values)})")
        names = ", ".join(self._names)
        self._database.run(_ANYTHING, f"{verb} INTO t (id, {names}) VALUES {', '.join(rows)}")

    def update(self) -> None:
        """Give every row another one's values."""
        names = ", ".join(f"a.{name} = b.{name}" for name in self._names)
        self._database.run(
            _ANYTHING, f"CREATE TEMPORARY TABLE c AS SELECT id, {', '.join(self._names)} FROM t",
            f"UPDATE t a JOIN c b ON b.id = (a.id + 1) % {self.rows} SET {names}",
        )  # fmt: skip

    def held(self) -> Values:
        asked = ", ".join(each.asked.format(each.name) for each in self.samples)
        return {row[0]: list(row[1:]) for row in self._database.run(_ANYTHING, f"SELECT id, {asked} FROM t")}


def _history(database: Database, attribute: str) -> History:
    make_user(database.server, USER, *RIGHTS)
    table = _Table(database, attribute)
    chosen = {"excludeColumns": ",".join(f"b_{each.name}" for each in table.samples)} if table.is_generated else {}
    place = json.dumps({"file": database.since.file, "position": database.since.position})
    table.write("INSERT", 0)
    held = [table.held()]
    in_forms = [Life(database, rowFormat=form, **chosen) for form in ("columns", "json")]
    (columns, texts), ends = zip(*(_next(life) for life in in_forms), strict=True)
    logged, logged_texts = (
        _next(Life(database, rowFormat=form, startingOffsets=place, **chosen), ended=True)[0]
        for form in ("columns", "json")
    )
    late = Life(database, **chosen)
    planned = late.reader.initialOffset()
    late_end = late.reader.latestOffset(planned, ALL)
    undone: pa.Table | None = None
    changes, text_changes = [], []
    for step in (table.update, lambda: table.write("REPLACE", 3), lambda: database.run(_ANYTHING, "DELETE FROM t")):
        step()
        undone = undone or _rows_in_order(late.batches(planned, late_end))
        held.append(table.held())
        (found, found_texts), ends = zip(
            *(_next(life, end) for life, end in zip(in_forms, ends, strict=True)), strict=True
        )
        rows = _python_rows(found)
        kinds = found.column("_change_type").to_pylist()
        changes.append(list(zip(kinds, rows, strict=True)))
        text_changes.append(
            list(zip(found_texts["_change_type"].to_pylist(), found_texts["_row"].to_pylist(), strict=True))
        )
    for life in (*in_forms, late):
        life.reader.stop()
    assert undone is not None
    return History(
        table.samples, tuple(held), columns.sort_by("id"), undone.sort_by("id"), logged.sort_by("id"), tuple(changes),
        _by_id(texts), _by_id(logged_texts), tuple(text_changes),
    )  # fmt: skip


def _next(
    life: Life, start: Mapping[str, Any] | None = None, *, ended: bool = False
) -> tuple[pa.Table, Mapping[str, Any]]:
    """Return the rows of a stream's next batches, in order, and where they end."""
    end = life.reader.initialOffset() if start is None else start
    batches: list[pa.RecordBatch] = []
    while end != (ahead := life.reader.latestOffset(end, ALL)):
        batches += life.batches(end, ahead)
        end = ahead
    if ended:
        life.reader.stop()
    return _rows_in_order(batches), end


def _rows_in_order(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    found = pa.Table.from_batches(batches)
    found = found.filter(found.column("_change_type").is_valid())
    return found.sort_by([("_commit_version", "ascending"), ("_change_number", "ascending")])


def _by_id(found: pa.Table) -> dict[int, str]:
    return {json.loads(text)["id"]: text for text in found.column("_row").to_pylist()}


def _python_rows(found: pa.Table) -> list[list[Any]]:
    """Return the table's own columns row by row, moments without a zone."""
    last = found.column_names.index("_change_type")
    columns = []
    for column in found.columns[:last]:
        moments = pa.types.is_timestamp(column.type) and column.type.tz is not None
        columns.append((column.cast(pa.timestamp("us")) if moments else column).to_pylist())
    return [list(row) for row in zip(*columns, strict=True)]


_LOGGED_WHOLE = [
    *((Flavour.MYSQL, attribute) for attribute in _DECLARED),
    *((Flavour.MARIADB, attribute) for attribute in _DECLARED if attribute not in _GENERATED),
]


@pytest.fixture(scope="module")
def server_of(mysql: MySql) -> Iterator[Callable[[Flavour], MySql]]:
    with ExitStack() as running:
        servers = {mysql.flavour: mysql}

        def started(flavour: Flavour) -> MySql:
            if flavour not in servers:
                servers[flavour] = running.enter_context(mysql_service(flavour=flavour, where=Where.LOCAL))
            return servers[flavour]

        yield started


_IN_EACH_RUN = ((Flavour.MYSQL, "as declared"), (Flavour.MYSQL, "stored"), (Flavour.MARIADB, "as declared"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=() if each in _IN_EACH_RUN else pytest.mark.long("_IN_EACH_RUN"))
        for each in _LOGGED_WHOLE
    ],
    ids=lambda given: f"{given[0].value} {given[1]}",
)
def history(request: pytest.FixtureRequest, server_of: Callable[[Flavour], MySql]) -> Iterator[History]:
    flavour, attribute = request.param
    with new_database(server_of(flavour)) as database:
        yield _history(database, attribute)


def _compare(samples: Sequence[Sample], found: Mapping[int, Sequence[Any]], expected: Values) -> None:
    assert found.keys() == expected.keys()
    for row, values in expected.items():
        for sample, value, right in zip(samples, found[row], values, strict=True):
            seen = None if value is None else sample.shown(value)
            assert seen == right, f"{sample.name} ({sample.declaration}) of row {row}"


def test_a_value_is_the_same_in_the_snapshot_and_in_the_binlog(history: History) -> None:
    tables = history.snapshot, history.undone, history.logged
    assert [table.num_rows for table in tables] == [len(history.held[0])] * 3
    for sample in history.samples:
        shown, undone, logged = (as_bits(table.column(sample.name).combine_chunks()) for table in tables)
        assert shown.equals(logged), sample
        assert undone.equals(logged), sample
    assert history.texts == history.logged_texts


def as_bits(values: pa.Array) -> pa.Array:
    """Return floating point numbers as their bits: 0 and -0 are equal otherwise."""
    if not pa.types.is_floating(values.type):
        return values
    return values.view(pa.int32() if values.type == pa.float32() else pa.int64())


def test_inserted_values_are_those_the_server_shows(history: History) -> None:
    rows = _python_rows(history.snapshot)
    _compare(history.samples, {row[0]: row[1:] for row in rows}, history.held[0])


def test_updates_and_deletes_carry_the_rows_before_and_after(history: History) -> None:
    assert history.held[0] != history.held[1] != history.held[2] != history.held[3] == {}
    state = {row[0]: row for row in _python_rows(history.snapshot)}
    for step, changes in enumerate(history.changes):
        for kind, row in changes:
            _apply(kind, row[0], row, state)
        _compare(history.samples, {id_: row[1:] for id_, row in state.items()}, history.held[step + 1])


def _apply(kind: str, id_: int, row: Any, state: dict[int, Any]) -> None:
    if kind in ("insert", "update_postimage"):
        assert kind != "insert" or id_ not in state, row
        state[id_] = row
    else:
        assert state[id_] == row
        if kind == "delete":
            del state[id_]


def test_every_value_is_in_the_text_as_the_server_shows_it(history: History) -> None:
    state = dict(history.texts)
    _compare_texts(history.samples, state, history.held[0])
    for step, changes in enumerate(history.text_changes):
        for kind, text in changes:
            _apply(kind, json.loads(text)["id"], text, state)
        _compare_texts(history.samples, state, history.held[step + 1])


def _compare_texts(samples: Sequence[Sample], texts: Mapping[int, str], expected: Values) -> None:
    assert texts.keys() == expected.keys()
    for number, values in expected.items():
        found = json.loads(texts[number], parse_float=Decimal)
        assert list(found) == ["id", *(each.name for each in samples)]
        for sample, value in zip(samples, values, strict=True):
            seen = found[sample.name]
            if isinstance(seen, Decimal) and sample.declaration.startswith(("FLOAT", "DOUBLE")):
                seen = float(seen)
            if sample.name == "vector_s" and seen is not None:
                seen = [float(f"{each:.5e}") for each in seen]
            right = None if value is None else _as_json(sample)(value)
            assert seen == right, (sample.name, number, seen, value)
            if isinstance(right, Decimal):
                # As many digits, too: 1.50 is not 1.5.
                assert f'"{sample.name}":{value}' in texts[number]


def _as_json(sample: Sample) -> Callable[[Any], Any]:
    """Return what makes of a text of the server's what ``json.loads`` makes of ours, numbers as they are written."""
    kind = sample.declaration.split("(")[0].split()[0]
    if kind in _BYTES or sample.name == "vector_bytes":
        return lambda text: base64.b64encode(bytes.fromhex(text)).decode()
    if kind == "FLOAT":
        # The shortest digits that mean the four bytes; the server is asked for eight.
        return lambda value: float(str(np.float32(value)))
    if kind == "DOUBLE":
        return float
    if kind == "BIT":
        width = (int(sample.declaration[4:-1]) + 7) // 8
        if sample.name == "bit_1":
            return bool
        return lambda number: base64.b64encode(int(number).to_bytes(width, "big")).decode()
    if kind in _NUMBERS:
        return Decimal if kind == "DECIMAL" else int
    if sample.name == "set_empty":
        return lambda number: [label for bit, label in enumerate(("", "a", "b")) if int(number) >> bit & 1]
    if kind == "SET":
        return lambda text: text.split(",") if text else []
    if kind == "JSON":
        return lambda text: json.loads(text, parse_float=Decimal)
    if kind in ("POINT", "GEOMETRY"):
        return lambda text: {
            "srid": int.from_bytes(bytes.fromhex(text)[:4], "little"),
            "wkb": base64.b64encode(bytes.fromhex(text)[4:]).decode(),
        }
    if kind == "VECTOR":
        return lambda text: [float(each) for each in json.loads(text)]
    return lambda text: f"{text}Z" if kind == "TIMESTAMP" else text


@pytest.mark.parametrize("attribute", _GENERATED)
@pytest.mark.parametrize("form", ["columns", "json"])
def test_generated_columns_are_refused_where_the_server_logs_them_in_inserts_alone(
    server_of: Callable[[Flavour], MySql], attribute: str, form: str
) -> None:
    mariadb = server_of(Flavour.MARIADB)
    make_user(mariadb, USER, *RIGHTS)
    with new_database(mariadb) as database:
        names = [each.name for each in _Table(database, attribute).samples]
        with pytest.raises(
            UnsupportedFormatError, match=f"logs no values of the generated columns {', '.join(names)} in"
        ):
            Life(database, rowFormat=form)
        life = Life(database, rowFormat=form, excludeColumns=",".join(names), startingOffsets="latest")
        end = life.reader.initialOffset()
        for statement in ("INSERT INTO t (id) VALUES (1)", "UPDATE t SET b_tiny = 5", "DELETE FROM t"):
            database.run(statement)
        found, _ = _next(life, end, ended=True)
        assert found.column("_change_type").to_pylist() == ["insert", "update_preimage", "update_postimage", "delete"]
