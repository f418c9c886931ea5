"""Every type of column, value by value: what the binlog says, decoded, is what the server shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.character_sets import check_charset
from pyspark_mysql_cdc_wm.records.multi_byte import NO_CHARACTER, point_of, tables_of
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.text_columns import texts
from services.container_or_local import Where
from services.mysql import MySql, mysql_service
from services.mysql_client import run
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database, python_rows
from tests.integration.mysql_charsets import multi_byte_charsets, single_byte_charsets
from tests.integration.mysql_columns import SAMPLES, Sample

pytestmark = pytest.mark.service

_ANYTHING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"


def _create(database: Database, samples: tuple[Sample, ...]) -> None:
    columns = ", ".join(f"{each.name} {each.declaration}" for each in samples)
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) ROW_FORMAT = DYNAMIC")


def _fill(database: Database, samples: tuple[Sample, ...]) -> None:
    names = ", ".join(each.name for each in samples)
    rows = max(len(each.literals) for each in samples)
    # The last row has nulls only.
    values = [
        f"({row}, " + ", ".join(each.literals[row] if row < len(each.literals) else "NULL" for each in samples) + ")"
        for row in range(rows + 1)
    ]
    database.run(_ANYTHING, f"INSERT INTO t (id, {names}) VALUES " + ", ".join(values))


def _shown_by_the_server(database: Database, samples: tuple[Sample, ...]) -> dict[int, list[Any]]:
    asked = ", ".join(each.asked.format(each.name) for each in samples)
    return {row[0]: list(row[1:]) for row in database.run(f"SELECT id, {asked} FROM t")}


def _shown(samples: tuple[Sample, ...], row: list[Any]) -> list[Any]:
    return [None if value is None else each.shown(value) for each, value in zip(samples, row, strict=True)]


@pytest.fixture(scope="module", params=[Flavour.MYSQL, Flavour.MARIADB], ids=lambda flavour: flavour.value)
def server(request: pytest.FixtureRequest, mysql: MySql) -> Iterator[MySql]:
    if request.param is mysql.flavour:
        yield mysql
        return
    with mysql_service(flavour=request.param, where=Where.LOCAL) as other:
        yield other


@pytest.fixture(scope="module")
def samples(server: MySql) -> tuple[Sample, ...]:
    return tuple(each for each in SAMPLES if each.only in (None, server.flavour))


def test_character_sets_of_one_byte_are_those_of_the_server(mysql: MySql) -> None:
    found = single_byte_charsets(mysql)
    assert {"latin1", "greek", "hebrew", "cp1256", "swe7", "tis620"} <= found.keys()
    every = Values(padded(bytes(range(256))), np.arange(256, dtype=np.int32), np.ones(256, np.int32))
    for charset, characters in found.items():
        assert texts(every, charset).to_pylist() == list(characters), charset


def test_character_sets_of_several_bytes_are_those_of_the_server(mysql: MySql) -> None:
    seen = 0
    for charset, characters in multi_byte_charsets(mysql):
        none = {code for code in characters if point_of(tables_of(charset), code) == NO_CHARACTER}
        # Of bytes that no text has, MariaDB says that it knows no such character.
        assert {characters[code] for code in none} <= {None, "?"}, charset
        shown = {code: each for code, each in characters.items() if code not in none}
        assert None not in shown.values(), charset
        sizes = np.array([len(code) for code in shown], np.int32)
        every = Values(padded(b"".join(shown)), (np.cumsum(sizes) - sizes).astype(np.int32), sizes)
        found = zip(shown, texts(every, charset).to_pylist(), shown.values(), strict=True)
        assert not [(code.hex(), here, there) for code, here, there in found if here != there], charset
        seen += len(shown)
    assert seen > 100_000


def test_every_character_set_of_the_server_is_read(mysql: MySql) -> None:
    names = run(mysql.host, mysql.port, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    for (name,) in names:
        if name != "binary":
            check_charset(str(name), "here")


def _compare(samples: tuple[Sample, ...], found: dict[int, list[Any]], expected: dict[int, list[Any]]) -> None:
    assert found.keys() == expected.keys()
    for row, values in expected.items():
        for sample, seen, right in zip(samples, found[row], values, strict=True):
            assert seen == right, f"{sample.name} ({sample.declaration}) of row {row}"


def test_inserted_values_are_those_the_server_shows(server: MySql, samples: tuple[Sample, ...]) -> None:
    with new_database(server) as database:
        _create(database, samples)
        _fill(database, samples)
        found: dict[int, list[Any]] = {}
        for images in database.changes("t"):
            assert set(images.images.kinds.tolist()) == {INSERT}
            for row in python_rows(images):
                found[row[0]] = _shown(samples, row[1:])
        _compare(samples, found, _shown_by_the_server(database, samples))


def test_updates_and_deletes_carry_the_rows_before_and_after(server: MySql, samples: tuple[Sample, ...]) -> None:
    with new_database(server) as database:
        _create(database, samples)
        _fill(database, samples)
        before = _shown_by_the_server(database, samples)
        # Every row gets another one's values, and nulls move too.
        names = ", ".join(f"a.{each.name} = b.{each.name}" for each in samples)
        database.run(
            _ANYTHING, "CREATE TEMPORARY TABLE c AS SELECT * FROM t", "SET @rows = (SELECT COUNT(*) FROM t)",
            f"UPDATE t a JOIN c b ON b.id = (a.id + 1) % @rows SET {names}",
        )  # fmt: skip
        after = _shown_by_the_server(database, samples)
        assert after != before
        database.run("DELETE FROM t")
        found: dict[int, dict[int, list[Any]]] = {kind: {} for kind in (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)}
        for images in database.changes("t", batch_rows=3):
            for kind, row in zip(images.images.kinds.tolist(), python_rows(images), strict=True):
                found[kind][row[0]] = _shown(samples, row[1:])
        _compare(samples, found[INSERT], before)
        changed = {row for row in before if before[row] != after[row]}
        assert found[UPDATE_BEFORE].keys() >= changed
        _compare(samples, found[UPDATE_BEFORE], {row: before[row] for row in found[UPDATE_BEFORE]})
        _compare(samples, found[UPDATE_AFTER], {row: after[row] for row in found[UPDATE_BEFORE]})
        _compare(samples, found[DELETE], after)
