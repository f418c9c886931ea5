"""JSON columns of partial updates: what was changed, done to the text of the row image before.

Layout (json_diff.h): differences one after another, each an operation (1: 0 replace, 1 insert, 2 remove), a path
(length-encoded), and, unless it removes, a value (length-encoded, in MySQL's binary form). They apply in order.
A path is ``$`` and legs: ``.name``, ``."any text"``, ``[3]``, ``[last-1]``. Members of an object lie in the order of
their names' lengths in bytes, those of one length in that of their bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, lenenc_at
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, array_of, bytes_of
from pyspark_mysql_cdc_wm.records.json_scalars import put_byte
from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from watermark_source.errors import CorruptDataError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

# Places in a JSON text as the server writes it, found by MySQL's paths. Between a name and its value are ``: ``,
# between members ``, ``; nowhere else is white space outside of strings.


_NOWHERE = np.int64(-1)
"""A text or a path without a value."""

_LAST = np.frombuffer(b"last", np.uint8)
_BYTES = dict(zip(b'"\\bfnrt/', b'"\\\b\f\n\r\t/', strict=True))
_LETTERS = np.array([_BYTES.get(letter, 0) for letter in range(256)], np.uint8)


@inlined
def _after_string(text: Word, at: Word, stop: Word) -> Word:
    """Where the string that begins at ``at`` ends."""
    at += 1
    while at < stop:
        byte = text[at]
        if byte == ord('"'):
            return at + 1
        at += 2 if byte == ord("\\") else 1
    return _NOWHERE


@inlined
def _after_value(text: Word, at: Word, stop: Word) -> Word:
    """Where the value that begins at ``at`` ends."""
    depth = 0
    while at < stop:
        byte = text[at]
        if byte == ord('"'):
            at = _after_string(text, at, stop)
            if at < 0:
                return _NOWHERE
        elif byte == ord("{") or byte == ord("["):
            depth += 1
            at += 1
        elif byte == ord("}") or byte == ord("]"):
            if depth == 0:
                return at
            depth -= 1
            at += 1
        elif depth == 0 and byte == ord(","):
            return at
        else:
            at += 1
            continue
        if depth == 0:
            return at
    return at if depth == 0 else _NOWHERE


@inlined
def _after_leg(path: Word, at: Word, stop: Word) -> Word:
    """Where the leg of a path that begins at ``at`` ends."""
    if path[at] == ord("["):
        while at < stop:
            at += 1
            if path[at - 1] == ord("]"):
                return at
        return _NOWHERE
    if path[at] != ord(".") or at + 1 >= stop:
        return _NOWHERE
    at += 1
    if path[at] == ord('"'):
        return _after_string(path, at, stop)
    while at < stop and path[at] != ord(".") and path[at] != ord("["):
        at += 1
    return at


@inlined
def _last_leg(path: Word, at: Word, stop: Word) -> Word:
    """Where the last leg of a path begins, or ``_NOWHERE``."""
    leg = _NOWHERE
    while at < stop:
        leg = at
        at = _after_leg(path, at, stop)
        if at < 0:
            return _NOWHERE
    return leg


@inlined
def _name_of(path: Word, leg: Word, stop: Word) -> tuple[Word, Word]:
    """Where a leg's name lies, without quotes."""
    if path[leg + 1] == ord('"'):
        return leg + 2, stop - 1
    return leg + 1, stop


@inlined
def _index(path: Word, leg: Word, stop: Word, count: Word) -> tuple[Word, Word]:
    """Whether there is a number in a leg, and which: one told from the last of ``count`` cells may be below 0."""
    at = leg + 1
    stop -= 1
    from_last = False
    if stop - at >= 4 and path[at] == _LAST[0]:
        for i in range(4):
            if path[at + i] != _LAST[i]:
                return False, np.int64(0)
        at += 4
        from_last = True
        if at < stop:
            if path[at] != ord("-"):
                return False, np.int64(0)
            at += 1
    elif at == stop:
        return False, np.int64(0)
    number = np.int64(0)
    while at < stop:
        digit = np.int64(path[at]) - ord("0")
        if digit < 0 or digit > 9 or number > 1 << 40:
            return False, np.int64(0)
        number = number * 10 + digit
        at += 1
    return True, count - 1 - number if from_last else number


@inlined
def _unescaped(text: Word, at: Word) -> tuple[Word, Word]:
    """The byte that begins at ``at`` of a string, and where the next one does. Only control codes have numbers."""
    byte = np.int64(text[at])
    if byte != ord("\\"):
        return byte, at + 1
    if text[at + 1] != ord("u"):
        return np.int64(_LETTERS[text[at + 1]]), at + 2
    value = np.int64(0)
    for i in range(2, 6):
        digit = np.int64(text[at + i])
        value = value * 16 + (digit - ord("0") if digit <= ord("9") else (digit | 0x20) - ord("a") + 10)
    return value, at + 6


@inlined
def _length(text: Word, at: Word, stop: Word) -> Word:
    size = np.int64(0)
    while at < stop:
        _, at = _unescaped(text, at)
        size += 1
    return size


@inlined
def _compared(  # noqa: PLR0917 - compiled
    one: Word, at: Word, stop: Word, other: Word, other_at: Word, other_stop: Word
) -> Word:
    """Below 0, 0, or above, as the server orders names: by length, then by bytes."""
    difference = _length(one, at, stop) - _length(other, other_at, other_stop)
    while difference == 0 and at < stop and other_at < other_stop:
        byte, at = _unescaped(one, at)
        other_byte, other_at = _unescaped(other, other_at)
        difference = byte - other_byte
    return difference


@inlined
def _cells(text: Word, at: Word, stop: Word) -> Word:
    """How many values an array has."""
    count = np.int64(0)
    at += 1
    while at < stop - 1:
        at = _after_value(text, at, stop - 1)
        if at < 0:
            return _NOWHERE
        count += 1
        at += 2
    return count


@inlined
def _child(  # noqa: PLR0911, PLR0917 - compiled
    text: Word, at: Word, stop: Word, path: Word, leg: Word, leg_stop: Word
) -> tuple[Word, Word, Word, Word]:
    """Of the value from ``at`` to ``stop``: where the member that a leg names begins, where its value begins and ends.

    And where a new member of the leg's name would begin. ``_NOWHERE`` each if there is none.
    """
    if path[leg] == ord("["):
        if text[at] != ord("["):
            return _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
        count = _cells(text, at, stop)
        is_number, wanted = _index(path, leg, leg_stop, count)
        if count < 0 or not is_number:
            return _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
        if wanted < 0:
            return _NOWHERE, _NOWHERE, _NOWHERE, at + 1
        here = at + 1
        for _ in range(min(wanted, count)):
            here = _after_value(text, here, stop - 1) + 2
        if wanted >= count:
            return _NOWHERE, _NOWHERE, _NOWHERE, stop - 1
        return here, here, _after_value(text, here, stop - 1), here
    if text[at] != ord("{"):
        return _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
    name, name_stop = _name_of(path, leg, leg_stop)
    here = at + 1
    while here < stop - 1:
        value = _after_string(text, here, stop - 1)
        if text[here] != ord('"') or value < 0:
            return _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
        order = _compared(text, here + 1, value - 1, path, name, name_stop)
        if order > 0:
            return _NOWHERE, _NOWHERE, _NOWHERE, here
        value += 2
        value_stop = _after_value(text, value, stop - 1)
        if value_stop < 0:
            return _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
        if order == 0:
            return here, value, value_stop, _NOWHERE
        here = value_stop + 2
    return _NOWHERE, _NOWHERE, _NOWHERE, stop - 1


@inlined
def _seek(  # noqa: PLR0917 - compiled
    text: Word, at: Word, stop: Word, path: Word, leg: Word, path_stop: Word
) -> tuple[Word, Word]:
    """Return where the value of a path begins and ends; ``_NOWHERE`` if there is none.

    What is no array counts as one of itself, as in the server.
    """
    while leg < path_stop:
        leg_stop = _after_leg(path, leg, path_stop)
        if leg_stop < 0:
            return _NOWHERE, _NOWHERE
        is_wrapped = path[leg] == ord("[") and text[at] != ord("[")
        if is_wrapped:
            is_number, wanted = _index(path, leg, leg_stop, np.int64(1))
            if not is_number or wanted != 0:
                return _NOWHERE, _NOWHERE
        else:
            _, at, stop, _ = _child(text, at, stop, path, leg, leg_stop)
            if at < 0:
                return _NOWHERE, _NOWHERE
        leg = leg_stop
    return at, stop


# The operations of each row, and what they do to its text.


_REPLACE, _INSERT, _REMOVE = range(3)

# An operation: of which row, what it does, where its path and its value lie.
_ROW, _KIND, _PATH, _PATH_SIZE, _VALUE, _VALUE_SIZE = range(6)
_PUNCTUATION = len('"": , ')


@compiled("int64(uint8[::1], int32[::1], int32[::1], uint8[::1], int64[:, ::1])")
def _find(array: Word, starts: Word, sizes: Word, diffs: Word, found: Word) -> Word:
    """Find the operations of all rows, as many as there is room for; how many there are, -1 for bytes that are none."""
    data = address_of(array)
    count = np.int64(0)
    for row in range(starts.shape[0]):
        if not diffs[row] or starts[row] < 0:
            continue
        at = np.int64(starts[row])
        stop = at + sizes[row]
        while at < stop:
            kind = byte_at(data, at)
            size, path = lenenc_at(data, at + 1, stop)
            if kind > _REMOVE or path < 0 or size < 0 or size > stop - path:
                return np.int64(-1)
            at = path + size
            value, value_size = np.int64(-1), np.int64(0)
            if kind != _REMOVE:
                value_size, value = lenenc_at(data, at, stop)
                if value < 0 or value_size < 0 or value_size > stop - value:
                    return np.int64(-1)
                at = value + value_size
            if count < found.shape[0]:
                found[count, _ROW], found[count, _KIND] = row, kind
                found[count, _PATH], found[count, _PATH_SIZE] = path, size
                found[count, _VALUE], found[count, _VALUE_SIZE] = value, value_size
            count += 1
    return count


@inlined
def _copied(source: Word, begin: Word, stop: Word, out: Word, end: Word) -> Word:
    for i in range(begin, stop):
        out[end] = source[i]
        end += 1
    return end


@inlined
def _done(  # noqa: PLR0911, PLR0917 - arrays in, arrays out; compiled code has no exceptions
    text: Word, size: Word, array: Word, operation: Word, values: Word, begin: Word, stop: Word, out: Word
) -> Word:
    """Write ``text`` with an operation done to it, whose value lies in ``values``; bytes written, or ``_NOWHERE``."""
    path = operation[_PATH]
    path_stop = path + operation[_PATH_SIZE]
    kind = operation[_KIND]
    if path < path_stop and array[path] == ord("$"):
        path += 1
    leg = path_stop if kind == _REPLACE else _last_leg(array, path, path_stop)
    if leg < 0:
        return _NOWHERE
    first, last = _seek(text, np.int64(0), size, array, path, leg)
    if first < 0:
        return _NOWHERE
    if kind == _REPLACE:
        end = _copied(text, np.int64(0), first, out, np.int64(0))
        end = _copied(values, begin, stop, out, end)
        return _copied(text, last, size, out, end)
    member, _, member_stop, place = _child(text, first, last, array, leg, path_stop)
    if kind == _REMOVE:
        if member < 0:
            return _NOWHERE
        # With it goes the comma to a neighbour.
        if text[member_stop] == ord(","):
            member_stop += 2
        elif member > first + 1:
            member -= 2
        end = _copied(text, np.int64(0), member, out, np.int64(0))
        return _copied(text, member_stop, size, out, end)
    if place < 0:
        return _NOWHERE
    end = _copied(text, np.int64(0), place, out, np.int64(0))
    is_last = place == last - 1
    if is_last and place > first + 1:
        end = put_byte(out, put_byte(out, end, ord(",")), ord(" "))
    if array[leg] == ord("."):
        name, name_stop = _name_of(array, leg, path_stop)
        end = _copied(array, name, name_stop, out, put_byte(out, end, ord('"')))
        end = put_byte(out, put_byte(out, put_byte(out, end, ord('"')), ord(":")), ord(" "))
    end = _copied(values, begin, stop, out, end)
    if not is_last:
        end = put_byte(out, put_byte(out, end, ord(",")), ord(" "))
    return _copied(text, place, size, out, end)


@compiled(
    "int64(uint8[::1], uint8[::1], int64[:, ::1], int32[::1], uint8[::1], int32[::1], uint8[::1], int32[::1],"
    " uint8[::1], uint8[:, ::1])"
)
def _patch(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    diffs: Word,
    operations: Word,
    value_offsets: Word,
    values: Word,
    offsets: Word,
    texts: Word,
    new_offsets: Word,
    out: Word,
    scratch: Word,
) -> Word:
    """Write all texts, those of partial updates from the text of the row before; the bytes written, or ``_NOWHERE``."""
    end = np.int64(0)
    new_offsets[0] = 0
    operation = 0
    for row in range(diffs.shape[0]):
        if not diffs[row]:
            end = _copied(texts, np.int64(offsets[row]), np.int64(offsets[row + 1]), out, end)
            new_offsets[row + 1] = end
            continue
        now = np.int64(0)
        size = _copied(texts, np.int64(offsets[row - 1]), np.int64(offsets[row]), scratch[now], np.int64(0))
        while operation < operations.shape[0] and operations[operation, _ROW] == row:
            begin, stop = np.int64(value_offsets[operation]), np.int64(value_offsets[operation + 1])
            size = _done(scratch[now], size, array, operations[operation], values, begin, stop, scratch[1 - now])
            if size < 0:
                return _NOWHERE
            now = 1 - now
            operation += 1
        end = _copied(scratch[now], np.int64(0), size, out, end)
        new_offsets[row + 1] = end
    return end


def patched_texts(values: Values, diffs: Bytes) -> pa.Array:
    """Return a column of JSON texts; where ``diffs`` is 1 the value is what changed in the row before.

    Raises:
        CorruptDataError: a document, or a change of one, that cannot be.
    """
    # A null value is null, whatever the bit of its column is.
    diffs = diffs & (values.starts >= 0).view(np.uint8)
    is_diff = diffs.view(np.bool_)
    operations = _operations(values, diffs)
    whole = json_texts(
        Values(
            values.data, np.where(is_diff, np.int32(-1), values.starts), np.where(is_diff, np.int32(0), values.sizes)
        )
    )
    before = np.flatnonzero(is_diff) - 1
    if (before < 0).any() or is_diff[before].any() or (values.starts[before] < 0).any():
        raise CorruptDataError("a change of a JSON document that is not there")
    places, lengths = operations[:, (_VALUE, _VALUE_SIZE)].astype(np.int32).T
    news = json_texts(Values(values.data, np.ascontiguousarray(places), np.ascontiguousarray(lengths)))
    texts, offsets = bytes_of(whole)
    value_texts, value_offsets = bytes_of(news)
    room = np.diff(offsets).astype(np.int64)
    room[is_diff] = room[before]
    grown = operations[:, _PATH_SIZE] + _PUNCTUATION + np.diff(value_offsets)
    np.add.at(room, operations[:, _ROW], grown)
    out = np.empty(int(room.sum()) + PADDING, np.uint8)
    new_offsets = np.empty_like(offsets)
    scratch = np.empty((2, int(room.max()) + PADDING), np.uint8)
    size = _patch(values.data, diffs, operations, value_offsets, value_texts, offsets, texts, new_offsets, out, scratch)
    if size < 0:
        raise CorruptDataError("a change of a JSON document at a place that it does not have")
    return array_of(pa.string(), values.starts >= 0, pa.py_buffer(new_offsets), pa.py_buffer(out[:size].copy()))


def _operations(values: Values, diffs: Bytes) -> np.ndarray:
    found = np.empty((int(np.count_nonzero(diffs)), 6), np.int64)
    while True:
        count = _find(values.data, values.starts, values.sizes, diffs, found)
        if count < 0:
            raise CorruptDataError("a change of a JSON document that does not fit its value")
        if count <= len(found):
            return found[:count]
        found = np.empty((count, 6), np.int64)
