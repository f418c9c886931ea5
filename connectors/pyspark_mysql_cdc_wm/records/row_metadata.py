"""The optional metadata of a TABLE_MAP event (``binlog_row_metadata``), put on the columns it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyspark_mysql_cdc_wm.binlog.byte_reader import Scan
from pyspark_mysql_cdc_wm.records.table_definition import Column, KeyPart, TableMap
from pyspark_mysql_cdc_wm.records.type_codes import ColumnType

_SIGNS, _DEFAULT_COLLATION, _COLLATIONS, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_WITH_PREFIXES, _LABEL_DEFAULT_COLLATION, _LABEL_COLLATIONS, _VISIBILITY = 8, 9, 10, 11, 12

# YEAR has a place among the signs, though its bit says nothing: without it all later bits would be a column off.
_NUMERIC = frozenset(
    {
        ColumnType.TINY,
        ColumnType.SHORT,
        ColumnType.INT24,
        ColumnType.LONG,
        ColumnType.LONGLONG,
        ColumnType.NEWDECIMAL,
        ColumnType.DECIMAL,
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.YEAR,
    }
)
_CHARACTER = frozenset(
    {
        ColumnType.STRING,
        ColumnType.VAR_STRING,
        ColumnType.VARCHAR,
        ColumnType.VARCHAR_COMPRESSED,
        ColumnType.BLOB,
        ColumnType.BLOB_COMPRESSED,
        ColumnType.VECTOR,
    }
)
"""Vectors have a place among them too, though they are no text."""
_LABELLED = frozenset({ColumnType.ENUM, ColumnType.SET})


def with_metadata(table: TableMap, fields: Iterable[tuple[int, bytes]], *, mariadb: bool) -> TableMap:
    """Return the table with what ``fields``, pairs of a type and a value, say; unknown types are skipped.

    ``mariadb`` counts geometries among the columns that have a collation.

    Raises:
        IndexError: a value that ends too early or tells of more columns than there are.
    """
    columns = list(table.columns)
    key: tuple[KeyPart, ...] | None = None
    numeric = _indexes(columns, _NUMERIC)
    character = _indexes(columns, _CHARACTER | {ColumnType.GEOMETRY} if mariadb else _CHARACTER)
    labelled = _indexes(columns, _LABELLED)
    for kind, value in fields:
        if kind == _SIGNS:
            _put(columns, numeric, "unsigned", _bits(value, len(numeric)))
        elif kind in (_DEFAULT_COLLATION, _COLLATIONS):
            _put(columns, character, "collation", _collations(value, len(character), kind == _DEFAULT_COLLATION))
        elif kind in (_LABEL_DEFAULT_COLLATION, _LABEL_COLLATIONS):
            default = kind == _LABEL_DEFAULT_COLLATION
            _put(columns, labelled, "collation", _collations(value, len(labelled), default))
        elif kind == _NAMES:
            names = [name.decode() for name in _all(value, _text)]
            _put(columns, range(len(columns)), "name", names)
        elif kind in (_SET_LABELS, _ENUM_LABELS):
            these = ColumnType.SET if kind == _SET_LABELS else ColumnType.ENUM
            _put(columns, _indexes(columns, {these}), "labels", _all(value, _labels))
        elif kind == _KEY:
            key = tuple(KeyPart(column) for column in _all(value, Scan.lenenc))
        elif kind == _KEY_WITH_PREFIXES:
            key = tuple(_all(value, lambda scan: KeyPart(scan.lenenc(), scan.lenenc() or None)))
        elif kind == _VISIBILITY:
            _put(columns, range(len(columns)), "visible", _bits(value, len(columns)))
    if any(part.column >= len(columns) for part in key or ()):
        raise IndexError(f"a primary key of more columns than there are ({len(columns)})")
    return replace(table, columns=tuple(columns), primary_key=key)


def _indexes(columns: Sequence[Column], kinds: Iterable[ColumnType]) -> list[int]:
    return [i for i, column in enumerate(columns) if column.type in frozenset(kinds)]


def _put(columns: list[Column], where: Sequence[int], name: str, values: Sequence[Any]) -> None:
    if len(values) != len(where):
        raise IndexError(f"{name} of {len(values)} columns, there are {len(where)}")
    for index, value in zip(where, values, strict=True):
        columns[index] = replace(columns[index], **{name: value})


def _bits(value: bytes, count: int) -> list[bool]:
    """The first bit is the highest of the first byte."""
    return [bool(value[i // 8] & 0x80 >> i % 8) for i in range(count)]


def _collations(value: bytes, count: int, default: bool) -> list[int]:
    scan = Scan(value)
    if not default:
        return [scan.lenenc() for _ in range(count)]
    found = [scan.lenenc()] * count
    while scan.left:
        index = scan.lenenc()
        found[index] = scan.lenenc()
    return found


def _text(scan: Scan) -> bytes:
    return scan.take(scan.lenenc())


def _labels(scan: Scan) -> tuple[bytes, ...]:
    return tuple(_text(scan) for _ in range(scan.lenenc()))


def _all(value: bytes, read: Callable[[Scan], Any]) -> list[Any]:
    scan = Scan(value)
    found = []
    while scan.left:
        found.append(read(scan))
    return found
