"""Places in a JSON text as the server writes it, found by MySQL's paths, in compiled code.

Between a name and its value are ``: ``, between members ``, ``; nowhere else is white space outside of strings.
"""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, inlined

NOWHERE = np.int64(-1)
"""A text or a path without a value."""

_LAST = np.frombuffer(b"last", np.uint8)
_LETTERS = np.zeros(256, np.uint8)
for _letter, _byte in zip(b'"\\bfnrt/', b'"\\\b\f\n\r\t/', strict=True):
    _LETTERS[_letter] = _byte


@inlined
def _after_string(text: Word, at: Word, stop: Word) -> Word:
    """Where the string that begins at ``at`` ends."""
    at += 1
    while at < stop:
        byte = text[at]
        if byte == ord('"'):
            return at + 1
        at += 2 if byte == ord("\\") else 1
    return NOWHERE


@inlined
def _after_value(text: Word, at: Word, stop: Word) -> Word:
    """Where the value that begins at ``at`` ends."""
    depth = 0
    while at < stop:
        byte = text[at]
        if byte == ord('"'):
            at = _after_string(text, at, stop)
            if at < 0:
                return NOWHERE
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
    return at if depth == 0 else NOWHERE


@inlined
def _after_leg(path: Word, at: Word, stop: Word) -> Word:
    """Where the leg of a path that begins at ``at`` ends."""
    if path[at] == ord("["):
        while at < stop:
            at += 1
            if path[at - 1] == ord("]"):
                return at
        return NOWHERE
    if path[at] != ord(".") or at + 1 >= stop:
        return NOWHERE
    at += 1
    if path[at] == ord('"'):
        return _after_string(path, at, stop)
    while at < stop and path[at] != ord(".") and path[at] != ord("["):
        at += 1
    return at


@inlined
def last_leg(path: Word, at: Word, stop: Word) -> Word:
    """Where the last leg of a path begins, or ``NOWHERE``."""
    leg = NOWHERE
    while at < stop:
        leg = at
        at = _after_leg(path, at, stop)
        if at < 0:
            return NOWHERE
    return leg


@inlined
def name_of(path: Word, leg: Word, stop: Word) -> tuple[Word, Word]:
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
            return NOWHERE
        count += 1
        at += 2
    return count


@inlined
def child(  # noqa: PLR0911, PLR0917 - compiled
    text: Word, at: Word, stop: Word, path: Word, leg: Word, leg_stop: Word
) -> tuple[Word, Word, Word, Word]:
    """Of the value from ``at`` to ``stop``: where the member that a leg names begins, where its value begins and ends.

    And where a new member of the leg's name would begin. ``NOWHERE`` each if there is none.
    """
    if path[leg] == ord("["):
        if text[at] != ord("["):
            return NOWHERE, NOWHERE, NOWHERE, NOWHERE
        count = _cells(text, at, stop)
        is_number, wanted = _index(path, leg, leg_stop, count)
        if count < 0 or not is_number:
            return NOWHERE, NOWHERE, NOWHERE, NOWHERE
        if wanted < 0:
            return NOWHERE, NOWHERE, NOWHERE, at + 1
        here = at + 1
        for _ in range(min(wanted, count)):
            here = _after_value(text, here, stop - 1) + 2
        if wanted >= count:
            return NOWHERE, NOWHERE, NOWHERE, stop - 1
        return here, here, _after_value(text, here, stop - 1), here
    if text[at] != ord("{"):
        return NOWHERE, NOWHERE, NOWHERE, NOWHERE
    name, name_stop = name_of(path, leg, leg_stop)
    here = at + 1
    while here < stop - 1:
        value = _after_string(text, here, stop - 1)
        if text[here] != ord('"') or value < 0:
            return NOWHERE, NOWHERE, NOWHERE, NOWHERE
        order = _compared(text, here + 1, value - 1, path, name, name_stop)
        if order > 0:
            return NOWHERE, NOWHERE, NOWHERE, here
        value += 2
        value_stop = _after_value(text, value, stop - 1)
        if value_stop < 0:
            return NOWHERE, NOWHERE, NOWHERE, NOWHERE
        if order == 0:
            return here, value, value_stop, NOWHERE
        here = value_stop + 2
    return NOWHERE, NOWHERE, NOWHERE, stop - 1


@inlined
def seek(  # noqa: PLR0917 - compiled
    text: Word, at: Word, stop: Word, path: Word, leg: Word, path_stop: Word
) -> tuple[Word, Word]:
    """Return where the value of a path begins and ends; ``NOWHERE`` if there is none.

    What is no array counts as one of itself, as in the server.
    """
    while leg < path_stop:
        leg_stop = _after_leg(path, leg, path_stop)
        if leg_stop < 0:
            return NOWHERE, NOWHERE
        is_wrapped = path[leg] == ord("[") and text[at] != ord("[")
        if is_wrapped:
            is_number, wanted = _index(path, leg, leg_stop, np.int64(1))
            if not is_number or wanted != 0:
                return NOWHERE, NOWHERE
        else:
            _, at, stop, _ = child(text, at, stop, path, leg, leg_stop)
            if at < 0:
                return NOWHERE, NOWHERE
        leg = leg_stop
    return at, stop
