"""From a column of a table map to its width in a row and its column in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, binary
from pyspark_mysql_cdc_wm.records.arrow_types import (
    INTEGERS,
    STRINGS,
    TEMPORAL,
    charset_of,
    column_type,
    column_width,
)
from pyspark_mysql_cdc_wm.records.decimals import decimals
from pyspark_mysql_cdc_wm.records.enums_and_sets import enums, label_charset, label_column, sets
from pyspark_mysql_cdc_wm.records.geometries_and_vectors import geometries, vectors
from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from pyspark_mysql_cdc_wm.records.numbers import bits, floats, integers, years
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column
from pyspark_mysql_cdc_wm.records.temporal import temporals
from pyspark_mysql_cdc_wm.records.text_columns import texts
from pyspark_mysql_cdc_wm.records.type_codes import ColumnType

_ALIKE: Mapping[ColumnType, Callable[[Values], pa.Array]] = {
    ColumnType.YEAR: years,
    ColumnType.GEOMETRY: geometries,
    ColumnType.VECTOR: vectors,
    ColumnType.JSON: json_texts,
}
"""Types whose columns are all read alike."""


@dataclass(frozen=True, slots=True)
class ColumnDecoder:
    """How a column is found in a row, and what becomes of it."""

    width: int
    """Bytes of each value or, negative, of the length before each."""
    type: pa.DataType
    build: Callable[[Values], pa.Array]


def column_decoder(column: Column, charsets: Mapping[int, str], where: str) -> ColumnDecoder:
    """Return how to read a column; raises as ``column_width`` and ``column_type``."""
    width = column_width(column)
    return ColumnDecoder(width, column_type(column, charsets, where), _builder(column, width, charsets, where))


def _builder(  # noqa: PLR0911 - a table of types
    column: Column, width: int, charsets: Mapping[int, str], where: str
) -> Callable[[Values], pa.Array]:
    """Return what makes the column, of a type that has passed ``column_type``."""
    kind = column.type
    if kind in _ALIKE:
        return _ALIKE[kind]
    if kind in INTEGERS:
        return lambda values: integers(values, width, unsigned=column.unsigned)
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE):
        return lambda values: floats(values, width)
    if kind is ColumnType.NEWDECIMAL:
        return lambda values: decimals(values, column.precision, column.scale)
    if kind in TEMPORAL:
        return lambda values: temporals(values, column)
    if kind is ColumnType.BIT:
        return lambda values: bits(values, column.length)
    if kind not in STRINGS:
        return _labelled(column, width, charsets)
    if column.collation == BINARY_COLLATION:
        # The server cuts the zeros off that fill up a BINARY.
        least = column.length if kind is ColumnType.STRING else 0
        return lambda values: binary(pa.binary(), values, least=least)
    charset = charset_of(column, charsets, where)
    return lambda values: texts(values, charset)


def _labelled(column: Column, width: int, charsets: Mapping[int, str]) -> Callable[[Values], pa.Array]:
    charset, labels = label_charset(column, charsets), column.labels or ()
    if column.type is ColumnType.ENUM:
        names = label_column((b"", *labels), charset)
        return lambda values: enums(values, width, names)
    names = label_column(labels, charset)
    return lambda values: sets(values, width, names)
