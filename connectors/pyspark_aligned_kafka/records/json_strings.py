"""Strings of JSON (RFC 8259 §7) in compiled code: where one ends, what its escapes mean, whether two are the same."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, by_byte, byte_at, inlined, same_bytes, word_at

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_FIRST_PRINTED, _FIRST_LONG = 0x20, 0x80
_U = ord("u")
HAS_ESCAPES, HAS_SURROGATES = 1, 2
_ESCAPES = by_byte(b'"\\/bfnrt', b'"\\/\b\f\n\r\t')
"""Characters by the letter behind a backslash."""
_HEX_DIGITS = by_byte(b"0123456789abcdefABCDEF", [*range(16), *range(10, 16)])
# Eight bytes at once, each of them this.
_ONES = np.uint64(0x0101_0101_0101_0101)
_HIGHEST_BITS = np.uint64(0x80) * _ONES
_QUOTES, _BACKSLASHES, _SPACES = (np.uint64(c) * _ONES for c in (_QUOTE, _BACKSLASH, _FIRST_PRINTED))


@inlined
def _are_plain(word: Word) -> Word:
    """Return whether none of eight bytes is a quote, a backslash, a control character or part of a longer character.

    "Determine if a word has a byte less than n", from the Bit Twiddling Hacks of S. E. Anderson.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    odd = word | ((word - _SPACES) & ~word) | ((quotes - _ONES) & ~quotes) | ((backslashes - _ONES) & ~backslashes)
    return odd & _HIGHEST_BITS == 0


@inlined
def utf8_mark(data: Word, at: Word, stop: Word) -> Word:
    """Return where a document begins: behind the byte order mark, if there is one."""
    if stop - at >= 3 and byte_at(data, at) == 0xEF and byte_at(data, at + 1) == 0xBB and byte_at(data, at + 2) == 0xBF:
        return at + 3
    return at


@inlined
def _long_character_end(data: Word, at: Word, stop: Word) -> Word:
    """Return the end of a character of several bytes, -1 if it is not UTF-8. Lone surrogates pass, as in Python."""
    first = byte_at(data, at)
    if 0xC2 <= first <= 0xDF:
        more, low, high = 1, 0x80, 0xBF
    elif 0xE0 <= first <= 0xEF:
        more, low, high = 2, (0xA0 if first == 0xE0 else 0x80), 0xBF
    elif 0xF0 <= first <= 0xF4:
        more, low, high = 3, (0x90 if first == 0xF0 else 0x80), (0x8F if first == 0xF4 else 0xBF)
    else:
        return np.int64(-1)
    if more > stop - at - 1 or not low <= byte_at(data, at + 1) <= high:
        return np.int64(-1)
    for i in range(2, more + 1):
        if byte_at(data, at + i) & 0xC0 != 0x80:
            return np.int64(-1)
    return at + more + 1


@inlined
def is_utf8(data: Word, at: Word, stop: Word) -> Word:
    """Return whether bytes are UTF-8."""
    while at < stop:
        while stop - at >= 8 and word_at(data, at) & _HIGHEST_BITS == 0:
            at += 8
        if at == stop:
            break
        first = byte_at(data, at)
        if first < 0x80:
            at += 1
            continue
        # Half of a pair of surrogates.
        if first == 0xED and stop - at >= 2 and byte_at(data, at + 1) >= 0xA0:
            return False
        at = _long_character_end(data, at, stop)
        if at < 0:
            return False
    return True


@inlined
def _four_hex(data: Word, at: Word, stop: Word) -> Word:
    """Return the number that four hexadecimal digits write, -1 if they do not."""
    if stop - at < 4:
        return np.int64(-1)
    value = np.int64(0)
    for i in range(4):
        digit = _HEX_DIGITS[byte_at(data, at + i)]
        if digit < 0:
            return np.int64(-1)
        value = value * 16 + digit
    return value


@inlined
def text_end(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:  # noqa: PLR0912 - one for each kind of byte
    """Return the end of a string, behind its closing quote, and what it has; the end is -1 if it is none.

    ``at`` is behind the opening quote. What it has: ``HAS_ESCAPES``, ``HAS_SURROGATES`` (as bytes, which is no UTF-8).
    """
    flags = 0
    while at < stop:
        while stop - at >= 8 and _are_plain(word_at(data, at)):
            at += 8
        if at == stop:
            break
        c = byte_at(data, at)
        if c == _QUOTE:
            return at + 1, flags
        if c == _BACKSLASH:
            flags |= HAS_ESCAPES
            if at + 1 >= stop:
                break
            if byte_at(data, at + 1) == _U:
                if _four_hex(data, at + 2, stop) < 0:
                    break
                at += 6
            else:
                if _ESCAPES[byte_at(data, at + 1)] < 0:
                    break
                at += 2
        elif c >= _FIRST_LONG:
            if c == 0xED and at + 1 < stop and byte_at(data, at + 1) >= 0xA0:
                flags |= HAS_SURROGATES
            at = _long_character_end(data, at, stop)
            if at < 0:
                break
        elif c < _FIRST_PRINTED:
            break
        else:
            at += 1
    return np.int64(-1), flags


@inlined
def unescaped(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return the character of the escape at ``at``, and where it ends. Surrogates of a pair are one character."""
    if byte_at(data, at + 1) != _U:
        return _ESCAPES[byte_at(data, at + 1)], at + 2
    high, after = _four_hex(data, at + 2, stop), at + 6
    if 0xD800 <= high <= 0xDBFF and stop - after >= 6 and byte_at(data, after) == _BACKSLASH:
        low = _four_hex(data, after + 2, stop) if byte_at(data, after + 1) == _U else np.int64(-1)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), after + 6
    return high, after


@inlined
def utf8_byte(character: Word, size: Word, number: Word) -> Word:
    """Return one byte of a character's UTF-8."""
    bits = character >> (6 * (size - 1 - number))
    if number:
        return 0x80 | (bits & 0x3F)
    if size == 1:
        return character
    return (0xF00 >> size) & 0xFF | bits


@inlined
def utf8_size(character: Word) -> Word:
    """Return how many bytes a character's UTF-8 has."""
    return 1 + (character >= 0x80) + (character >= 0x800) + (character >= 0x10000)


@inlined
def same_text(  # noqa: PLR0917 - a function of compiled code, which has no other arguments
    data: Word, at: Word, stop: Word, escaped: Word, text: Word, size: Word
) -> Word:
    """Return whether a string without its quotes means these ``size`` bytes of UTF-8 at ``text``."""
    if not escaped:
        return stop - at == size and same_bytes(data, at, text, np.int64(0), size)
    done = np.int64(0)
    while at < stop:
        if byte_at(data, at) != _BACKSLASH:
            if done == size or byte_at(data, at) != byte_at(text, done):
                return False
            at += 1
            done += 1
            continue
        character, at = unescaped(data, at, stop)
        many = utf8_size(character)
        if many > size - done:
            return False
        for i in range(many):
            if byte_at(text, done + i) != utf8_byte(character, many, i):
                return False
        done += many
    return done == size
