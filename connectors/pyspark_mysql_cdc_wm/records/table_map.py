"""TABLE_MAP events: a table's columns and, as far as the server logs them, names, signs, character sets, labels, keys.

A body, little-endian: table id 6, flags 2, database and table (each: size, bytes, a zero byte), column count, types,
size of the types' metadata and the metadata, null bitmap, then fields of type 1, size and value until the end (the
optional metadata of MySQL 8.0.1 and MariaDB 10.5; ``binlog_row_metadata``). Sizes and counts are length-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark_mysql_cdc_wm.binlog.wire import Scan
from pyspark_mysql_cdc_wm.records.arrow_types import INTEGERS, LABELLED, STRINGS
from pyspark_mysql_cdc_wm.records.table_definition import COMPRESSED, Column, ColumnType, KeyPart, TableMap
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

# The optional metadata of a TABLE_MAP event (``binlog_row_metadata``), put on the columns it is about.


_SIGNS, _DEFAULT_COLLATION, _COLLATIONS, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_WITH_PREFIXES, _LABEL_DEFAULT_COLLATION, _LABEL_COLLATIONS = 8, 9, 10, 11

_NUMERIC = frozenset({*INTEGERS, ColumnType.NEWDECIMAL, ColumnType.DECIMAL, ColumnType.FLOAT, ColumnType.DOUBLE})
_CHARACTER = frozenset({*STRINGS, *COMPRESSED.values(), ColumnType.VECTOR})
"""Vectors have a place among them too, although they are binary."""


@dataclass(frozen=True, slots=True)
class WriterVersion:
    """What of a TABLE_MAP event depends on the server that wrote it."""

    mariadb: bool = False
    """It counts geometries among the columns that have a collation."""
    year_has_sign: bool | None = True
    """Whether YEAR has an unused bit among the signs, without which all later bits are a column off; ``None``: it is
    not known of this release."""

    @classmethod
    def of(cls, version: str) -> WriterVersion:
        """Return the writer by the version in the FORMAT_DESCRIPTION event of its binlog.

        MySQL 8.0.15 writes no bit for a YEAR, nor does the source of 8.0.20; 8.0.29 and later write one, as MariaDB.
        """
        mariadb = "mariadb" in version.lower()
        release = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
        if mariadb or not release or release >= _YEARS_HAVE_SIGNS:
            return cls(mariadb)
        return cls(mariadb, None if release > _YEARS_HAVE_NO_SIGNS else False)


_YEARS_HAVE_NO_SIGNS, _YEARS_HAVE_SIGNS = (8, 0, 20), (8, 0, 29)
"""The last release of MySQL that is known to write none, and the first that is known to write them."""


def with_metadata(table: TableMap, fields: Iterable[tuple[int, bytes]], writer: WriterVersion) -> TableMap:
    """Return the table with what ``fields``, pairs of a type and a value, say; unknown types are skipped.

    Raises:
        IndexError: a value ends too early, or is for more columns than there are.
        UnsupportedFormatError: the signs of numbers depend on what is not known of the writer.
    """
    columns = list(table.columns)
    key: tuple[KeyPart, ...] | None = None
    character = _indexes(columns, _CHARACTER | {ColumnType.GEOMETRY} if writer.mariadb else _CHARACTER)
    labelled = _indexes(columns, LABELLED)
    for kind, value in fields:
        if kind == _SIGNS:
            for index, unsigned in _signs(table, value, writer).items():
                columns[index] = replace(columns[index], unsigned=unsigned)
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


def _signs(table: TableMap, value: bytes, writer: WriterVersion) -> Mapping[int, bool]:
    """Return of each column that is a number whether it is unsigned."""
    numeric, with_years = (_indexes(table.columns, kinds) for kinds in (_NUMERIC, _NUMERIC | {ColumnType.YEAR}))
    if writer.year_has_sign is None and len(with_years) <= 8 * len(value):
        counted, plain = (dict(zip(at, _bits(value, len(at)), strict=True)) for at in (with_years, numeric))
        if any(counted[index] != unsigned for index, unsigned in plain.items()):
            raise UnsupportedFormatError(
                f"table {table.database}.{table.table} has a column YEAR before other numbers, and it is not known "
                "whether this release of MySQL, between 8.0.20 and 8.0.29, logs a sign for it: the numbers could be "
                "read with the signs of others. Upgrade the server to 8.0.29 or a later one, and begin a new query "
                "behind the upgrade; or leave the table out"
            )
    where = with_years if writer.year_has_sign else numeric
    return dict(zip(where, _bits(value, len(where)), strict=True))


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


TABLE_ID_SIZE = 6
_FLAGS_SIZE = 2
_SIZED = (ColumnType.BLOB, ColumnType.BLOB_COMPRESSED, ColumnType.JSON, ColumnType.GEOMETRY, ColumnType.VECTOR)
"""Types whose metadata is the number of bytes of the length before a value."""
_LIMITED = (ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED, ColumnType.VAR_STRING)
"""Types whose metadata is the maximum length in bytes."""
_LENGTHS, _FRACTIONS = range(1, 5), range(7)
_SIZES: Mapping[ColumnType, Container[int]] = {
    ColumnType.FLOAT: (4,),
    ColumnType.DOUBLE: (8,),
    ColumnType.ENUM: (1, 2),
    ColumnType.SET: (1, 2, 3, 4, 8),
    ColumnType.BIT: range(1, 9),
    **dict.fromkeys(_SIZED, _LENGTHS),
}
"""What compiled code relies on: others would lead it out of a row."""
_MOST_DIGITS = 65


def read_table_map(body: bytes, where: str, writer: WriterVersion = WriterVersion()) -> TableMap:
    """Parse a TABLE_MAP event's body, without header and checksum.

    Raises:
        CorruptDataError: it ends too early, or describes an impossible column.
        UnsupportedFormatError: a column of a type that this version does not know.
    """
    try:
        scan = Scan(body)
        database, table = _names(scan)
        types = scan.take(scan.lenenc())
        metadata = Scan(scan.take(scan.lenenc()))
        columns = [_column(kind, metadata, f"{where}: {database}.{table}") for kind in types]
        nulls = scan.take((len(types) + 7) // 8)
        columns = [replace(column, nullable=bool(nulls[i // 8] >> i % 8 & 1)) for i, column in enumerate(columns)]
        return with_metadata(TableMap(database, table, tuple(columns)), _fields(scan), writer)
    except (IndexError, ValueError) as problem:
        raise _unreadable(where, problem) from problem


def read_table_names(body: bytes, where: str) -> tuple[str, str]:
    """Return the names of the database and the table alone, whatever columns that has.

    Raises:
        CorruptDataError: it ends too early.
    """
    try:
        return _names(Scan(body))
    except (IndexError, ValueError) as problem:
        raise _unreadable(where, problem) from problem


def _unreadable(where: str, problem: Exception) -> CorruptDataError:
    return CorruptDataError(f"{where}: a description of a table (TABLE_MAP) that cannot be read: {problem}")


def _names(scan: Scan) -> tuple[str, str]:
    scan.skip(TABLE_ID_SIZE + _FLAGS_SIZE)
    return _name(scan), _name(scan)


def _name(scan: Scan) -> str:
    name = scan.take(scan.lenenc()).decode()
    scan.skip(1)
    return name


def _fields(scan: Scan) -> Iterator[tuple[int, bytes]]:
    while scan.left:
        kind = scan.byte()
        yield kind, scan.take(scan.lenenc())


def _column(code: int, metadata: Scan, where: str) -> Column:
    column = _described(code, metadata, where)
    if column.type is ColumnType.NEWDECIMAL:
        possible = column.scale <= column.precision and 0 < column.precision <= _MOST_DIGITS
    else:
        possible = column.precision in _FRACTIONS
    if not possible or column.size not in _SIZES.get(column.type, (column.size,)):
        raise ValueError(
            f"a column of type {column.type.name} with values of {column.size} bytes, {column.precision} digits, "
            f"{column.scale} of them after the point"
        )
    return column


def _described(code: int, metadata: Scan, where: str) -> Column:  # noqa: PLR0911 - a table of types
    try:
        kind = ColumnType(code)
    except ValueError:
        raise UnsupportedFormatError(f"{where}: a column of a type that is not read (type {code})") from None
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE, *_SIZED):
        return Column(kind, size=metadata.byte())
    if kind in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        return Column(kind, precision=metadata.byte())
    if kind is ColumnType.NEWDECIMAL:
        return Column(kind, precision=metadata.byte(), scale=metadata.byte())
    if kind in _LIMITED:
        length = metadata.uint(2)
        return Column(kind, size=1 if length < 256 else 2, length=length)
    if kind is ColumnType.BIT:
        bits = metadata.byte()
        bits += 8 * metadata.byte()
        return Column(kind, size=(bits + 7) // 8, length=bits)
    if kind is ColumnType.STRING:
        return _string(metadata.byte(), metadata.byte())
    if kind is ColumnType.TYPED_ARRAY:
        # Hidden behind an index over an array in JSON; never a part of a row.
        _column(metadata.byte(), metadata, where)
    return Column(kind)


def _string(high: int, low: int) -> Column:
    if high in (ColumnType.ENUM, ColumnType.SET):
        return Column(ColumnType(high), size=low)
    # CHAR of more than 255 bytes: the length's two top bits lie, inverted, in bits 4 and 5 of the type.
    length = (((high >> 4) & 3) ^ 3) << 8 | low
    return Column(ColumnType.STRING, size=1 if length < 256 else 2, length=length)
