"""Texts of dates and timestamps as Spark casts them, in Python: for the few that compiled code does not read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
"""What Spark cuts off at both ends."""
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_DAYS = re.compile(r"[+-]?\d+")
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?|([0-9]{2})([0-9]{2})?)?")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_NOT_OF_JAVA = ("posix", "right", "localtime", "Factory", "leap", "tzdata", "zone", "iso3166", "ROC")
_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's short names of zones."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After these the calendar repeats, weekdays included."""
_JULIAN_UNTIL = -141_427
"""The days before 1582-10-15."""


def days_from_civil(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970 of a date of the proleptic Gregorian calendar, ``None`` for an invalid one."""
    cycles, of_cycle = divmod(year, _CYCLE_YEARS)
    try:
        # Python has no year 0; four hundred years later is the same.
        date = datetime(of_cycle + _CYCLE_YEARS, month, day)  # noqa: DTZ001 - a date of the calendar
    except ValueError:
        return None
    return (date - datetime(1970, 1, 1)).days + (cycles - 1) * _CYCLE_DAYS  # noqa: DTZ001


def day_of_text(text: str) -> int | None:
    """Return the days since 1970 that ``from_json`` reads in a text without a format; ``None`` if it is no date."""
    for each in (text, text.replace("GMT", "")):
        found = _DATE.fullmatch(each.strip(_BLANKS))
        if found is not None:
            sign, year, month, day = found.groups()
            days = days_from_civil(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
            if days is not None and -(2**31) <= days < 2**31:
                return days
    # The days themselves, as Spark 1.5 wrote them.
    if _DAYS.fullmatch(text) is None or len(text) > 20 or not -(2**31) <= int(text) < 2**31:
        return None
    return _rebased(int(text))


def _rebased(days: int) -> int:
    """Return the day of the Gregorian calendar with the date that a day has in the Julian one, before 1582-10-15."""
    if days >= _JULIAN_UNTIL:
        return days
    # Richards' algorithm for the Julian calendar, from the day of 1 March of the year 0, with years of 365.25 days.
    since_march = days + 719_470
    cycles, of_cycle = divmod(since_march, 1461)
    of_four = min(of_cycle // 365, 3)
    of_year = of_cycle - of_four * 365
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    year = 4 * cycles + of_four + (month >= 10)
    first = days_from_civil(year, month + 3 if month < 10 else month - 9, 1)
    assert first is not None
    return first + day


def moment_of_text(text: str, zone: str) -> int | None:
    """Return the microseconds since 1970 that ``from_json`` reads in a text without a format; ``None``: no timestamp.

    A time without a date is none either: Spark takes the date of the day on which it reads it.

    Args:
        text: as written.
        zone: of texts without one.
    """
    found = _moment(text, zone)
    return _moment(text.replace("GMT", ""), zone) if found is None and "GMT" in text else found


def _moment(text: str, default_zone: str) -> int | None:
    found = _MOMENT.fullmatch(text.strip(_BLANKS))
    if found is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = found.groups()
    number = -int(year) if sign == "-" else int(year)
    days = days_from_civil(number, int(month or 1), int(day or 1))
    of_day = (int(hour or 0), int(minute or 0), int(second or 0))
    if days is None or of_day[0] > 23 or of_day[1] > 59 or of_day[2] > 59:
        return None
    seconds = days * 86_400 + of_day[0] * 3_600 + of_day[1] * 60 + of_day[2]
    east = offset_of(default_zone if zone is None else zone.strip(_BLANKS), seconds)
    if east is None:
        return None
    micros = (seconds - east) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
    return micros if -(2**63) <= micros < 2**63 else None


def offset_of(zone: str, local_seconds: int) -> int | None:
    """Return the seconds east of UTC of a zone at a local time, ``None`` for no zone of Java's.

    A local time that occurs twice is the earlier one; one that is left out is later by what is left out.
    """
    # As Spark's own forms with one digit.
    zone = re.sub(r"([+-])([0-9]):", r"\g<1>0\2:", zone, count=1)
    zone = re.sub(r"([+-])([0-9][0-9]):([0-9])$", r"\1\2:0\3", zone, count=1)
    zone = _SHORT_IDS.get(zone, zone)
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    for prefix in ("UTC", "GMT", "UT", ""):
        if zone.startswith(prefix) and zone[len(prefix) : len(prefix) + 1] in ("+", "-"):
            return _fixed(zone[len(prefix) :])
    region = region_of(zone)
    if region is None:
        return None
    year = 1970 + local_seconds // 31_556_952
    # Not to years whose offsets are history: those from 2400 on have the last rules, those before 1000 the first.
    cycles = min((year - 1_000) // _CYCLE_YEARS, 0) + max((year - 2_400) // _CYCLE_YEARS, 0)
    local = datetime(1970, 1, 1) + timedelta(  # noqa: DTZ001 - a local time
        seconds=local_seconds - cycles * _CYCLE_DAYS * 86_400
    )
    offset = local.replace(tzinfo=region).utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def _fixed(text: str) -> int | None:
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    sign, hours, *rest = found.groups()
    minutes, seconds = int(rest[0] or rest[2] or 0), int(rest[1] or rest[3] or 0)
    if len(hours) == 1 and any(rest):
        return None
    east = int(hours) * 3_600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or east > 18 * 3_600:
        return None
    return -east if sign == "-" else east


@lru_cache(maxsize=64)
def region_of(name: str) -> ZoneInfo | None:
    """Return a zone by its name in the time-zone database, ``None`` if there is none."""
    if _REGION.fullmatch(name) is None or name.startswith(_NOT_OF_JAVA) or ".." in name:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return None
