"""Durations as users write them, such as ``5 minutes``, and durations, counts and shares as text for people."""

from __future__ import annotations

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


def count_text(n: int) -> str:
    """Return a whole number with a blank between thousands."""
    return f"{n:,}".replace(",", " ")


def share_text(share: float) -> str:
    """Return a share from 0 to 1 as a percentage."""
    if not share:
        return "0 %"
    return "< 0.01 %" if share < 0.0001 else f"{100 * share:.3g} %"
