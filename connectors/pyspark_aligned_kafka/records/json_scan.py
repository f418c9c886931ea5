"""Where the value at a path lies in JSON documents (RFC 8259), one compiled pass that builds no tree.

A document is read to its end and must be JSON throughout, as for ``json.loads``: of members with one name the last one
counts, and that is known at the end only. Read as UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from pyspark_aligned_kafka.records.json_path import JsonPath
from pyspark_aligned_kafka.records.json_strings import HAS_ESCAPES, same_text, text_end, utf8_mark
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

DEPTH = 1_000
"""Objects and arrays within each other; a document that goes deeper is not read, nor is it by ``json.loads``."""


class JsonKind(IntEnum):
    """What is at the path."""

    NO_DOCUMENT = 0
    """The field is null."""
    NO_JSON = 1
    NOTHING = 2
    """The document has no such member."""
    TEXT = 3
    """A string; its place is that of what is between the quotes."""
    ESCAPED = 4
    """A string with escapes."""
    NUMBER = 5
    OTHER = 6
    """An object, an array, true, false, null, or one of the numbers that JSON does not have (NaN, Infinity)."""


NO_DOCUMENT, NO_JSON, NO_MEMBER, PLAIN_TEXT, ESCAPED_TEXT, NUMBER, OTHER = (np.int64(f.value) for f in JsonKind)
"""The same for compiled code."""
_ARRAY, _OBJECT, _ON_PATH = 0, 1, 2
# What has to come next.
_VALUE, _VALUE_OR_END, _NAME, _NAME_OR_END, _COMMA_OR_END = range(5)
_SPACE, _TAB, _LINE, _RETURN = 0x20, 0x09, 0x0A, 0x0D
_QUOTE, _COMMA, _COLON, _MINUS, _PLUS, _DOT, _ZERO, _NINE = (ord(c) for c in '",:-+.09')
_OPEN, _CLOSE, _OPEN_ARRAY, _CLOSE_ARRAY = (ord(c) for c in "{}[]")


def _packed(word: str) -> int:
    return int.from_bytes(word.encode(), "little")


_TRUE, _FALSE, _NULL = (_packed(w) for w in ("true", "alse", "null"))
_NAN, _INFI, _NITY = (_packed(w) for w in ("NaN", "Infi", "nity"))


@inlined
def after_space(data: Word, at: Word, stop: Word) -> Word:
    """Return where the next byte is that is no blank."""
    while at < stop:
        c = byte_at(data, at)
        if c not in (_SPACE, _LINE, _RETURN, _TAB):
            break
        at += 1
    return at


@inlined
def is_digit(data: Word, at: Word, stop: Word) -> Word:
    """Return whether there is a digit."""
    return at < stop and _ZERO <= byte_at(data, at) <= _NINE


@inlined
def _after_digits(data: Word, at: Word, stop: Word) -> Word:
    while is_digit(data, at, stop):
        at += 1
    return at


@inlined
def number_end(data: Word, at: Word, stop: Word) -> Word:
    """Return the end of the number that begins with a minus or a digit, -1 if it is none."""
    if byte_at(data, at) == _MINUS:
        at += 1
    if not is_digit(data, at, stop):
        return np.int64(-1)
    at = at + 1 if byte_at(data, at) == _ZERO else _after_digits(data, at, stop)
    if at < stop and byte_at(data, at) == _DOT:
        if not is_digit(data, at + 1, stop):
            return np.int64(-1)
        at = _after_digits(data, at + 1, stop)
    if at < stop and byte_at(data, at) | 0x20 == ord("e"):
        at += 1
        if at < stop and (byte_at(data, at) == _MINUS or byte_at(data, at) == _PLUS):
            at += 1
        if not is_digit(data, at, stop):
            return np.int64(-1)
        at = _after_digits(data, at, stop)
    return at


@inlined
def _is_word(data: Word, at: Word, stop: Word, word: Word, size: Word) -> Word:
    if size > stop - at:
        return False
    found = np.int64(0)
    for i in range(size):
        found |= byte_at(data, at + i) << (8 * i)
    return found == word


@inlined
def word_end(data: Word, at: Word, stop: Word) -> Word:
    """Return the end of a literal, -1 if it is none; NaN and the infinities are among them, as in Python."""
    if _is_word(data, at, stop, _TRUE, 4) or _is_word(data, at, stop, _NULL, 4):
        return at + 4
    if byte_at(data, at) == ord("f") and _is_word(data, at + 1, stop, _FALSE, 4):
        return at + 5
    if _is_word(data, at, stop, _NAN, 3):
        return at + 3
    if byte_at(data, at) == _MINUS:
        at += 1
    if _is_word(data, at, stop, _INFI, 4) and _is_word(data, at + 4, stop, _NITY, 4):
        return at + 8
    return np.int64(-1)


@inlined
def _scan(  # noqa: PLR0911, PLR0912, PLR0915, PLR0917 - one pass over the document is the point of it
    data: Word,
    start: Word,
    stop: Word,
    names: Word,
    name_ends: Word,
    elements: Word,
    steps: Word,
    stack: Word,
    counts: Word,
) -> tuple[Word, Word, Word]:
    """Return what is at the path, where it begins, and its size."""
    nothing = np.int64(0)
    kind, found_at, found_size = NO_MEMBER, nothing, nothing
    at = after_space(data, utf8_mark(data, start, stop), stop)
    depth = 0
    expected = _VALUE
    # Whether the value that comes is at the path, or an object or array that leads there.
    is_it, leads_there = steps == 0, steps > 0
    while True:
        if at >= stop:
            return NO_JSON, nothing, nothing
        c = byte_at(data, at)
        if expected == _NAME or (expected == _NAME_OR_END and c != _CLOSE):
            if c != _QUOTE:
                return NO_JSON, nothing, nothing
            end, flags = text_end(data, at + 1, stop)
            if end < 0:
                return NO_JSON, nothing, nothing
            is_it = leads_there = False
            if stack[depth] & _ON_PATH:
                begin = name_ends[depth - 2] if depth > 1 else 0
                if same_text(data, at + 1, end - 1, flags & HAS_ESCAPES, names + begin, name_ends[depth - 1] - begin):
                    # The last one of a name counts: what an earlier one held is forgotten.
                    kind = NO_MEMBER
                    is_it, leads_there = depth == steps, depth < steps
            at = after_space(data, end, stop)
            if at >= stop or byte_at(data, at) != _COLON:
                return NO_JSON, nothing, nothing
            at = after_space(data, at + 1, stop)
            expected = _VALUE
            continue
        if expected == _VALUE or (expected == _VALUE_OR_END and c != _CLOSE_ARRAY):
            if c in (_OPEN, _OPEN_ARRAY):
                if depth == DEPTH:
                    return NO_JSON, nothing, nothing
                if is_it:
                    kind, found_at = OTHER, at
                depth += 1
                kind_of_it = _ARRAY if c == _OPEN_ARRAY else _OBJECT
                if leads_there and (elements[depth - 1] < 0) == (c == _OPEN):
                    kind_of_it |= _ON_PATH
                stack[depth] = kind_of_it
                expected = _VALUE_OR_END if c == _OPEN_ARRAY else _NAME_OR_END
                is_it = leads_there = False
                if kind_of_it == _ARRAY | _ON_PATH:
                    counts[depth] = 0
                    if elements[depth - 1] == 0:
                        is_it, leads_there = depth == steps, depth < steps
                at = after_space(data, at + 1, stop)
                continue
            begin = at
            this = OTHER
            if c == _QUOTE:
                at, flags = text_end(data, at + 1, stop)
                this = ESCAPED_TEXT if flags & HAS_ESCAPES else PLAIN_TEXT
            elif _ZERO <= c <= _NINE or (c == _MINUS and is_digit(data, at + 1, stop)):
                at = number_end(data, at, stop)
                this = NUMBER
            else:
                at = word_end(data, at, stop)
            if at < 0:
                return NO_JSON, nothing, nothing
            if is_it:
                quotes = this in (PLAIN_TEXT, ESCAPED_TEXT)
                kind, found_at, found_size = this, begin + quotes, at - begin - 2 * quotes
        else:
            # The end of a container, or what is behind a value.
            is_object = depth > 0 and stack[depth] & _OBJECT
            if c == _COMMA and expected == _COMMA_OR_END and depth > 0:
                expected = _NAME if is_object else _VALUE
                at = after_space(data, at + 1, stop)
                is_it = leads_there = False
                if stack[depth] == _ARRAY | _ON_PATH:
                    counts[depth] += 1
                    if counts[depth] == elements[depth - 1]:
                        is_it, leads_there = depth == steps, depth < steps
                continue
            if depth == 0 or c != (_CLOSE if is_object else _CLOSE_ARRAY):
                return NO_JSON, nothing, nothing
            depth -= 1
            at += 1
        is_it = leads_there = False
        at = after_space(data, at, stop)
        expected = _COMMA_OR_END
        if depth == 0:
            return (kind, found_at, found_size) if at == stop else (NO_JSON, nothing, nothing)


@compiled(
    "void(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1],"
    " int64[:, ::1])"
)
def _scan_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    starts: Word,
    sizes: Word,
    names: Word,
    name_ends: Word,
    elements: Word,
    stack: Word,
    counts: Word,
    found: Word,
) -> None:
    data, text = address_of(array), address_of(names)
    steps = name_ends.shape[0]
    for row in range(starts.shape[0]):
        if sizes[row] < 0:
            found[0, row] = NO_DOCUMENT
            continue
        found[0, row], found[1, row], found[2, row] = _scan(
            data, starts[row], starts[row] + sizes[row], text, name_ends, elements, steps, stack, counts
        )


class JsonScan:
    """Finds what is at one path. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_counts", "_elements", "_ends", "_names", "_stack")

    def __init__(self, path: JsonPath) -> None:
        # A step by a name has the element -1, and one by a number an empty name.
        names = [step.encode() if isinstance(step, str) else b"" for step in path.steps]
        self._elements = np.array([-1 if isinstance(step, str) else step for step in path.steps], np.int64)
        # Compiled code takes the address of an array that has no byte, too.
        self._names = np.frombuffer(bytearray(b"".join(names) or b"\0"), np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._stack = np.zeros(DEPTH + 1, np.uint8)
        self._counts = np.zeros(len(path.steps) + 1, np.int64)

    def find(self, data: Bytes, starts: Longs, sizes: Longs) -> Longs:
        """Return for each document what is at the path (``JsonKind``), where its text begins in ``data``, and its size.

        These are the three rows of what is returned.

        Args:
            data: the bytes.
            starts: where each document begins.
            sizes: its bytes, -1 for null.
        """
        found = np.zeros((3, len(starts)), np.int64)
        _scan_all(data, starts, sizes, self._names, self._ends, self._elements, self._stack, self._counts, found)
        return found
