"""TABLE_MAP events: a table's columns and, as far as the server logs them, names, signs, character sets, labels, keys.

A body, little-endian: table id 6, flags 2, database and table (each: size, bytes, a zero byte), column count, types,
size of the types' metadata and the metadata, null bitmap, then fields of type 1, size and value until the end (the
optional metadata of MySQL 8.0.1 and MariaDB 10.5; ``binlog_row_metadata``). Sizes and counts are length-encoded.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from pyspark_mysql_cdc_wm.binlog.byte_reader import Scan
from pyspark_mysql_cdc_wm.records.row_metadata import with_metadata
from pyspark_mysql_cdc_wm.records.table_definition import Column, TableMap
from pyspark_mysql_cdc_wm.records.type_codes import ColumnType
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

TABLE_ID_SIZE = 6
_FLAGS_SIZE = 2
_SIZED = (ColumnType.BLOB, ColumnType.BLOB_COMPRESSED, ColumnType.JSON, ColumnType.GEOMETRY, ColumnType.VECTOR)
"""Those of which the bytes of the length before a value are told."""
_LIMITED = (ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED, ColumnType.VAR_STRING)
"""Those of which the most bytes of a value are told."""
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


def read_table_map(body: bytes, where: str, *, mariadb: bool = False) -> TableMap:
    """Return what a TABLE_MAP event's body, without header and checksum, says; ``mariadb`` tells who wrote it.

    Raises:
        CorruptDataError: it ends too early, or tells of a column that cannot be.
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
        return with_metadata(TableMap(database, table, tuple(columns)), _fields(scan), mariadb=mariadb)
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
