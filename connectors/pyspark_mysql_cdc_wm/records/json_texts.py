"""Columns of JSON: from MySQL's binary form to the text that the server itself shows.

Layout (json_binary.h): a type byte, then the value. A container: count and size (2 bytes each, in a large one 4), for
objects an entry a key (offset 2 or 4, size 2), an entry a value (type 1, offset or, if it fits, the value itself 2 or
4), then what the offsets, counted from the container's beginning, lead to.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Fault, Ints, uint16_at, uint_at
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, array_of
from pyspark_mysql_cdc_wm.records.json_scalars import PLACE, put_byte, put_number, put_scalar, put_string
from watermark_source.errors import CorruptDataError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled

_DEEPEST = 100
_LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 1, 2, 3
_LITERAL, _UINT16, _INT32, _UINT32 = 4, 6, 7, 8
# Text of a container's entries, and escapes, take at most so many bytes for each of the binary form's.
_EXPANSION = 6
_SMALLEST_ROOM = 48
_LONGEST_DOUBLE = 32

# A container on the way down: where it begins and ends, is it an object, bytes of its numbers, entries, entries done.
_BASE, _LIMIT, _OBJECT, _WIDTH, _COUNT, _DONE = range(6)


@compiled(
    "Tuple((int64, int64, int64))"
    "(uint8[::1], int32[::1], int32[::1], int64[:, ::1], int32[::1], uint8[::1], uint64[::1])"
)
def _write(  # noqa: PLR0911, PLR0912, PLR0915, PLR0917 - one pass over the documents
    array: Word, starts: Word, sizes: Word, stack: Word, offsets: Word, out: Word, doubles: Word
) -> tuple[Word, Word, Word]:
    """Write texts with places kept for floating point numbers: ``(fault, bytes, such numbers)``.

    ``stack`` is room for ``_DEEPEST + 2`` containers.
    """
    data = address_of(array)
    end = np.int64(0)
    reals = np.int64(0)
    room = np.int64(out.shape[0])
    offsets[0] = 0
    for row in range(starts.shape[0]):
        start = np.int64(starts[row])
        if start < 0:
            offsets[row + 1] = end
            continue
        limit = start + sizes[row]
        if limit == start:
            # What an ALTER of a column without default leaves behind.
            for byte in (110, 117, 108, 108):
                end = put_byte(out, end, byte)
            offsets[row + 1] = end
            continue
        kind = byte_at(data, start)
        at = start + 1
        depth = 0
        while True:
            if kind <= _LARGE_ARRAY:
                width = np.int64(4) if kind & 1 else np.int64(2)
                if depth > _DEEPEST:
                    return np.int64(Fault.JSON_DEPTH), end, reals
                if limit - at < 2 * width or room - end < _SMALLEST_ROOM:
                    return np.int64(Fault.JSON), end, reals
                count = uint_at(data, at, width)
                size = uint_at(data, at + width, width)
                is_object = kind < _SMALL_ARRAY
                entry = 1 + width + (width + 2 if is_object else 0)
                if size > limit - at or 2 * width + count * entry > size:
                    return np.int64(Fault.JSON), end, reals
                stack[depth, _BASE] = at
                stack[depth, _LIMIT] = at + size
                stack[depth, _OBJECT] = 1 if is_object else 0
                stack[depth, _WIDTH] = width
                stack[depth, _COUNT] = count
                stack[depth, _DONE] = 0
                depth += 1
                end = put_byte(out, end, ord("{") if is_object else ord("["))
            else:
                end, reals = put_scalar(data, kind, at, limit, out, end, doubles, reals)
                if end < 0:
                    return np.int64(Fault.JSON), end, reals
            while depth > 0 and stack[depth - 1, _DONE] == stack[depth - 1, _COUNT]:
                depth -= 1
                if room - end < _SMALLEST_ROOM:
                    return np.int64(Fault.JSON), end, reals
                end = put_byte(out, end, ord("}") if stack[depth, _OBJECT] else ord("]"))
            if depth == 0:
                break
            base, limit = stack[depth - 1, _BASE], stack[depth - 1, _LIMIT]
            width, count, done = stack[depth - 1, _WIDTH], stack[depth - 1, _COUNT], stack[depth - 1, _DONE]
            is_object = stack[depth - 1, _OBJECT] != 0
            stack[depth - 1, _DONE] = done + 1
            if room - end < _SMALLEST_ROOM:
                return np.int64(Fault.JSON), end, reals
            if done:
                end = put_byte(out, end, ord(","))
                end = put_byte(out, end, ord(" "))
            entries = base + 2 * width
            if is_object:
                key = entries + done * (width + 2)
                place, size = uint_at(data, key, width), uint16_at(data, key + width)
                if place + size > limit - base:
                    return np.int64(Fault.JSON), end, reals
                end = put_string(data, base + place, size, out, end)
                if end < 0 or room - end < _SMALLEST_ROOM:
                    return np.int64(Fault.JSON), end, reals
                end = put_byte(out, end, ord(":"))
                end = put_byte(out, end, ord(" "))
                entries += count * (width + 2)
            value = entries + done * (1 + width)
            kind = byte_at(data, value)
            if _LITERAL <= kind <= _UINT16 or (width == 4 and _INT32 <= kind <= _UINT32):
                at = value + 1
            else:
                place = uint_at(data, value + 1, width)
                if place >= limit - base:
                    return np.int64(Fault.JSON), end, reals
                at = base + place
        offsets[row + 1] = end
    return np.int64(Fault.NONE), end, reals


@compiled("int64(uint8[::1], int32[::1], uint8[::1], int32[::1], uint8[::1], int32[::1], uint8[::1])")
def _place_doubles(  # noqa: PLR0912, PLR0915, PLR0917 - arrays in, arrays out
    texts: Word, offsets: Word, numbers: Word, ends: Word, digits: Word, new_offsets: Word, out: Word
) -> Word:
    """Copy texts, numbers put in their places the way MySQL shows them (``my_gcvt``); the number of bytes.

    ``digits`` is room for those of one number, ``_LONGEST_DOUBLE``.
    """
    end = np.int64(0)
    real = np.int64(0)
    new_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        at = np.int64(offsets[row])
        stop = np.int64(offsets[row + 1])
        while at < stop:
            byte = texts[at]
            at += 1
            if byte != PLACE:
                end = put_byte(out, end, byte)
                continue
            # The shortest digits that mean the number, and where its point is.
            here, last = np.int64(ends[real]), np.int64(ends[real + 1])
            real += 1
            count = np.int64(0)
            point = np.int64(-1)
            exponent = np.int64(0)
            while here < last:
                sign = numbers[here]
                here += 1
                if sign == ord("-"):
                    end = put_byte(out, end, sign)
                elif sign == ord("."):
                    point = count
                elif sign == ord("e"):
                    negative = numbers[here] == ord("-")
                    if negative or numbers[here] == ord("+"):
                        here += 1
                    while here < last:
                        exponent = exponent * 10 + (numbers[here] - ord("0"))
                        here += 1
                    if negative:
                        exponent = -exponent
                elif count < _LONGEST_DOUBLE:
                    digits[count] = sign
                    count += 1
            if point < 0:
                point = count
            leading = np.int64(0)
            while leading < count - 1 and digits[leading] == ord("0"):
                leading += 1
            while count > leading + 1 and digits[count - 1] == ord("0"):
                count -= 1
            point += exponent - leading
            size = count - leading
            if size == 1 and digits[leading] == ord("0"):
                point = np.int64(1)
            power = point - 1
            is_plain = -14 <= point <= 15  # MAX_DECPT_FOR_F_FORMAT
            # Zeros are before the digits of a small number, and behind those of a large one; 1e20 has no point.
            first, least = min(np.int64(0), power), point + 1
            if not is_plain:
                first, least, point = np.int64(0), np.int64(1), np.int64(1)
            for i in range(first, max(size, least)):
                if i == point:
                    end = put_byte(out, end, ord("."))
                end = put_byte(out, end, digits[leading + i] if 0 <= i < size else ord("0"))
            if not is_plain:
                end = put_byte(out, end, ord("e"))
                if power < 0:
                    end = put_byte(out, end, ord("-"))
                end = put_number(out, end, np.uint64(abs(power)), np.int64(1))
        new_offsets[row + 1] = end
    return end


def json_texts(values: Values) -> pa.Array:
    """Return a column of JSON texts.

    Raises:
        CorruptDataError: a document that cannot be.
    """
    size = int(values.sizes.sum(dtype=np.int64))
    room = _EXPANSION * size + _SMALLEST_ROOM * (values.rows + 1)
    content = pa.allocate_buffer(room, resizable=True)
    offsets = np.empty(values.rows + 1, np.int32)
    doubles = np.empty(size // 8 + 1, np.uint64)
    stack = np.empty((_DEEPEST + 2, 6), np.int64)
    fault, used, reals = _write(
        values.data, values.starts, values.sizes, stack, offsets, np.frombuffer(content, np.uint8), doubles
    )
    if fault:
        what = "nested deeper than the server allows" if fault == Fault.JSON_DEPTH else "that does not fit its value"
        raise CorruptDataError(f"a JSON document {what}")
    if reals:
        content, offsets = _with_doubles(np.frombuffer(content, np.uint8), offsets, used, doubles[:reals])
    else:
        content = pa.py_buffer(np.frombuffer(content, np.uint8)[:used].copy())
    return array_of(pa.string(), values.starts >= 0, pa.py_buffer(offsets), content)


def _with_doubles(texts: Bytes, offsets: Ints, used: int, doubles: np.ndarray) -> tuple[pa.Buffer, Ints]:
    # Arrow finds the shortest digits, as MySQL does; only their form is another one.
    numbers = pa.Array.from_buffers(pa.float64(), len(doubles), [None, pa.py_buffer(doubles)]).cast(pa.string())
    _, ends, digits = numbers.buffers()
    out = np.empty(used + _LONGEST_DOUBLE * len(doubles) + PADDING, np.uint8)
    new_offsets = np.empty_like(offsets)
    numerals, edges = np.frombuffer(digits, np.uint8), np.frombuffer(ends, np.int32)
    room = np.empty(_LONGEST_DOUBLE, np.uint8)
    size = _place_doubles(texts, offsets, numerals, edges, room, new_offsets, out)
    return pa.py_buffer(out[:size].copy()), new_offsets
