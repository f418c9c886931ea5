"""Dates of the Gregorian calendar to days and microseconds since 1970, for compiled functions."""

from __future__ import annotations

import numpy as np

from watermark_source.machine_code.native import Word, inlined

NO_MOMENT = np.int64(-(2**63))
"""Stands for null, and for what is no date."""


@inlined
def day_of(year: Word, month: Word, day: Word) -> Word:
    """Days since 1970 of a date of the Gregorian calendar, also before its time; ``NO_MOMENT`` if there is none such.

    After Howard Hinnant's days_from_civil.
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
    """Microseconds since 1970, ``NO_MOMENT`` if there is no such day."""
    days = day_of(year, month, day)
    if days == NO_MOMENT:
        return NO_MOMENT
    return (days * 86400 + hour * 3600 + minute * 60 + second) * 1_000_000 + micros
