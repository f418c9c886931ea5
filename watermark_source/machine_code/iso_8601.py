"""Microseconds since 1970-01-01 UTC from ISO 8601, RFC 1123 and calendar dates, for compiled functions."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, byte_at, inlined

NO_MOMENT = np.int64(-(2**63))
"""Stands for null, and for an invalid date."""
_MINUS, _PLUS, _COLON, _SPACE, _ZERO, _DOT, _COMMA = (ord(c) for c in "-+: 0.,")
_T, _Z = ord("t"), ord("z")


def _packed(letters: str) -> int:
    return int.from_bytes(letters.encode())


_UTC, _GMT = _packed("utc"), _packed("gmt")
_MONTHS = tuple(map(_packed, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")))


@inlined
def day_of(year: Word, month: Word, day: Word) -> Word:
    """Return the days since 1970 of a date of the proleptic Gregorian calendar; ``NO_MOMENT`` for an invalid date.

    The algorithm is Howard Hinnant's days_from_civil.
    """
    if month < 1 or month > 12 or day < 1 or day > 31:
        return NO_MOMENT
    if day > 28:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = np.int64(31)
        if month == 2:
            longest = np.int64(29) if leap else np.int64(28)
        elif month == 4 or month == 6 or month == 9 or month == 11:  # noqa: PLR1714 - compiled
            longest = np.int64(30)
        if day > longest:
            return NO_MOMENT
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@inlined
def moment_of(  # noqa: PLR0917 - compiled
    year: Word, month: Word, day: Word, hour: Word, minute: Word, second: Word, micros: Word
) -> Word:
    """Return the microseconds since 1970 of a date and time, ``NO_MOMENT`` for an invalid date."""
    days = day_of(year, month, day)
    if days == NO_MOMENT:
        return NO_MOMENT
    return (days * 86400 + hour * 3600 + minute * 60 + second) * 1_000_000 + micros


@inlined
def digit_at(data: Word, at: Word, stop: Word) -> Word:
    """Return the digit at a position, -1 without one."""
    if at >= stop:
        return np.int64(-1)
    value = byte_at(data, at) - _ZERO
    return value if 0 <= value <= 9 else np.int64(-1)


@inlined
def digits(data: Word, at: Word, stop: Word, count: Word) -> Word:
    """Return the number of ``count`` digits, -1 if one of them is missing."""
    value = np.int64(0)
    for i in range(count):
        digit = digit_at(data, at + i, stop)
        if digit < 0:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@inlined
def _letters(data: Word, at: Word) -> Word:
    """Return three letters as one number, in lower case."""
    return byte_at(data, at) << 16 | byte_at(data, at + 1) << 8 | byte_at(data, at + 2) | 0x202020


@inlined
def _zone(data: Word, at: Word, stop: Word) -> Word:
    """Return the minutes east of UTC of a zone: Z, UTC, GMT, +hh, +hhmm or +hh:mm; ``NO_MOMENT`` if it is invalid.

    A blank may be before it.
    """
    at += byte_at(data, at) == _SPACE
    if at >= stop:
        return NO_MOMENT
    if stop - at == 3 and _letters(data, at) in (_UTC, _GMT):
        return np.int64(0)
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
def iso_moment(data: Word, at: Word, stop: Word) -> Word:
    """Return the microseconds of a date, or of a date and a time with or without a zone; ``NO_MOMENT`` if invalid.

    The default zone is UTC. Fractions below a microsecond are truncated. A leap second, 23:59:60 UTC, is the next
    second, and 24:00:00 is the start of the next day. In the basic format, 20241231T235959Z, there is a time.
    """
    # Of a date, and of a time in the same format, the bytes between two parts.
    between = np.int64(digit_at(data, at + 4, stop) < 0)
    year, month = digits(data, at, stop, 4), digits(data, at + 4 + between, stop, 2)
    days = day_of(year, month, digits(data, at + 6 + 2 * between, stop, 2))
    if year < 1 or days == NO_MOMENT:
        return NO_MOMENT
    if between and (byte_at(data, at + 4) != _MINUS or byte_at(data, at + 7) != _MINUS):
        return NO_MOMENT
    at += 8 + 2 * between
    if at == stop:
        return days * 86_400_000_000 if between else NO_MOMENT
    if byte_at(data, at) | 0x20 != _T and (byte_at(data, at) != _SPACE or not between):
        return NO_MOMENT
    return _at_time(data, at + 1, stop, days, between)


@inlined
def rfc_1123_moment(data: Word, at: Word, stop: Word) -> Word:
    """Return the microseconds of a date and a time as HTTP and mail write them; ``NO_MOMENT`` if invalid.

    ``Sun, 06 Nov 1994 08:49:37 GMT``. The day of the week may be left out and is not compared with the date.
    """
    if at + 4 < stop and byte_at(data, at + 3) == _COMMA and byte_at(data, at + 4) == _SPACE:
        at += 5
    size = np.int64(1 if digit_at(data, at + 1, stop) < 0 else 2)
    day, year = digits(data, at, stop, size), digits(data, at + size + 5, stop, 4)
    at += size
    if day < 0 or year < 1 or at + 9 >= stop:
        return NO_MOMENT
    if byte_at(data, at) != _SPACE or byte_at(data, at + 4) != _SPACE or byte_at(data, at + 9) != _SPACE:
        return NO_MOMENT
    name, month = _letters(data, at + 1), np.int64(0)
    for number in range(12):
        if _MONTHS[number] == name:
            month = np.int64(number + 1)
    days = day_of(year, month, day)
    return NO_MOMENT if days == NO_MOMENT else _at_time(data, at + 10, stop, days, np.int64(1))


@inlined
def _at_time(data: Word, at: Word, stop: Word, days: Word, between: Word) -> Word:  # noqa: PLR0911 - as ``iso_moment``
    """Return the microseconds of a time of a day, to the end; ``between``: bytes between two parts of it, 1 or 0."""
    micros = days * 86_400_000_000
    hour, minute, second = digits(data, at, stop, 2), digits(data, at + 2 + between, stop, 2), np.int64(0)
    if not 0 <= hour <= 24 or not 0 <= minute <= 59 or (between and byte_at(data, at + 2) != _COLON):
        return NO_MOMENT
    at += 4 + between
    if at < stop and (byte_at(data, at) == _COLON if between else digit_at(data, at, stop) >= 0):
        second = digits(data, at + between, stop, 2)
        if not 0 <= second <= 60:
            return NO_MOMENT
        at += 2 + between
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
