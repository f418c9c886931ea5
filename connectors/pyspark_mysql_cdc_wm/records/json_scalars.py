"""Values of MySQL's binary JSON that hold no others, and keys: written as text in compiled code."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.wire import uint_at
from pyspark_mysql_cdc_wm.records.arrow_types import GROUP_BYTES
from pyspark_mysql_cdc_wm.records.numbers import decimal_text
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from watermark_source.machine_code.native import Word, byte_at, inlined, word_at

PLACE = 1
"""Stands in a text for a floating point number; no JSON text has this byte."""

_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_OPAQUE = 15
_WIDTHS = np.array([0, 0, 0, 0, 1, 2, 2, 4, 4, 8, 8, 8], np.int64)
_WORDS = np.frombuffer(b"null true false", np.uint8)
_BEGIN = np.array([0, 5, 10, 15], np.int64)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_TYPE_WORDS = np.frombuffer(b"base64:type", np.uint8)
_NEWDECIMAL = int(ColumnType.NEWDECIMAL)
_DATE, _TIME = int(ColumnType.DATE), int(ColumnType.TIME)
_DATETIME, _TIMESTAMP = int(ColumnType.DATETIME), int(ColumnType.TIMESTAMP)
_LONGEST_DECIMAL = 81
"""Nine words of nine digits, which the server calculates with; a column has 65."""
_LEAST_ROOM = 40
_NONE = np.int64(-1)
_LETTERS = dict(zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True))
_ESCAPES = np.array([_LETTERS.get(byte, 0) for byte in range(256)], np.uint8)
"""By byte the letter after the backslash; 0 for a byte without one."""


@inlined
def put_byte(out: Word, end: Word, byte: Word) -> Word:
    """Write one byte; the caller has checked that there is room, as for all below unless they say so."""
    out[end] = byte
    return end + 1


@inlined
def put_string(data: Word, at: Word, size: Word, out: Word, end: Word) -> Word:
    """Write text in quotes, escaped as the server does; where it ends, or -1 without room."""
    room = np.int64(out.shape[0])
    if room - end < size + 2:
        return _NONE
    end = put_byte(out, end, ord('"'))
    for i in range(size):
        byte = byte_at(data, at + i)
        if room - end < size - i + 8:
            return _NONE
        if byte >= 0x20 and byte != 0x22 and byte != 0x5C:  # noqa: PLR1714 - compiled
            end = put_byte(out, end, byte)
            continue
        out[end] = ord("\\")
        if _ESCAPES[byte]:
            out[end + 1] = _ESCAPES[byte]
            end += 2
        else:
            out[end + 1], out[end + 2], out[end + 3] = ord("u"), ord("0"), ord("0")
            out[end + 4], out[end + 5] = _HEX[byte >> 4], _HEX[byte & 15]
            end += 6
    out[end] = ord('"')
    return end + 1


@inlined
def text_size(data: Word, at: Word, size: Word) -> Word:
    """Return how many bytes ``put_string`` writes."""
    total = size + 2
    for i in range(size):
        byte = byte_at(data, at + i)
        if byte < 0x20 or byte == 0x22 or byte == 0x5C:  # noqa: PLR1714 - compiled
            total += 1 if _ESCAPES[byte] else 5
    return total


@inlined
def put_sextets(data: Word, at: Word, left: Word, out: Word, end: Word) -> Word:
    """Write the next three bytes, or the one or two that are left, as four letters of base64."""
    three = byte_at(data, at) << 16
    if left > 1:
        three |= byte_at(data, at + 1) << 8
    if left > 2:
        three |= byte_at(data, at + 2)
    out[end], out[end + 1] = _BASE64[three >> 18], _BASE64[three >> 12 & 63]
    out[end + 2] = _BASE64[three >> 6 & 63] if left > 1 else ord("=")
    out[end + 3] = _BASE64[three & 63] if left > 2 else ord("=")
    return end + 4


@inlined
def put_number(out: Word, end: Word, value: Word, least: Word) -> Word:
    """Write a number without a sign (``uint64``) with at least so many digits."""
    count = np.int64(1)
    rest = value // np.uint64(10)
    while rest:
        rest //= np.uint64(10)
        count += 1
    count = max(count, least)
    for i in range(count):
        out[end + count - 1 - i] = ord("0") + value % np.uint64(10)
        value //= np.uint64(10)
    return end + count


@inlined
def _put_signed(out: Word, end: Word, value: Word) -> Word:
    if value < 0:
        out[end] = ord("-")
        return put_number(out, end + 1, np.uint64(-value), np.int64(1))
    return put_number(out, end, np.uint64(value), np.int64(1))


@inlined
def _put_clock(out: Word, end: Word, clock: Word, micros: Word) -> Word:
    end = put_number(out, end, np.uint64(clock >> 12), np.int64(2))
    out[end] = ord(":")
    end = put_number(out, end + 1, np.uint64(clock >> 6 & 63), np.int64(2))
    out[end] = ord(":")
    end = put_number(out, end + 1, np.uint64(clock & 63), np.int64(2))
    out[end] = ord(".")
    return put_number(out, end + 1, np.uint64(micros), np.int64(6))


@inlined
def _put_temporal(out: Word, end: Word, kind: Word, packed: Word) -> Word:
    """In quotes; always six digits of the fraction."""
    end = put_byte(out, end, ord('"'))
    magnitude = abs(packed)
    whole = magnitude >> 24
    micros = magnitude & 0xFFFFFF
    if kind == _TIME:
        if packed < 0:
            end = put_byte(out, end, ord("-"))
        end = _put_clock(out, end, whole & 0x3FFFFF, micros)
    else:
        months = whole >> 22
        end = put_number(out, end, np.uint64(months // 13), np.int64(4))
        out[end] = ord("-")
        end = put_number(out, end + 1, np.uint64(months % 13), np.int64(2))
        out[end] = ord("-")
        end = put_number(out, end + 1, np.uint64(whole >> 17 & 31), np.int64(2))
        if kind != _DATE:
            out[end] = ord(" ")
            end = _put_clock(out, end + 1, whole & 0x1FFFF, micros)
    out[end] = ord('"')
    return end + 1


@inlined
def _put_base64(  # noqa: PLR0917 - compiled
    data: Word, at: Word, size: Word, kind: Word, out: Word, end: Word
) -> Word:
    """Bytes of another type of column; -1 without room."""
    if np.int64(out.shape[0]) - end < size * 4 // 3 + size // 28 + 32:
        return _NONE
    end = put_byte(out, end, ord('"'))
    for byte in _TYPE_WORDS:
        end = put_byte(out, end, byte)
    end = put_number(out, end, np.uint64(kind), np.int64(1))
    end = put_byte(out, end, ord(":"))
    for i in range(0, size, 3):
        if i and i % 57 == 0:
            # The server's encoder breaks lines.
            out[end], out[end + 1] = ord("\\"), ord("n")
            end += 2
        end = put_sextets(data, at + i, size - i, out, end)
    out[end] = ord('"')
    return end + 1


@inlined
def _varlen_at(data: Word, at: Word, limit: Word) -> tuple[Word, Word]:
    """A size in groups of seven bits, the lowest first, and the position after it; -1 if it does not end."""
    size = np.int64(0)
    for i in range(5):
        if at >= limit:
            break
        byte = byte_at(data, at)
        at += 1
        size |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return size, at
    return np.int64(0), _NONE


@inlined
def _put_opaque(  # noqa: PLR0911 - compiled code has no exceptions
    data: Word, at: Word, limit: Word, out: Word, end: Word
) -> Word:
    if at >= limit:
        return _NONE
    kind = byte_at(data, at)
    size, at = _varlen_at(data, at + 1, limit)
    if at < 0 or size > limit - at:
        return _NONE
    if kind == _NEWDECIMAL:
        if size < 3:
            return _NONE
        precision, scale = byte_at(data, at), byte_at(data, at + 1)
        if precision > _LONGEST_DECIMAL or scale > precision or precision == 0:
            return _NONE
        whole = precision - scale
        needed = 4 * (whole // 9 + scale // 9) + GROUP_BYTES[whole % 9] + GROUP_BYTES[scale % 9]
        if size - 2 < needed or np.int64(out.shape[0]) - end < precision + 3:
            return _NONE
        return decimal_text(data, at + 2, precision, scale, out, end)
    if kind == _DATE or kind == _TIME or kind == _DATETIME or kind == _TIMESTAMP:  # noqa: PLR1714, SIM109 - compiled
        if size != 8:
            return _NONE
        return _put_temporal(out, end, kind, uint_at(data, at, np.int64(8)))
    return _put_base64(data, at, size, kind, out, end)


@inlined
def put_scalar(  # noqa: PLR0911, PLR0917 - compiled code has no exceptions
    data: Word, kind: Word, at: Word, limit: Word, out: Word, end: Word, doubles: Word, reals: Word
) -> tuple[Word, Word]:
    """Write a value that is no container: where the text ends, -1 for a fault, and floating point numbers so far.

    A floating point number goes to ``doubles``, and ``PLACE`` into the text.
    """
    if np.int64(out.shape[0]) - end < _LEAST_ROOM or kind > _OPAQUE:
        return _NONE, reals
    if kind == _STRING:
        size, at = _varlen_at(data, at, limit)
        if at < 0 or size > limit - at:
            return _NONE, reals
        return put_string(data, at, size, out, end), reals
    if kind == _OPAQUE:
        return _put_opaque(data, at, limit, out, end), reals
    if kind > _DOUBLE or limit - at < _WIDTHS[kind]:
        return _NONE, reals
    if kind == _DOUBLE:
        if reals == doubles.shape[0]:
            return _NONE, reals
        doubles[reals] = word_at(data, at)
        out[end] = PLACE
        return end + 1, reals + 1
    if kind == _LITERAL:
        which = byte_at(data, at)
        if which > 2:
            return _NONE, reals
        for i in range(_BEGIN[which], _BEGIN[which + 1] - (0 if which == 2 else 1)):
            end = put_byte(out, end, _WORDS[i])
        return end, reals
    width = _WIDTHS[kind]
    value = uint_at(data, at, width)
    if kind == _INT16 or kind == _INT32 or kind == _INT64:  # noqa: PLR1714, SIM109 - compiled
        shift = 64 - 8 * width
        return _put_signed(out, end, (value << shift) >> shift), reals
    return put_number(out, end, np.uint64(value), np.int64(1)), reals
