"""From a column of a table map to its width in a row and its column in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column import BINARY_COLLATION, Column, ColumnType
from pyspark_mysql_cdc_wm.records.decimals import decimal_type, decimal_width, decimals
from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from pyspark_mysql_cdc_wm.records.labels import SET_TYPE, enums, label_column, sets
from pyspark_mysql_cdc_wm.records.memory import Values, binary
from pyspark_mysql_cdc_wm.records.numbers import bits, bits_type, floats, integer_type, integers, years
from pyspark_mysql_cdc_wm.records.shapes import GEOMETRY_TYPE, VECTOR_TYPE, geometries, vectors
from pyspark_mysql_cdc_wm.records.temporal import temporal_type, temporal_width, temporals
from pyspark_mysql_cdc_wm.records.texts import check_charset, texts
from watermark_source.errors import UnsupportedFormatError

_INTEGERS = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}
_TEMPORAL = frozenset(
    {
        ColumnType.DATE,
        ColumnType.NEWDATE,
        ColumnType.TIME,
        ColumnType.TIME2,
        ColumnType.DATETIME,
        ColumnType.DATETIME2,
        ColumnType.TIMESTAMP,
        ColumnType.TIMESTAMP2,
    }
)
_STRINGS = frozenset({ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING, ColumnType.BLOB})
_INTERNAL = "utf8mb4"
# Longer than any event: a value that must not be there is then found not to fit.
NEVER = 2**40


@dataclass(frozen=True, slots=True)
class RowColumn:
    """How a column is found in a row, and what becomes of it."""

    width: int
    """Bytes of each value or, negative, of the length before each."""
    type: pa.DataType
    build: Callable[[Values], pa.Array]


def column_width(column: Column) -> int:
    """Return the bytes of each value in a row or, negative, those of the length before each.

    Raises:
        UnsupportedFormatError: a type that no row of a supported server has.
    """
    if column.type in _INTEGERS:
        return _INTEGERS[column.type]
    if column.type in _TEMPORAL:
        return temporal_width(column)
    if column.type is ColumnType.NEWDECIMAL:
        return decimal_width(column.precision, column.scale)
    if column.type is ColumnType.YEAR:
        return 1
    if column.type is ColumnType.TYPED_ARRAY:
        return NEVER
    if column.type is ColumnType.DECIMAL:
        raise UnsupportedFormatError("a DECIMAL column made before MySQL 5.0; ALTER TABLE … FORCE makes it a new one")
    fixed_size = (ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.ENUM, ColumnType.SET, ColumnType.BIT)
    return column.size if column.type in fixed_size else -column.size


def row_column(column: Column, charsets: Mapping[int, str], where: str) -> RowColumn:  # noqa: PLR0911 - a table of types
    """Return how to read a column; ``charsets`` has the character set of each collation of the server.

    Raises:
        UnsupportedFormatError: a type or character set that is not read, or metadata that the server does not log.
    """
    width = column_width(column)
    kind = column.type
    if kind in _INTEGERS:
        whole = integer_type(width, unsigned=column.unsigned)
        return RowColumn(width, whole, lambda values: integers(values, width, unsigned=column.unsigned))
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE):
        return RowColumn(width, pa.float32() if width == 4 else pa.float64(), lambda values: floats(values, width))
    if kind is ColumnType.NEWDECIMAL:
        precision, scale = column.precision, column.scale
        return RowColumn(width, decimal_type(precision, scale), lambda values: decimals(values, precision, scale))
    if kind in _TEMPORAL:
        return RowColumn(width, temporal_type(kind), lambda values: temporals(values, column))
    if kind is ColumnType.YEAR:
        return RowColumn(width, pa.int32(), years)
    if kind is ColumnType.BIT:
        return RowColumn(width, bits_type(column.length), lambda values: bits(values, column.length))
    if kind is ColumnType.GEOMETRY:
        return RowColumn(width, GEOMETRY_TYPE, geometries)
    if kind is ColumnType.VECTOR:
        return RowColumn(width, VECTOR_TYPE, vectors)
    if kind is ColumnType.JSON:
        return RowColumn(width, pa.string(), json_texts)
    if kind in _STRINGS and column.collation == BINARY_COLLATION:
        # The server cuts the zeros off that fill up a BINARY.
        least = column.length if kind is ColumnType.STRING else 0
        return RowColumn(width, pa.binary(), lambda values: binary(pa.binary(), values, least=least))
    if kind in _STRINGS:
        charset = _charset(column, charsets, where)
        return RowColumn(width, pa.string(), lambda values: texts(values, charset))
    if kind in (ColumnType.ENUM, ColumnType.SET):
        return _labelled(column, charsets, where)
    raise UnsupportedFormatError(f"{where}: a column of type {kind.name}, which no row has")


def _charset(column: Column, charsets: Mapping[int, str], where: str) -> str:
    if column.collation is None:
        raise UnsupportedFormatError(f"{where}: the server does not log its character set (binlog_row_metadata)")
    if column.collation not in charsets:
        raise UnsupportedFormatError(
            f"{where}: a collation with the number {column.collation}, which the server has not"
        )
    charset = charsets[column.collation]
    check_charset(charset, where)
    return charset


def _labelled(column: Column, charsets: Mapping[int, str], where: str) -> RowColumn:
    if column.labels is None:
        raise UnsupportedFormatError(
            f"{where}: the server does not log the labels of ENUM and SET; SET GLOBAL binlog_row_metadata = FULL"
        )
    # Labels of the character set binary are bytes that are shown as they are.
    binary_labels = column.collation == BINARY_COLLATION
    charset = _INTERNAL if binary_labels or column.collation is None else _charset(column, charsets, where)
    width = column.size
    if column.type is ColumnType.ENUM:
        names = label_column((b"", *column.labels), charset)
        return RowColumn(width, pa.string(), lambda values: enums(values, width, names))
    names = label_column(column.labels, charset)
    return RowColumn(width, SET_TYPE, lambda values: sets(values, width, names))
