"""A column's width in a row and its type in Arrow. Nothing here is compiled: drivers need it to know a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.character_sets import check_charset
from pyspark_mysql_cdc_wm.records.table_definition import ALL_METADATA, BINARY_COLLATION, COMPRESSED, Column, ColumnType
from watermark_source.errors import UnsupportedFormatError

INTEGERS = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}
"""Bytes of a value."""
WHOLE_NUMBERS = frozenset({*INTEGERS, ColumnType.YEAR})
_SIGNED: dict[int, type[np.signedinteger]] = {1: np.int8, 2: np.int16, 3: np.int32, 4: np.int32, 8: np.int64}
_UNSIGNED: dict[int, type[np.signedinteger]] = {1: np.int16, 2: np.int32, 3: np.int32, 4: np.int64}
DATE, DATETIME, TIME, TIMESTAMP, OLD_DATETIME, OLD_TIME, OLD_TIMESTAMP = range(7)
"""How dates and times lie in a row; ``temporal.py`` reads them."""


class Temporal(NamedTuple):
    """A type of dates or times."""

    layout: int
    width: int
    """Bytes of a value, without the fraction of a second."""
    arrow: pa.DataType
    """TIMESTAMP is a moment, DATETIME a clock's reading without a zone, TIME a duration."""


TEMPORAL: Mapping[ColumnType, Temporal] = {
    ColumnType.DATE: Temporal(DATE, 3, pa.date32()),
    ColumnType.NEWDATE: Temporal(DATE, 3, pa.date32()),
    ColumnType.TIME: Temporal(OLD_TIME, 3, pa.duration("us")),
    ColumnType.TIME2: Temporal(TIME, 3, pa.duration("us")),
    ColumnType.DATETIME: Temporal(OLD_DATETIME, 8, pa.timestamp("us")),
    ColumnType.DATETIME2: Temporal(DATETIME, 5, pa.timestamp("us")),
    ColumnType.TIMESTAMP: Temporal(OLD_TIMESTAMP, 4, pa.timestamp("us", tz="UTC")),
    ColumnType.TIMESTAMP2: Temporal(TIMESTAMP, 4, pa.timestamp("us", tz="UTC")),
}
FLOATS = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})
LABELLED = frozenset({ColumnType.ENUM, ColumnType.SET})
STRINGS = frozenset({ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING, ColumnType.BLOB})
SET_TYPE = pa.list_(pa.string())
GEOMETRY_TYPE = pa.struct([pa.field("srid", pa.int32()), pa.field("wkb", pa.binary())])
VECTOR_TYPE = pa.list_(pa.float32())
_ALIKE: Mapping[ColumnType, pa.DataType] = {
    ColumnType.YEAR: pa.int32(),
    ColumnType.GEOMETRY: GEOMETRY_TYPE,
    ColumnType.VECTOR: VECTOR_TYPE,
    ColumnType.JSON: pa.string(),
}
LONGEST_DECIMAL = 38
GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
"""Of so many digits of a decimal; nine are a group."""
_GROUP = 9
# Longer than any event: a value that must not be there is then found not to fit.
_NEVER = 2**40


def is_text_of_digits(column: Column) -> bool:
    """Return whether a column is of decimals with more digits than Arrow's have, which are text."""
    return column.type is ColumnType.NEWDECIMAL and column.precision > LONGEST_DECIMAL


def has_empty_label(column: Column) -> bool:
    """Return whether a column is a SET with an empty label, which only its number shows, not its text."""
    return column.type is ColumnType.SET and b"" in (column.labels or ())


def column_width(column: Column) -> int:
    """Return the bytes of each value in a row or, negative, those of the length before each.

    Raises:
        UnsupportedFormatError: a type that no row of a supported server has.
    """
    if column.type in INTEGERS:
        return INTEGERS[column.type]
    if column.type in TEMPORAL:
        return temporal_width(column)
    if column.type is ColumnType.NEWDECIMAL:
        return decimal_width(column.precision, column.scale)
    if column.type is ColumnType.YEAR:
        return 1
    if column.type is ColumnType.TYPED_ARRAY:
        return _NEVER
    if column.type is ColumnType.DECIMAL:
        raise UnsupportedFormatError("a DECIMAL column made before MySQL 5.0; ALTER TABLE … FORCE makes it a new one")
    return column.size if column.type in {*FLOATS, *LABELLED, ColumnType.BIT} else -column.size


def column_type(  # noqa: PLR0911 - a table of types
    column: Column, charsets: Mapping[int, str], where: str
) -> pa.DataType:
    """Return the type; ``charsets`` has the character set of each collation of the server.

    Raises:
        UnsupportedFormatError: a type or character set that is not read, or metadata that the server does not log.
    """
    kind = column.type
    if kind in _ALIKE:
        return _ALIKE[kind]
    if kind in INTEGERS:
        return integer_type(INTEGERS[kind], unsigned=column.unsigned)
    if kind in FLOATS:
        return pa.float32() if column.size == 4 else pa.float64()
    if kind is ColumnType.NEWDECIMAL:
        return decimal_type(column.precision, column.scale)
    if kind in TEMPORAL:
        return TEMPORAL[kind].arrow
    if kind is ColumnType.BIT:
        return pa.bool_() if column.length == 1 else pa.binary()
    if kind in STRINGS and column.collation == BINARY_COLLATION:
        return pa.binary()
    if kind in STRINGS:
        charset_of(column, charsets, where)
        return pa.string()
    if kind in LABELLED:
        if column.labels is None:
            raise UnsupportedFormatError(f"{where}: the server does not log the labels of ENUM and SET; {ALL_METADATA}")
        if column.collation is not None and column.collation != BINARY_COLLATION:
            charset_of(column, charsets, where)
        return pa.string() if kind is ColumnType.ENUM else SET_TYPE
    if kind in COMPRESSED.values():
        raise UnsupportedFormatError(f"{where}: COMPRESSED is not read; leave it out by the option excludeColumns")
    raise UnsupportedFormatError(f"{where}: a column of type {kind.name}, which no row has")


def charset_of(column: Column, charsets: Mapping[int, str], where: str) -> str:
    """Return the character set of a column of text; raises as ``column_type``."""
    if column.collation is None:
        raise UnsupportedFormatError(f"{where}: the server does not log its character set (binlog_row_metadata)")
    if column.collation not in charsets:
        raise UnsupportedFormatError(
            f"{where}: a collation with the number {column.collation}, which the server has not"
        )
    charset = charsets[column.collation]
    check_charset(charset, where)
    return charset


def decimal_width(precision: int, scale: int) -> int:
    """Return the bytes of a value."""
    whole = precision - scale
    return int(4 * (whole // _GROUP + scale // _GROUP) + GROUP_BYTES[whole % _GROUP] + GROUP_BYTES[scale % _GROUP])


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return a decimal if there is one that is long enough, else text."""
    return pa.decimal128(precision, scale) if precision <= LONGEST_DECIMAL else pa.string()


def integer_type(width: int, *, unsigned: bool) -> pa.DataType:
    """Return the smallest signed type that holds all values; for eight bytes without a sign a decimal."""
    if unsigned and width == 8:
        return pa.decimal128(20, 0)
    return pa.from_numpy_dtype((_UNSIGNED if unsigned else _SIGNED)[width])


def temporal_width(column: Column) -> int:
    """Return the bytes of a value."""
    return TEMPORAL[column.type].width + (column.precision + 1) // 2
