"""ISO 8601 to microseconds since 1970-01-01 UTC, for compiled functions."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.calendar import NO_MOMENT, day_of
from watermark_source.machine_code.native import Word, byte_at, inlined

_MINUS, _PLUS, _COLON, _SPACE, _ZERO, _DOT, _COMMA = (ord(c) for c in "-+: 0.,")
_T, _Z = ord("t"), ord("z")


@inlined
def digit_at(data: Word, at: Word, stop: Word) -> Word:
    """Return the digit at a place, -1 if there is none."""
    if at >= stop:
        return np.int64(-1)
    value = byte_at(data, at) - _ZERO
    return value if 0 <= value <= 9 else np.int64(-1)


@inlined
def digits(data: Word, at: Word, stop: Word, count: Word) -> Word:
    """Return the number that so many digits write, -1 if they are not there."""
    value = np.int64(0)
    for i in range(count):
        digit = digit_at(data, at + i, stop)
        if digit < 0:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@inlined
def _zone(data: Word, at: Word, stop: Word) -> Word:
    """Return the minutes east of UTC that end a text, ``NO_MOMENT`` if it is no zone: Z, +hh, +hhmm or +hh:mm."""
    if stop - at == 1 and byte_at(data, at) | 0x20 == _Z:
        return np.int64(0)
    sign = byte_at(data, at)
    if sign not in (_PLUS, _MINUS):
        return NO_MOMENT
    hours, minutes = digits(data, at + 1, stop, 2), np.int64(0)
    at += 3
    if at < stop:
        at += byte_at(data, at) == _COLON
        minutes = digits(data, at, stop, 2)
        at += 2
    if at != stop or not 0 <= hours <= 23 or not 0 <= minutes <= 59:
        return NO_MOMENT
    east = hours * 60 + minutes
    return -east if sign == _MINUS else east


@inlined
def iso_moment(data: Word, at: Word, stop: Word) -> Word:  # noqa: PLR0911, PLR0912 - one for each part that may be wrong
    """Return the microseconds of a date, or of a date and a time of day, perhaps with a zone; else ``NO_MOMENT``.

    Without a zone it is UTC. Of a fraction of a second what is below a microsecond is cut off. A leap second,
    23:59:60 in UTC, is the next second, and 24:00:00 the beginning of the next day.
    """
    year, month, day = digits(data, at, stop, 4), digits(data, at + 5, stop, 2), digits(data, at + 8, stop, 2)
    days = day_of(year, month, day)
    if year < 1 or days == NO_MOMENT or byte_at(data, at + 4) != _MINUS or byte_at(data, at + 7) != _MINUS:
        return NO_MOMENT
    micros = days * 86_400_000_000
    at += 10
    if at == stop:
        return micros
    if byte_at(data, at) | 0x20 != _T and byte_at(data, at) != _SPACE:
        return NO_MOMENT
    hour, minute, second = digits(data, at + 1, stop, 2), digits(data, at + 4, stop, 2), np.int64(0)
    if not 0 <= hour <= 24 or not 0 <= minute <= 59 or byte_at(data, at + 3) != _COLON:
        return NO_MOMENT
    at += 6
    if at < stop and byte_at(data, at) == _COLON:
        second = digits(data, at + 1, stop, 2)
        if not 0 <= second <= 60:
            return NO_MOMENT
        at += 3
        if at < stop and byte_at(data, at) in (_DOT, _COMMA):
            at += 1
            if digit_at(data, at, stop) < 0:
                return NO_MOMENT
            unit = np.int64(100_000)
            while digit_at(data, at, stop) >= 0:
                micros += digit_at(data, at, stop) * unit
                unit //= 10
                at += 1
    if hour == 24 and (minute > 0 or second > 0 or micros != days * 86_400_000_000):
        return NO_MOMENT
    micros += (hour * 3_600 + minute * 60 + second) * 1_000_000
    if at != stop:
        east = _zone(data, at, stop)
        if east == NO_MOMENT:
            return NO_MOMENT
        micros -= east * 60_000_000
    if second == 60 and micros % 86_400_000_000 >= 1_000_000:
        return NO_MOMENT
    return micros
