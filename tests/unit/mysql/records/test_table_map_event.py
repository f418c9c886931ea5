"""Recorded descriptions of tables, with all metadata and with the least."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.event_headers import EventType
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, ColumnType, KeyPart
from pyspark_mysql_cdc_wm.records.table_map import WriterVersion, read_table_map, read_table_names
from tests.unit.mysql.recordings import bodies, charsets, table_maps
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

NAMES = ["id", "customer", "amount", "born", "small", "at", "state", "tags", "flag", "raw", "note"]


@pytest.fixture(scope="module")
def orders() -> bytes:
    return bodies("full", EventType.TABLE_MAP)[0]


@pytest.mark.parametrize(("name", "flavour"), [("full", "mysql"), ("mariadb", "mariadb")])
def test_full_metadata_tells_all_of_a_table(name: str, flavour: str) -> None:
    table = table_maps(name, mariadb=flavour == "mariadb")["orders"]
    assert (table.database, table.table) == ("shop", "orders")
    columns = {str(column.name): column for column in table.columns}
    assert list(columns) == NAMES
    assert [column.nullable for column in table.columns] == [False, False] + [True] * 9
    assert columns["id"].unsigned
    assert not columns["small"].unsigned
    assert (columns["amount"].precision, columns["amount"].scale) == (12, 2)
    assert columns["at"].precision == 3
    assert (columns["customer"].length, columns["customer"].size) == (300, 2)
    assert columns["state"].type is ColumnType.ENUM
    assert columns["state"].labels == (b"new", b"paid")
    assert columns["tags"].labels == (b"a", b"b", b"c")
    assert (columns["flag"].type, columns["flag"].length) == (ColumnType.BIT, 1)
    assert (columns["raw"].collation, columns["raw"].length) == (BINARY_COLLATION, 4)
    sets = {column: charsets(flavour)[columns[column].collation or 0] for column in ("customer", "note", "state")}
    assert sets == {"customer": "latin1", "note": "utf8mb4", "state": "utf8mb4"}
    assert table.primary_key == (KeyPart(0),)


def test_least_metadata_has_signs_and_character_sets_but_no_names() -> None:
    full, least = table_maps("full")["orders"], table_maps("minimal")["orders"]
    assert [column.name for column in least.columns] == [None] * len(NAMES)
    assert [column.unsigned for column in least.columns] == [column.unsigned for column in full.columns]
    text = (ColumnType.VARCHAR, ColumnType.BLOB, ColumnType.STRING)
    assert [each.collation for each in least.columns if each.type in text] == [
        each.collation for each in full.columns if each.type in text
    ]
    assert least.primary_key is None


def test_keys_have_prefixes_and_their_own_order() -> None:
    assert table_maps("full")["keys_of_two"].primary_key == (KeyPart(1), KeyPart(2, 5))


def test_invisible_columns_are_there() -> None:
    hidden = table_maps("full")["hidden"]
    assert [column.name for column in hidden.columns] == ["id", "h"]


def test_a_description_that_ends_too_early_is_damaged_or_says_less(orders: bytes) -> None:
    for stop in range(len(orders) - 1):
        try:
            read_table_map(orders[:stop], "here")
        except CorruptDataError as damage:
            assert str(damage).startswith("here: a description of a table"), stop  # noqa: PT017 - or it is no error


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        *((ColumnType.FLOAT, bytes([size])) for size in (0, 8, 200)),
        (ColumnType.DOUBLE, b"\x04"),
        *((kind, bytes([size])) for kind in (ColumnType.BLOB, ColumnType.JSON, ColumnType.GEOMETRY) for size in (0, 5)),
        (ColumnType.VECTOR, b"\xff"),
        *((kind, b"\x07") for kind in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2)),
        *((ColumnType.NEWDECIMAL, bytes(digits)) for digits in ((0, 0), (5, 6), (66, 0), (255, 255))),
        *((ColumnType.BIT, bytes(size)) for size in ((0, 0), (1, 8), (0, 9))),
        *((ColumnType.STRING, bytes([247, size])) for size in (0, 3)),
        *((ColumnType.STRING, bytes([248, size])) for size in (0, 9)),
        (ColumnType.ENUM, b""),
        (ColumnType.SET, b""),
    ],
)
def test_a_column_that_cannot_be_leads_no_one_out_of_its_row(kind: ColumnType, metadata: bytes) -> None:
    body = bytes(8) + b"\x01d\0\x01t\0" + bytes([1, kind, len(metadata)]) + metadata + b"\x01"
    with pytest.raises(CorruptDataError, match=rf"a column of type (ENUM|SET|{kind.name}) with values of"):
        read_table_map(body, "here")


def test_a_column_of_a_type_that_is_not_known_is_refused() -> None:
    body = bytes(8) + b"\1d\0\1t\0" + bytes([1, 200, 0, 1])
    with pytest.raises(UnsupportedFormatError, match=r"here: d\.t: a column of a type that is not read \(type 200\)"):
        read_table_map(body, "here")
    assert read_table_names(body, "here") == ("d", "t")
    with pytest.raises(CorruptDataError, match=r"here: a description of a table .* cannot be read"):
        read_table_names(body[:10], "here")


@pytest.mark.parametrize("key", [b"\x08\x01\x0b", b"\x09\x02\xfa\x05"])
def test_a_key_of_columns_that_are_not_there_is_damaged(orders: bytes, key: bytes) -> None:
    with pytest.raises(CorruptDataError, match="a primary key of more columns than there are"):
        read_table_map(orders + key, "here")


@given(st.data())
def test_any_bytes_are_a_table_or_a_declared_error(orders: bytes, data: st.DataObject) -> None:
    changed = bytearray(orders)
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(orders) - 1), st.integers(0, 255)), max_size=6)):
        changed[at] = byte
    with contextlib.suppress(CorruptDataError, UnsupportedFormatError):
        read_table_map(bytes(changed), "here")


def test_signs_and_collations_are_those_of_the_columns_that_have_a_place_for_them() -> None:
    many = bytes([ColumnType.TINY] * 5 + [ColumnType.YEAR] + [ColumnType.TINY] * 5)
    signs = b"\x01\x02\x90\x60"
    table = read_table_map(bytes(8) + b"\1d\0\1t\0" + bytes([len(many)]) + many + b"\0\0\0" + signs, "here")
    assert [i for i, column in enumerate(table.columns) if column.unsigned] == [0, 3, 9, 10]
    # A geometry, a vector, two texts: MariaDB alone counts the geometry.
    types = bytes([ColumnType.GEOMETRY, ColumnType.VECTOR, ColumnType.BLOB, ColumnType.BLOB])
    body = bytes(8) + b"\1d\0\1t\0\4" + types + b"\4\4\4\1\1" + b"\0"
    for mariadb, each, default in (
        (False, b"\3\3\x3f\x2d\x08", b"\2\5\x2d\0\x3f\2\x08"),
        (True, b"\3\4\x3f\x3f\x2d\x08", b"\2\7\x2d\0\x3f\1\x3f\3\x08"),
    ):
        for metadata in (each, default):
            columns = read_table_map(body + metadata, "here", WriterVersion(mariadb)).columns
            assert [column.collation for column in columns] == [63 if mariadb else None, 63, 45, 8]


@pytest.mark.parametrize(
    ("version", "signs"),
    [
        # What two releases wrote of the same table.
        ("8.0.15", b"\x20"),
        ("9.7.4-2", b"\x30"),
        ("8.0.20-log", b"\x20"),
        ("8.0.29", b"\x30"),
        ("5.5.5-10.5.8-MariaDB", b"\x30"),
    ],
)
def test_a_year_has_a_sign_or_none_by_the_release_that_wrote_the_binlog(version: str, signs: bytes) -> None:
    table = read_table_map(_WITH_YEAR + b"\x01\x01" + signs, "here", WriterVersion.of(version))
    assert [column.unsigned for column in table.columns if column.type is not ColumnType.YEAR] == [0, 0, 1, 0]


@pytest.mark.parametrize("version", ["8.0.21", "8.0.28"])
def test_numbers_after_a_year_of_a_release_between_are_refused_unless_their_signs_are_the_same(version: str) -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"table d\.t has a column YEAR before other numbers, and it is not"
    ):
        read_table_map(_WITH_YEAR + b"\x01\x01\x20", "here", WriterVersion.of(version))
    table = read_table_map(_WITH_YEAR + b"\x01\x01\x00", "here", WriterVersion.of(version))
    assert not any(column.unsigned for column in table.columns)


_KINDS = (ColumnType.LONG, ColumnType.TINY, ColumnType.YEAR, ColumnType.LONG, ColumnType.LONG)
_WITH_YEAR = bytes(8) + b"\x01d\0\x01t\0" + bytes([5, *_KINDS]) + b"\0\x1e"
"""id INT, a TINYINT, y YEAR, b INT UNSIGNED, c INT."""
