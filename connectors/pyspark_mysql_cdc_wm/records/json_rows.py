"""Rows of any table as JSON texts, ``{"id":1,"name":"a"}``, column by column.

Numbers have the digits that the server shows, however many; text, labels, dates and times are strings; bytes are
base64; a JSON column's document is a part of the text, as the server shows it. TIMESTAMP is in UTC and ends with Z.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.wire import PADDING
from pyspark_mysql_cdc_wm.records.arrow_buffers import array_of, bytes_of, view
from pyspark_mysql_cdc_wm.records.json_scalars import put_byte, put_number, put_sextets, put_string, text_size
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from watermark_source.arrow_columns import allocated, is_valid, repeated
from watermark_source.arrow_columns import column as small_column
from watermark_source.errors import UnsupportedFormatError
from watermark_source.machine_code.native import Word, address_of, compiled

_LONGEST_TIME = 24
_MOST_BYTES = 2**31 - 1
_MICROS = 6


def _constant(text: str) -> pa.Scalar:
    return small_column((text,), pa.string())[0]


_NULL, _QUOTE, _NOTHING, _MINUS, _POINT = map(_constant, ("null", '"', "", "-", "."))
_COMMA, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = map(_constant, (",", "{", "}", "[", "]"))


def json_rows(columns: Sequence[tuple[Column, pa.Array]], rows: int) -> pa.Array:
    """Return a text for each of ``rows`` rows; the columns have names.

    Raises:
        UnsupportedFormatError: texts of 2 GB.
    """
    members = ((str(column.name), _texts(column, values)) for column, values in columns)
    return _objects(members) if columns else repeated("{}", pa.string(), rows)


def _objects(members: Iterable[tuple[str, pa.Array]]) -> pa.Array:
    """Return objects of named members, each a column of texts."""
    parts: list[Any] = []
    for number, (name, texts) in enumerate(members):
        shown = json.dumps(name, ensure_ascii=False)
        parts += [_constant(f"{',' if number else '{'}{shown}:"), pc.coalesce(texts, _NULL)]
    return _joined(*parts, _CLOSE)


def _texts(column: Column, values: pa.Array) -> pa.Array:
    """Return the values of a column as JSON texts, null where they are null."""
    kind = values.type
    if column.type is ColumnType.JSON or (column.type is ColumnType.NEWDECIMAL and pa.types.is_string(kind)):
        return values
    if pa.types.is_timestamp(kind):
        return _moments(values, column.precision)
    if pa.types.is_duration(kind):
        return _times(values, column.precision)
    return _plain_texts(values)


def _plain_texts(values: pa.Array) -> pa.Array:  # noqa: PLR0911 - a table of types
    """Return values as JSON texts by their Arrow type."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return _decimals(values, kind.scale)
    if pa.types.is_string(kind):
        return _strings(values)
    if pa.types.is_binary(kind):
        return _base64(values)
    if pa.types.is_date(kind):
        return _joined(_QUOTE, values.cast(pa.string()), _QUOTE)
    if pa.types.is_list(kind):
        return _lists(values)
    if pa.types.is_struct(kind):
        return _structs(values)
    return values.cast(pa.string())


def _joined(*parts: Any) -> pa.Array:
    """Return texts one after another, null where one is."""
    try:
        return pc.binary_join_element_wise(*parts, _NOTHING)
    except pa.ArrowInvalid as problem:
        raise _too_long() from problem


def _too_long() -> UnsupportedFormatError:
    return UnsupportedFormatError("rows of a batch are 2 GB as JSON; leave long columns out (excludeColumns)")


def _decimals(values: pa.Array, scale: int) -> pa.Array:
    """As the server shows them: a digit before the point, ``scale`` after it. Arrow writes small ones as 1E-8."""
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), values.buffers(), -1, values.offset)
    digits = whole.cast(pa.string())
    if not scale:
        return digits
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(digits, "-"), _MINUS, _NOTHING)
    before, after = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    return _joined(sign, before, _POINT, after)


def _moments(values: pa.Array, digits: int) -> pa.Array:
    zoned = values.type.tz is not None
    texts = values.cast(pa.timestamp("us")) if not zoned else values.view(pa.timestamp("us"))
    cut = _MICROS - digits if digits else _MICROS + 1
    shown = texts.cast(pa.string())
    if cut:
        shown = pc.utf8_slice_codeunits(shown, 0, -cut)
    return _joined(_QUOTE, shown, _constant('Z"') if zoned else _QUOTE)


def _lists(values: pa.Array) -> pa.Array:
    offsets = view(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].copy()
    members = [_plain_texts(values.values)]
    made = array_of(pa.list_(pa.string()), is_valid(values), pa.py_buffer(offsets), children=members)
    return _joined(_OPEN_LIST, pc.binary_join(made, _COMMA), _CLOSE_LIST)


def _structs(values: pa.Array) -> pa.Array:
    whole = _objects((field.name, _plain_texts(values.field(i))) for i, field in enumerate(values.type))
    return pc.if_else(values.is_valid(), whole, pa.nulls(1, pa.string())[0])


def _written(values: pa.Array, size: int, write: Callable[[Any, Any], None]) -> pa.Array:
    """Return a column of texts of ``size`` bytes in all, which ``write`` puts at offsets of a memory."""
    if size > _MOST_BYTES:
        raise _too_long()
    offsets, offsets_view = allocated(len(values) + 1, np.int32)
    content, content_view = allocated(size + 2 * PADDING, np.uint8)
    write(offsets_view, content_view)
    return array_of(pa.string(), is_valid(values), offsets, content)


@compiled("int64(uint8[::1], int32[::1])")
def _quoted_size(array: Word, offsets: Word) -> Word:
    data = address_of(array)
    total = np.int64(0)
    for row in range(offsets.shape[0] - 1):
        total += text_size(data, np.int64(offsets[row]), np.int64(offsets[row + 1]) - np.int64(offsets[row]))
    return total


@compiled("void(uint8[::1], int32[::1], int32[::1], uint8[::1])")
def _quote(array: Word, offsets: Word, new_offsets: Word, out: Word) -> None:
    data = address_of(array)
    end = np.int64(0)
    new_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        size = np.int64(offsets[row + 1]) - np.int64(offsets[row])
        end = put_string(data, np.int64(offsets[row]), size, out, end)
        new_offsets[row + 1] = end


def _strings(values: pa.Array) -> pa.Array:
    data, offsets = bytes_of(values)
    return _written(values, int(_quoted_size(data, offsets)), lambda ends, out: _quote(data, offsets, ends, out))


@compiled("void(uint8[::1], int32[::1], int32[::1], uint8[::1])")
def _encode(array: Word, offsets: Word, new_offsets: Word, out: Word) -> None:
    data = address_of(array)
    end = np.int64(0)
    new_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        end = put_byte(out, end, ord('"'))
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        while at < stop:
            end = put_sextets(data, at, stop - at, out, end)
            at += 3
        end = put_byte(out, end, ord('"'))
        new_offsets[row + 1] = end


def _base64(values: pa.Array) -> pa.Array:
    data, offsets = bytes_of(values)
    size = int((4 * ((np.diff(offsets.astype(np.int64)) + 2) // 3) + 2).sum())
    return _written(values, size, lambda ends, out: _encode(data, offsets, ends, out))


@compiled("void(int64[::1], int64, int32[::1], uint8[::1])")
def _write_times(micros: Word, digits: Word, offsets: Word, out: Word) -> None:
    """Hours of at least two digits, minutes, seconds, and ``digits`` digits of a fraction, in quotes."""
    end = np.int64(0)
    offsets[0] = 0
    for row in range(micros.shape[0]):
        value = np.int64(micros[row])
        end = put_byte(out, end, ord('"'))
        if value < 0:
            end = put_byte(out, end, ord("-"))
            value = -value
        seconds = value // 1_000_000
        end = put_number(out, end, np.uint64(seconds // 3600), np.int64(2))
        out[end] = ord(":")
        end = put_number(out, end + 1, np.uint64(seconds // 60 % 60), np.int64(2))
        out[end] = ord(":")
        end = put_number(out, end + 1, np.uint64(seconds % 60), np.int64(2))
        if digits > 0:
            fraction = value % 1_000_000
            for _ in range(6 - digits):
                fraction //= 10
            out[end] = ord(".")
            end = put_number(out, end + 1, np.uint64(fraction), digits)
        end = put_byte(out, end, ord('"'))
        offsets[row + 1] = end


def _times(values: pa.Array, digits: int) -> pa.Array:
    micros = view(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)].copy()
    # Under a null anything may lie.
    micros[~is_valid(values)] = 0
    return _written(values, _LONGEST_TIME * len(values), lambda ends, out: _write_times(micros, digits, ends, out))
