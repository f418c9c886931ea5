"""Columns of text: from the column's character set to UTF-8; and of ENUM and SET, from numbers to such labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.character_sets import (
    AS_THEY_LIE,
    FIRST_BEYOND,
    NO_CHARACTER,
    PAIR_OR_FOUR,
    SINGLE,
    TRIPLE,
    WIDE,
    has_second_codes,
    tables_of,
    tables_of_keys,
    text_of_several,
)
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Fault, Longs, padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, array_of, binary, fixed
from pyspark_mysql_cdc_wm.records.arrow_types import SET_TYPE
from pyspark_mysql_cdc_wm.records.numbers import words
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column
from watermark_source.arrow_columns import allocated
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

_UNKNOWN = ord("?")
_INTERNAL = "utf8mb4"
"""The character set of labels that have none of their own."""


def texts(values: Values, charset: str, *, of_key: bool = False) -> pa.Array:
    """Return a column of text.

    Raises:
        CorruptDataError: half a character, or bytes that are none.
        UnsupportedFormatError: half a surrogate pair, or a value ``of_key`` that has the text of another.
    """
    if charset in AS_THEY_LIE:
        return utf_8(values)
    if charset == "ascii":
        # All of it is, except bytes of MariaDB that are no character.
        column = binary(pa.string(), values)
        if pc.all(pc.string_is_ascii(column)).as_py() is not False:
            return column
    offsets, offsets_view = allocated(values.rows + 1, np.int32)
    # No character takes more than three bytes for each of its own.
    content, content_view = allocated(3 * int(values.sizes.sum(dtype=np.int64)) + PADDING, np.uint8)
    if of_key and has_second_codes(charset):
        if _look_up(values.data, values.starts, values.sizes, *tables_of_keys(charset), offsets_view, content_view):
            texts(values, charset)
            raise text_of_several(charset)
    elif charset not in WIDE:
        if _look_up(values.data, values.starts, values.sizes, *tables_of(charset), offsets_view, content_view):
            raise CorruptDataError(f"bytes outside the character set {charset}")
    elif _widen(values.data, values.starts, values.sizes, *WIDE[charset], offsets_view, content_view):
        raise CorruptDataError(f"text of the character set {charset} with half a character")
    column = array_of(pa.string(), values.starts >= 0, offsets, content)
    return _unicode(column) if charset in WIDE else column


def utf_8(values: Values) -> pa.Array:
    """Return a column of text whose bytes are UTF-8; raises as ``texts``."""
    return _unicode(binary(pa.string(), values))


def _unicode(column: pa.Array) -> pa.Array:
    """Check that a column is of characters: ucs2, and MariaDB's utf8 and utf32, take halves of surrogate pairs too."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as invalid:
        raise UnsupportedFormatError(
            "text with half a surrogate pair (U+D800 to U+DFFF), which is half a character. Give such rows another "
            "text on the server and begin a new query, or leave the column out by the option excludeColumns"
        ) from invalid
    return column


@inlined
def _put(out: Word, end: Word, point: Word) -> Word:
    """Write a code point as UTF-8 and return the position after it."""
    if point < 0x80:
        out[end] = point
        return end + 1
    if point < 0x800:
        out[end] = 0xC0 | point >> 6
        out[end + 1] = 0x80 | (point & 63)
        return end + 2
    if point < 0x10000:
        out[end] = 0xE0 | point >> 12
        out[end + 1] = 0x80 | (point >> 6 & 63)
        out[end + 2] = 0x80 | (point & 63)
        return end + 3
    out[end] = 0xF0 | (point >> 18 & 7)
    out[end + 1] = 0x80 | (point >> 12 & 63)
    out[end + 2] = 0x80 | (point >> 6 & 63)
    out[end + 3] = 0x80 | (point & 63)
    return end + 4


@inlined
def _unit(data: Word, at: Word, width: Word, big: Word) -> Word:
    value = np.int64(0)
    for i in range(width):
        value = value << 8 | byte_at(data, at + (i if big else width - 1 - i))
    return value


@compiled("int64(uint8[::1], int32[::1], int32[::1], int64, boolean, boolean, int32[::1], uint8[::1])")
def _widen(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, sizes: Word, width: Word, big: Word, pairs: Word, offsets: Word, out: Word
) -> Word:
    data = address_of(array)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(starts.shape[0]):
        at = np.int64(starts[row])
        if at >= 0:
            stop = at + sizes[row]
            while at < stop:
                if stop - at < width:
                    return np.int64(Fault.TEXT)
                point = _unit(data, at, width, big)
                at += width
                if pairs and 0xD800 <= point < 0xDC00:
                    if stop - at < width:
                        return np.int64(Fault.TEXT)
                    second = _unit(data, at, width, big)
                    if second < 0xDC00 or second > 0xDFFF:
                        return np.int64(Fault.TEXT)
                    point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00)
                    at += width
                end = _put(out, end, point)
        offsets[row + 1] = end
    return np.int64(Fault.NONE)


@inlined
def _four(fours: Word, first: Word, second: Word, third: Word, fourth: Word) -> Word:
    """Code point of a character of four bytes (GB 18030), which begin characters beyond the table at 0x90 0x30."""
    third -= 0x81
    fourth -= 0x30
    if third < 0 or third >= 126 or fourth < 0 or fourth > 9:
        return np.int64(NO_CHARACTER)
    order = ((first - 0x81) * 10 + second - 0x30) * 1260 + third * 10 + fourth
    if order < fours.shape[0]:
        return np.int64(fours[order])
    point = order - FIRST_BEYOND + 0x10000
    return point if 0x10000 <= point <= 0x10FFFF else np.int64(_UNKNOWN)


@compiled(
    "int64(uint8[::1], int32[::1], int32[::1], uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1],"
    " uint8[::1])"
)
def _look_up(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    starts: Word,
    sizes: Word,
    kinds: Word,
    singles: Word,
    pairs: Word,
    triples: Word,
    fours: Word,
    offsets: Word,
    out: Word,
) -> Word:
    data = address_of(array)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(starts.shape[0]):
        at = np.int64(starts[row])
        if at >= 0:
            stop = at + sizes[row]
            while at < stop:
                first = byte_at(data, at)
                kind = kinds[first]
                point = np.int64(NO_CHARACTER)
                if kind == SINGLE:
                    point = np.int64(singles[first])
                    at += 1
                elif stop - at >= 2:
                    second = byte_at(data, at + 1)
                    if kind == TRIPLE:
                        if stop - at >= 3:
                            point = np.int64(triples[second << 8 | byte_at(data, at + 2)])
                        at += 3
                    elif kind == PAIR_OR_FOUR and 0x30 <= second <= 0x39:
                        if stop - at >= 4:
                            point = _four(fours, first, second, byte_at(data, at + 2), byte_at(data, at + 3))
                        at += 4
                    else:
                        point = np.int64(pairs[first << 8 | second])
                        at += 2
                if point < 0:
                    return np.int64(Fault.TEXT)
                end = _put(out, end, point)
        offsets[row + 1] = end
    return np.int64(Fault.NONE)


# Labels of ENUM and SET, which the table map lists.


def labels_of(column: Column, charsets: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the labels of a column of ENUM or SET as its values show them, ``None`` for another one."""
    if column.labels is None:
        return None
    return tuple(label_column(column.labels, label_charset(column, charsets)).to_pylist())


def label_charset(column: Column, charsets: Mapping[int, str]) -> str:
    """Return the character set of a column's labels, by the number of its collation."""
    # Labels of the character set binary are bytes that are shown as they are.
    if column.collation is None or column.collation == BINARY_COLLATION:
        return _INTERNAL
    return charsets[column.collation]


def label_column(labels: Sequence[bytes], charset: str) -> pa.Array:
    """Return the labels, which are in ``charset``, as text."""
    sizes = np.array([len(label) for label in labels], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    return texts(Values(padded(b"".join(labels)), starts, sizes), charset)


def enums(values: Values, width: int, labels: pa.Array) -> pa.Array:
    """Return a column of labels; ``labels[0]`` is the empty text that stands for a value that was none.

    Raises:
        CorruptDataError: a number without a label.
    """
    found = words(values, width)
    if found.size and int(found.max()) >= len(labels):
        raise CorruptDataError(f"an ENUM of {len(labels) - 1} labels has the number {int(found.max())}")
    return labels.take(fixed(pa.int64(), found, values.starts >= 0))


@compiled("int64(int64[::1], int64, int32[::1])")
def _count(masks: Word, labels: Word, offsets: Word) -> Word:
    """Running counts of the bits set; -1 if one of them has no label."""
    total = 0
    offsets[0] = 0
    for row in range(masks.shape[0]):
        mask = np.uint64(masks[row])
        if labels < 64 and mask >> np.uint64(labels) != 0:
            return np.int64(-1)
        while mask:
            mask &= mask - np.uint64(1)
            total += 1
        offsets[row + 1] = total
    return np.int64(total)


@compiled("void(int64[::1], int32[::1])")
def _members(masks: Word, members: Word) -> None:
    at = 0
    for row in range(masks.shape[0]):
        mask = np.uint64(masks[row])
        bit = 0
        while mask:
            if mask & np.uint64(1):
                members[at] = bit
                at += 1
            mask >>= np.uint64(1)
            bit += 1


def sets(values: Values, width: int, labels: pa.Array) -> pa.Array:
    """Return a column of lists of labels, in the order in which the table lists them.

    Raises:
        CorruptDataError: a bit without a label.
    """
    return labelled_sets(words(values, width), values.starts >= 0, labels)


def labelled_sets(masks: Longs, present: npt.NDArray[np.bool_], labels: pa.Array) -> pa.Array:
    """Return the lists of labels whose bits are set, null where nothing is ``present``; raises as ``sets``."""
    offsets, offsets_view = allocated(len(masks) + 1, np.int32)
    total = _count(masks, len(labels), offsets_view)
    if total < 0:
        raise CorruptDataError(f"a SET of {len(labels)} labels has a bit above them")
    members = np.empty(total, np.int32)
    _members(masks, members)
    items = labels.take(fixed(pa.int32(), members, np.ones(total, np.bool_)))
    return array_of(SET_TYPE, present, offsets, children=[items])
