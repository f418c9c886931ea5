"""Texts of moments to microseconds since 1970-01-01 UTC, compiled: epochs as decimal numbers, ISO 8601 and RFC 1123."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyspark_aligned_kafka.records.event_time_choice import Format
from pyspark_aligned_kafka.records.json_strings import unescaped
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from watermark_source.machine_code.iso_8601 import NO_MOMENT, day_of, digit_at, iso_moment, rfc_1123_moment
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined, power_of_ten

_BY_SIZE, _NO_NUMBER, _ORACLE, _DAYS, _TICKS, _FILETIME = range(100, 106)
_FILETIME_MICROS = -11_644_473_600_000_000
"""1601-01-01."""
_UNITS = {
    Format.SECONDS: 6, Format.MILLIS: 3, Format.MICROS: 0, Format.NANOS: -3,
    Format.AUTO: _BY_SIZE, Format.ISO_8601: _NO_NUMBER, Format.TSO: _ORACLE, Format.DAYS: _DAYS, Format.TICKS: _TICKS,
    Format.FILETIME: _FILETIME,
}  # fmt: skip
"""Microseconds of a unit, as a power of ten; or one of the other ways to read a number."""
_LOGICAL_BITS = 18
"""Bits of the counter in a timestamp of TiDB's oracle."""
_LONGEST = 64
"""Bytes of a text, unescaped: no moment is longer."""
_FIRST_DAY, _END_DAY = -719_162, 2_932_897
"""Days from 1970-01-01 to 0001-01-01 and 10000-01-01, the years Spark writes."""
FIRST_MICROS, END_MICROS = _FIRST_DAY * 86_400_000_000, _END_DAY * 86_400_000_000
_MOST_MICROS = 2**62
"""No moment of any format is a number beyond it."""
_MOST_DIGITS, _NINETEEN_DIGITS = 18, 10**18
_FIRST_SHORT_YEAR, _FIRST_RECENT_YEAR, _END_YEAR = 1800, 1900, 2200
"""Years of digits that may be a date, where the same number is also the moment of an epoch that data may well have.

With 12, 15 and 18 digits other years are milliseconds, microseconds and nanoseconds of 1973 to 2001; these are in 1975
and 1976. With 10 and 16 digits other years are seconds and microseconds up to March 2030; these are in 2030 to 2039.
"""
_DATE = np.int64(NO_MOMENT + 1)
"""Stands for a number whose digits may be a date."""
MAY_BE_DATE = 2
"""In the second array of ``MomentReader.read``: no moment, as the digits may be a date."""
_MINUS, _PLUS, _DOT = (ord(c) for c in "-+.")
_E = ord("e")


@inlined
def _number(data: Word, at: Word, stop: Word) -> tuple[Word, Word, Word]:
    """Return whether a text is a decimal number, its digits as one number with sign, and the power of ten behind them.

    Digits beyond the eighteenth that counts are cut off: they are far below a microsecond of any moment there is.
    """
    negative = at < stop and byte_at(data, at) == _MINUS
    if negative or (at < stop and byte_at(data, at) == _PLUS):
        at += 1
    value, exponent, kept, seen = np.int64(0), np.int64(0), np.int64(0), False
    fraction = False
    while at < stop:
        if byte_at(data, at) == _DOT and not fraction and seen:
            fraction = True
            at += 1
            if digit_at(data, at, stop) < 0:
                return False, value, exponent
            continue
        digit = digit_at(data, at, stop)
        if digit < 0:
            break
        seen = True
        if kept < _MOST_DIGITS:
            value = value * 10 + digit
            kept += value > 0
            exponent -= fraction
        else:
            exponent += not fraction
        at += 1
    if at < stop and seen and byte_at(data, at) | 0x20 == _E:
        at += 1
        down = at < stop and byte_at(data, at) == _MINUS
        if down or (at < stop and byte_at(data, at) == _PLUS):
            at += 1
        power, some = np.int64(0), False
        while digit_at(data, at, stop) >= 0:
            # Far beyond what any moment has; and no overflow.
            power = min(power * 10 + digit_at(data, at, stop), np.int64(10_000))
            some = True
            at += 1
        if not some:
            return False, value, exponent
        exponent += -power if down else power
    return seen and at == stop, -value if negative else value, exponent


@inlined
def _scaled(value: Word, exponent: Word) -> Word:
    """Return ``value * 10 ** exponent``, rounded down, ``NO_MOMENT`` if that is no moment."""
    if value == 0:
        return np.int64(0)
    if exponent < 0:
        if exponent < -_MOST_DIGITS:
            return np.int64(-1) if value < 0 else np.int64(0)
        return value // power_of_ten(-exponent)
    if exponent > _MOST_DIGITS:
        return NO_MOMENT
    power = power_of_ten(exponent)
    return value * power if abs(value) <= _MOST_MICROS // power else NO_MOMENT


@inlined
def _exponent_by_size(value: Word, exponent: Word) -> Word:
    """Return the unit of a number without one, as a power of ten of microseconds."""
    size = _scaled(abs(value), exponent)
    if size == NO_MOMENT or size >= 100_000_000_000_000_000:
        return np.int64(-3)
    if size >= 100_000_000_000_000:
        return np.int64(0)
    return np.int64(3) if size >= 100_000_000_000 else np.int64(6)


@inlined
def _shifted(value: Word, exponent: Word) -> Word:
    """Return ``value * 10 ** exponent``, rounded down; both are within what fits."""
    return value * power_of_ten(exponent) if exponent >= 0 else value // power_of_ten(-exponent)


@inlined
def _are_date(first: Word, size: Word) -> Word:
    """Return whether ``size`` digits may be a date: yyyyMMdd, with HH, HHmm or HHmmss, and a fraction behind that.

    ``first``: their first fourteen, or all if they are fewer. As numbers they are moments as well, of 1970 or of the
    year 2611: no size shows which. Of 13 and 19 digits there is no such date; so the epochs of today have.
    """
    if size not in (8, 10, 12, 14, 15, 16, 17, 18) and size < 20:
        return False
    day_first = _shifted(first, 8 - min(size, np.int64(14)))
    year = day_first // 10_000
    if size in (10, 12, 15, 16, 18):
        first_year = _FIRST_RECENT_YEAR if size in (10, 16) else _FIRST_SHORT_YEAR
        if not first_year <= year < _END_YEAR:
            return False
    if year < 1 or day_of(year, day_first // 100 % 100, day_first % 100) == NO_MOMENT:
        return False
    if size == 8:
        return True
    hour = _shifted(first, 10 - min(size, np.int64(14))) % 100
    minute = _shifted(first, 12 - min(size, np.int64(14))) % 100 if size > 10 else np.int64(0)
    second = first % 100 if size > 12 else np.int64(0)
    return hour <= 24 and minute <= 59 and second <= 60


@inlined
def _digits_before_point(value: Word, exponent: Word) -> Word:
    size, power = np.int64(0), np.int64(1)
    while size < _MOST_DIGITS and power <= value:
        size += 1
        power *= 10
    return size + exponent


@inlined
def _counts_as_date(value: Word, exponent: Word) -> Word:
    """Return whether the digits of a number before its point may be a date."""
    size = _digits_before_point(value, exponent)
    return (
        value > 0 and 0 < size <= _LONGEST and _are_date(_shifted(value, exponent - max(size - 14, np.int64(0))), size)
    )


@inlined
def _is_date(data: Word, at: Word, stop: Word, value: Word, exponent: Word) -> Word:
    """Return whether the digits of a number before its point may be a date, however they are written.

    2.0240507E7 is 20240507; with zeros before them both the digits that are written and those that count may be one.
    """
    if _counts_as_date(value, exponent):
        return True
    at += byte_at(data, at) == _PLUS
    zeros = np.int64(0)
    while digit_at(data, at + zeros, stop) == 0:
        zeros += 1
    size = _digits_before_point(value, exponent) if zeros > 0 else np.int64(0)
    if value <= 0 or not 0 < size <= _LONGEST:
        return False
    written = size + zeros
    # With four of them there is no year.
    return 0 < zeros < 4 and _are_date(_shifted(value, exponent - max(written - 14, np.int64(0))), written)


@inlined
def _of_number(value: Word, exponent: Word, unit: Word) -> Word:
    if unit == _ORACLE:
        return (value >> _LOGICAL_BITS) * 1_000 if exponent == 0 else NO_MOMENT
    if unit == _DAYS:
        return value * 86_400_000_000 if exponent == 0 and abs(value) <= _END_DAY else NO_MOMENT
    if unit in (_TICKS, _FILETIME):
        since = _scaled(value, exponent - 1)
        first = FIRST_MICROS if unit == _TICKS else _FILETIME_MICROS
        return since + first if since != NO_MOMENT else NO_MOMENT
    exponent += _exponent_by_size(value, exponent) if unit == _BY_SIZE else unit
    return _scaled(value, exponent)


@inlined
def _moment(data: Word, at: Word, stop: Word, unit: Word) -> Word:
    if unit != _NO_NUMBER:
        is_number, value, exponent = _number(data, at, stop)
        if is_number and unit == _BY_SIZE and _is_date(data, at, stop, value, exponent):
            return _DATE
        if is_number:
            return _of_number(value, exponent, unit)
        if unit != _BY_SIZE:
            return NO_MOMENT
    found = iso_moment(data, at, stop)
    return rfc_1123_moment(data, at, stop) if found == NO_MOMENT and unit == _BY_SIZE else found


@inlined
def _unescaped_into(data: Word, at: Word, stop: Word, room: Word) -> Word:
    """Write a text without its escapes into ``room``; return its size, -1 if it is no moment for that alone."""
    size = np.int64(0)
    while at < stop:
        if size == _LONGEST:
            return np.int64(-1)
        character = byte_at(data, at)
        if character == ord("\\"):
            character, at = unescaped(data, at, stop)
        else:
            at += 1
        if character > 0x7F:
            return np.int64(-1)
        room[size] = character
        size += 1
    return size


@inlined
def _checked(found: Word) -> tuple[Word, Word]:
    """Return the microseconds of what was found, and 0; without a moment what is wrong, as ``MomentReader.read``."""
    if FIRST_MICROS <= found < END_MICROS:
        return found, np.int64(0)
    return np.int64(0), np.int64(MAY_BE_DATE) if found == _DATE else np.int64(1)


@compiled("void(uint8[::1], int64[::1], int64[::1], boolean[::1], int64, uint8[::1], int64[::1], uint8[::1])")
def _read_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    starts: Word,
    sizes: Word,
    escaped: Word,
    unit: Word,
    room: Word,
    micros: Word,
    wrong: Word,
) -> None:
    data, plain = address_of(array), address_of(room)
    for row in range(starts.shape[0]):
        found = NO_MOMENT
        if escaped[row]:
            size = _unescaped_into(data, starts[row], starts[row] + sizes[row], room)
            if size >= 0:
                found = _moment(plain, np.int64(0), size, unit)
        elif sizes[row] > 0:
            found = _moment(data, starts[row], starts[row] + sizes[row], unit)
        micros[row], wrong[row] = _checked(found)


@compiled("void(int64[::1], boolean[::1], int64, int64[::1], uint8[::1])")
def _of_numbers(numbers: Word, present: Word, unit: Word, micros: Word, wrong: Word) -> None:
    for row in range(numbers.shape[0]):
        value, exponent, found = numbers[row], np.int64(0), NO_MOMENT
        if present[row] and unit != _NO_NUMBER:
            if value <= -_NINETEEN_DIGITS or value >= _NINETEEN_DIGITS:
                # As of a text, the digits beyond the eighteenth are cut off.
                value, exponent = value // 10 + (value < 0 and value % 10 != 0), np.int64(1)
            is_date = unit == _BY_SIZE and _counts_as_date(value, exponent)
            found = _DATE if is_date else _of_number(value, exponent, unit)
        micros[row], wrong[row] = _checked(found)


class MomentReader:
    """Reads moments of one format. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_room", "_unit")

    def __init__(self, written: Format) -> None:
        self._unit = _UNITS[written]
        self._room = np.zeros(_LONGEST, np.uint8)

    def read(
        self, data: Bytes, starts: Longs, sizes: Longs, escaped: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Longs, Bytes]:
        """Return the microseconds of each text, and not 0 where there is no moment: ``MAY_BE_DATE``, or 1.

        Args:
            data: the bytes.
            starts: where each text begins.
            sizes: its bytes; below 1 is no moment.
            escaped: which texts have the escapes of JSON; ``None``: none.
        """
        rows = len(starts)
        micros, wrong = np.empty(rows, np.int64), np.empty(rows, np.uint8)
        with_escapes = np.zeros(rows, np.bool_) if escaped is None else escaped
        _read_all(data, starts, sizes, with_escapes, self._unit, self._room, micros, wrong)
        return micros, wrong

    def of_numbers(self, numbers: Longs, present: npt.NDArray[np.bool_]) -> tuple[Longs, Bytes]:
        """Return the same of numbers, where they are ``present``, as ``read`` returns it of their digits."""
        micros, wrong = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.uint8)
        _of_numbers(numbers, present, self._unit, micros, wrong)
        return micros, wrong
