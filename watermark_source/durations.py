"""Durations and times as users write them, such as ``5 minutes``; durations, counts and shares as text for people."""

from __future__ import annotations

import datetime as dt
import re

_UNIT_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_TERM = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)

_PAIRS = (("d", 86_400_000, "h", 3_600_000), ("h", 3_600_000, "min", 60_000), ("min", 60_000, "s", 1_000))
"""A unit and the next smaller one, each with its milliseconds."""

_LONGEST_MS = 100_000 * 366 * 86_400_000
"""A hundred thousand years: sums of moments and such durations stay far within 64 bits."""

ACCEPTED = "a number and a unit (ms, seconds, minutes, hours, days)"


def parse_duration(text: str) -> int:
    """Return the duration in whole milliseconds. A text may have several terms, as in ``1 minute 30 seconds``.

    Raises:
        ValueError: the text is not a duration.
    """
    total, position = 0.0, 0
    while position < len(text.rstrip()):
        term = _TERM.match(text, position)
        if term is None or term[2].lower() not in _UNIT_MS:
            raise ValueError(f"not a duration: {text!r}")
        total += float(term[1]) * _UNIT_MS[term[2].lower()]
        position = term.end()
    if position == 0:
        raise ValueError(f"not a duration: {text!r}")
    if total > _LONGEST_MS:
        raise ValueError(f"longer than any stream: {text!r}")
    return round(total)


ACCEPTED_TIME = (
    "a datetime, ISO 8601 text such as 2026-11-27T20:09:00Z (UTC without a zone), or milliseconds since 1970-01-01 UTC"
)
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
_SECONDS_END = 100_000_000_000
"""Smaller numbers of milliseconds are of 1973 and before: rather, they are seconds."""


def parse_time(given: object) -> int:
    """Return a time in milliseconds since 1970-01-01 UTC.

    A ``datetime`` without a zone is local time, as in rows that Spark collects; a text without a zone is UTC.

    Raises:
        ValueError: it is no time. The message is a sentence.
    """
    if isinstance(given, dt.datetime):
        return _millis(given)
    text = str(given).strip()
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        raise ValueError(f"{text[:80]!r} is not a time; expected {ACCEPTED_TIME}")  # noqa: TRY004 - as for every other
    if re.fullmatch(r"[0-9]{1,15}", text) and int(text) <= _LATEST_MS:
        if 0 < int(text) < _SECONDS_END:
            raise ValueError(f"{text} looks like seconds; write {int(text) * 1_000}, in milliseconds")
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise ValueError(f"{text[:80]!r} is not a time; expected {ACCEPTED_TIME}") from None
    return _millis(moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC))


def _millis(moment: dt.datetime) -> int:
    return round(moment.timestamp() * 1_000)


def format_duration(millis: int) -> str:
    """Return a duration as text with its two largest units, such as ``5 min 02 s``; a second of zero is omitted."""
    if millis < 0:
        return f"-{format_duration(-millis)}"
    if millis < 1_000:
        return f"{millis} ms"
    if millis < 10_000 and millis % 1_000 >= 100:
        return f"{millis // 1_000}.{millis % 1_000 // 100} s"
    for unit, in_ms, smaller, smaller_ms in _PAIRS:
        if millis >= in_ms:
            rest = millis % in_ms // smaller_ms
            return f"{millis // in_ms} {unit} {rest:02d} {smaller}" if rest else f"{millis // in_ms} {unit}"
    return f"{millis // 1_000} s"


def format_seconds(millis: int) -> str:
    """Return a duration in whole seconds as text; of one below zero, as where two clocks differ, that of zero."""
    return format_duration(max(0, millis) // 1_000 * 1_000)


def age_text(millis: int) -> str:
    """Return an age as people say it: with one unit from ten of it on, below with two, and tenths below ten seconds.

    Two clocks that differ by a batch so show the same age, on a page and in a terminal.
    """
    if millis < 0:
        return f"-{age_text(-millis)}"
    if millis < 1_000:
        return f"{millis // 100 / 10:g} s"
    first, unit, *rest = format_duration(millis).split(" ")
    return " ".join((first, unit, *rest)) if rest and len(first) == 1 else f"{first} {unit}"


def short_count(n: int) -> str:
    """Return a whole number in at most six characters, as for a narrow column: 3 digits from a hundred thousand on."""
    if n < 100_000:
        return count_text(n)
    power = max(i for i in range(len(_THOUSANDS)) if n >= 1_000**i)
    return f"{float(f'{n / 1_000**power:.3g}'):g} {_THOUSANDS[power]}"


_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")


_NUMBER_BLANK = re.compile(r"(?<=\d) (?=\d|(?:ms|s|min|h|d|records?)\b)|(?:(?<=\bmin)|(?<=\b[hd])) (?=\d)")
"""A blank within a number or a duration."""


def unbroken(text: str) -> str:
    """Return a text in which no line breaks within a number or a duration."""
    return _NUMBER_BLANK.sub("\u00a0", text)


def count_text(n: int, unit: str = "") -> str:
    """Return a whole number with a blank between thousands; with a unit, ``1 row`` or ``2 000 rows``."""
    number = f"{n:,}".replace(",", " ")
    return f"{number} {unit}{'' if n == 1 else 's'}" if unit else number


def share_text(share: float) -> str:
    """Return a share from 0 to 1 as a percentage."""
    if not share:
        return "0 %"
    return "< 0.01 %" if share < 0.0001 else f"{100 * share:.3g} %"
