"""A certificate as a file: what it promises of a table's pieces, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructType

from pyspark_mysql_cdc_wm import certification
from pyspark_mysql_cdc_wm.certification import certify
from pyspark_mysql_cdc_wm.certified import verify_certified
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.server_side import ServerSide
from pyspark_mysql_cdc_wm.verifying.certificate import Certificate
from pyspark_mysql_cdc_wm.verifying.compared_table import ComparedTable
from pyspark_mysql_cdc_wm.verifying.logged_rows import KeyStates, before_changes
from pyspark_mysql_cdc_wm.verifying.pieces import KeyHashes, KeyRanges, Pieces
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint
from tests.unit.mysql.recorded_answers import Answer, checked_server
from watermark_source.errors import CorruptDataError, UnsupportedFormatError, UsageError

COLUMNS = (
    Column(ColumnType.LONG, name="id"),
    Column(ColumnType.NEWDECIMAL, name="Price", precision=12, scale=2),
    Column(ColumnType.VARCHAR, name="name", collation=45, length=40),
)
TABLE = ComparedTable(
    TableName("shop", "orders"), ("id", "Price"), COLUMNS,
    StructType().add("id", IntegerType()).add("price", DecimalType(12, 2)).add("name", StringType()),
)  # fmt: skip
PRINTS = (Fingerprint(3, 2**60 - 1), Fingerprint(), Fingerprint(1, 5))


KEY = (KeyColumn("id", ColumnType.LONG, pa.int32()), KeyColumn("Price", ColumnType.NEWDECIMAL, pa.decimal128(12, 2)))
RANGES = KeyRanges(KEY, (("id", "Price", 10, "1.50"), ("id", "Price", 20, "-3.00")))


@pytest.mark.parametrize("pieces", [RANGES, KeyHashes(TABLE.key, TABLE.key_names, 0)], ids=["ranges", "hashes"])
def test_a_certificate_says_what_was_written(pieces: Pieces) -> None:
    made = Certificate(TABLE, 41, "file 7 position 4711", pieces, PRINTS[: pieces.count])
    read = Certificate.of(str(made), "orders.json")
    assert read == made
    assert read.table.row == TABLE.row
    assert read.pieces.name(0) == pieces.name(0)
    assert str(read) == str(made)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"pieces": []}, "0 fingerprints of 3 pieces"),
        ({"columns": []}, "'id'"),
        ({"table": "orders"}, "orders is not database.table"),
        ({"cut": {"bounds": [["id", "Price", "ten", "1"]] * 2}}, "cannot be one of"),
        ({"cut": {"bounds": [["no", "Price", 10, "1"]] * 2}}, "in the order of"),
        ({"schema": {}}, "fields"),
        ({"batch": None}, "NoneType"),
        ({"table": 5}, "got 'int'"),
        ({"columns": [5]}, "not subscriptable"),
        ({"schema": {"type": "struct", "fields": [{"name": 5, "type": "long", "nullable": True}]}}, ""),
        ({"cut": {"bounds": [["id", "Price", 10**30, "1"]] * 2}}, ""),
        ({"pieces": [[float("inf"), 1]] * 3}, "infinity"),
    ],
)
def test_what_is_not_a_certificate_is_refused(changed: dict[str, Any], expected: str) -> None:
    whole = json.loads(str(Certificate(TABLE, 41, "file 7 position 4711", RANGES, PRINTS)))
    with pytest.raises(CorruptDataError, match=rf"orders\.json is not a certificate: .*{expected}"):
        Certificate.of(json.dumps({**whole, **changed}), "orders.json")
    for text in ("", "[]", "{}", json.dumps(whole)[:-20]):
        with pytest.raises(CorruptDataError, match=r"orders\.json is not a certificate"):
            Certificate.of(text, "orders.json")
    with pytest.raises(UnsupportedFormatError, match="version 2 of a certificate; this release reads 1"):
        Certificate.of(json.dumps({**whole, "certificate": 2}), "orders.json")


def test_a_file_is_written_whole_and_never_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, file = Certificate(TABLE, 41, "file 7 position 4711", RANGES, PRINTS), tmp_path / "orders.json"
    made.write(file)
    other = tmp_path / "other.json"
    for where in (file, tmp_path / "none" / "orders.json"):
        with pytest.raises(UsageError, match=r"orders\.json cannot be written"):
            replace(made, batch=42).write(where)
    assert Certificate.of(file.read_text(), "orders.json") == made

    def refused(*_: object, **__: object) -> None:
        raise PermissionError("no links on this file system")

    monkeypatch.setattr(os, "link", refused)
    made.write(other)
    with pytest.raises(UsageError, match=r"other\.json cannot be written"):
        made.write(other)
    assert sorted(tmp_path.iterdir()) == [file, other]
    assert other.read_text() == file.read_text()
    with pytest.raises(UsageError, match=r"none is not a folder"):
        certify(tmp_path / "none" / "orders.json", checkpoint=tmp_path, options={})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read"):
        verify_certified(None, tmp_path / "none.json")  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "lacks"), [("9.5.9", True), ("9.6.0", False)])
def test_a_table_that_foreign_keys_change_without_the_binlog_is_not_certified(
    version: str, lacks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Answer] = {
        "SHOW GLOBAL VARIABLES": [],
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [("shop", "t", "BASE TABLE", "InnoDB")],
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE)": [("shop", "t", "id", "int", "select", "PRI")],
        "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME": [("shop", "t", "of_user")],
    }
    side = SimpleNamespace(source=SimpleNamespace(options=None))
    monkeypatch.setattr(ServerSide, "of", lambda *_: nullcontext(side))
    monkeypatch.setattr(certification, "CheckedServer", lambda _: checked_server(answers, version))
    refused: Any = pytest.raises(UnsupportedFormatError, match=r"shop\.t of_user: .* Verify it as it is instead")
    # The next is the read.
    with refused if lacks else pytest.raises(AttributeError, match="of_the_past"):
        certify(tmp_path / "t.json", checkpoint=tmp_path, options={})


def test_a_piece_is_as_it_was_before_its_keys_changed() -> None:
    found = {0: Fingerprint(2, 5)}
    changed = {"updated": KeyStates(0, 1), "inserted": KeyStates(0, None), "deleted": KeyStates(2, 9)}
    assert before_changes(found, changed, 3) == (Fingerprint(3, 4), Fingerprint(), Fingerprint(1, 9))


def test_who_verifies_by_a_certificate_imports_nothing_that_reads_a_server() -> None:
    code = "import sys, pyspark_mysql_cdc_wm.certified; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    views = ("snapshot.rows_as_of", "snapshot.consistent_view")
    parts = ("reading", "lookup", *views, "records.decoding", "source", "client")
    readers = tuple(f"pyspark_mysql_cdc_wm.{part}" for part in parts)
    assert [name for name in loaded if name.startswith((*readers, "numba", "pymysql"))] == []
