"""Values as a SELECT shows them, as text, to the columns that row events have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.character_sets import text_of_several
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, array_of, binary
from pyspark_mysql_cdc_wm.records.arrow_types import DATE, SET_TYPE, TEMPORAL, TIME, has_empty_label
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.numbers import bits, geometries, vectors
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType
from pyspark_mysql_cdc_wm.records.temporal import days_or_micros
from pyspark_mysql_cdc_wm.records.text_columns import labelled_sets, utf_8
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.machine_code.iso_8601 import NO_MOMENT, day_of, digit_at, digits, moment_of
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

_TEXTS = frozenset({ColumnType.VARCHAR, ColumnType.STRING, ColumnType.BLOB, ColumnType.ENUM})


@inlined
def _micros(data: Word, at: Word, end: Word) -> Word:
    """Microseconds of a time of day after its hours, ``:59:59`` and perhaps a point and up to six digits."""
    value = (digits(data, at + 1, end, 2) * 60 + digits(data, at + 4, end, 2)) * 1_000_000
    unit = np.int64(100_000)
    for place in range(at + 7, end):
        value += digits(data, place, end, 1) * unit
        unit //= 10
    return value


@compiled("void(uint8[::1], int32[::1], int32[::1], int64, int64[::1])")
def _clock(array: Word, starts: Word, sizes: Word, layout: Word, out: Word) -> None:
    """Days for dates, microseconds for all others; ``NO_MOMENT`` for null, and for what is no date."""
    data = address_of(array)
    for row in range(starts.shape[0]):
        value = NO_MOMENT
        at = np.int64(starts[row])
        if at >= 0:
            end = at + sizes[row]
            if layout == TIME:
                negative = byte_at(data, at) == 0x2D
                at += negative
                # Of hours there are two digits or three.
                size = np.int64(2 if digit_at(data, at + 2, end) < 0 else 3)
                value = digits(data, at, end, size) * 3_600_000_000 + _micros(data, at + size, end)
                if negative:
                    value = -value
            else:
                year, month, day = digits(data, at, end, 4), digits(data, at + 5, end, 2), digits(data, at + 8, end, 2)
                if layout == DATE:
                    value = day_of(year, month, day)
                else:
                    hour, rest = digits(data, at + 11, end, 2), _micros(data, at + 13, end)
                    value = moment_of(year, month, day, hour, np.int64(0), np.int64(0), rest)
        out[row] = value


def text_column(  # noqa: PLR0911 - a table of types
    column: Column, kind: pa.DataType, key: KeyColumn | None = None
) -> Callable[[Values], pa.Array]:
    """Return how values of a column become an array of its type, which is the one its row events have.

    Values are the server's texts: of FLOAT and DOUBLE times 1e0, of a SET with an empty label its number, of a ``key``
    as ``KeyColumn.told_apart`` has it. What is no date is null. A key that is no date but 0000-00-00, or has the text
    of another key, is an ``UnsupportedFormatError``.
    """
    if column.type in TEMPORAL:
        layout = TEMPORAL[column.type].layout
        return lambda values: _times(values, kind, layout, of_key=key is not None)
    if column.type is ColumnType.BIT:
        return lambda values: bits(values, column.length)
    if column.type is ColumnType.GEOMETRY:
        return geometries
    if column.type is ColumnType.VECTOR:
        return vectors
    if column.type is ColumnType.JSON:
        return _documents
    if has_empty_label(column):
        labels = pa.array([label.decode() for label in column.labels or ()], pa.string())
        return lambda values: _numbered_sets(values, labels)
    if column.type is ColumnType.SET:
        return _sets
    if column.type in _TEXTS or kind == pa.string():
        if column.collation == BINARY_COLLATION:
            return lambda values: binary(pa.binary(), values)
        return utf_8 if key is None else lambda values: _texts_of_key(values, key.charset)
    return lambda values: _cast(values, kind)


def _documents(values: Values) -> pa.Array:
    if ((values.starts >= 0) & (values.sizes == 0)).any():
        raise UnsupportedFormatError(
            "a JSON document whose text is longer than max_allowed_packet, so that a SELECT shows nothing of it. On "
            "the server: SET PERSIST max_allowed_packet = 1073741824, and start the query again. Or leave the column "
            "out by the option excludeColumns"
        )
    return utf_8(values)


def _texts_of_key(values: Values, charset: str | None) -> pa.Array:
    column = utf_8(values)
    if charset is not None and column.null_count:
        raise text_of_several(charset)
    return column


def _times(values: Values, kind: pa.DataType, layout: int, *, of_key: bool) -> pa.Array:
    found = np.empty(values.rows, np.int64)
    _clock(values.data, values.starts, values.sizes, layout, found)
    return days_or_micros(kind, found, values, partial(str, encoding="utf-8", errors="replace") if of_key else None)


def _numbered_sets(values: Values, labels: pa.Array) -> pa.Array:
    masks = _cast(values, pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return labelled_sets(masks, values.starts >= 0, labels)


def _sets(values: Values) -> pa.Array:
    lists = pc.split_pattern(binary(pa.string(), values), ",")
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    # Splitting what is empty gives one empty text, and the set has no member.
    empty = (values.starts >= 0) & (values.sizes == 0)
    kept = np.repeat(~empty, lengths)
    members = lists.flatten().filter(pa.array(kept)) if empty.any() else lists.flatten()
    offsets = np.zeros(values.rows + 1, np.int32)
    np.cumsum(np.where(empty, 0, lengths), out=offsets[1:])
    return array_of(SET_TYPE, values.starts >= 0, pa.py_buffer(offsets), children=[members])


def _cast(values: Values, kind: pa.DataType) -> pa.Array:
    texts = binary(pa.string(), values)
    try:
        # Of four bytes the server shows no more than six digits, so those are asked for as eight.
        return texts.cast(pa.float64()).cast(kind) if pa.types.is_float32(kind) else texts.cast(kind)
    except pa.ArrowInvalid as problem:
        raise CorruptDataError(f"a number that is not of the type {kind}: {problem}") from problem
