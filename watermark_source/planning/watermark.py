"""The watermark value, in milliseconds: a claim that no event at or before it is still to come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from enum import Enum
from typing import NewType

Millis = NewType("Millis", int)
"""Milliseconds since 1970-01-01 UTC, a signed 64-bit integer."""


MIN = Millis(-(2**63))
"""Start of time: the watermark that every stream begins with."""


MAX = Millis(2**63 - 1)
"""End of time: the last watermark of a stream that has ended."""


LAST = Millis(MAX - 1)
"""The watermark of a stream all of whose writers have announced that they write no more. The stream itself remains
open: what is written all the same is read, and is late."""


LAST_MOMENT = Millis(253_402_300_799_999)
"""The last millisecond of the year 9999: the last that Spark writes, and that another program's watermark may be.
Microseconds and nanoseconds of the present are beyond it."""


def saturating_add(a: int, b: int) -> Millis:
    """Add within the 64-bit range: a sum beyond either end is that end, never a wrapped value."""
    total = Millis(a + b)
    return total if MIN <= total <= MAX else MIN if total < MIN else MAX


# ``WatermarkCharacteristic``: which watermarks a source can send, as it declares itself (FLIP-326).


class WatermarkCharacteristic(Enum):
    """What an operator may count on before a source has sent anything."""

    UNDEFINED = "undefined"
    """Watermarks of event times at most; none when time is the clock's."""
    ANY_WATERMARK = "any_watermark"
    """Watermarks of event times, or, when time is the clock's, one with ``use_processing_time``."""


# Combined status: one watermark out of many, as a source does over its splits.


def lowest_of_active(members: Iterable[tuple[Millis, bool]], combined: Millis) -> Millis:
    """Combine ``(watermark, idle)`` of all members with the combined watermark so far, which never regresses.

    The minimum of the active members; with all of them idle the maximum of all, so that the order of going idle does
    not matter (FLINK-38454). Without members the combined watermark stands. The caller leaves out finished members.
    O(members).
    """
    every = tuple(members)
    if not every:
        return combined
    active = [watermark for watermark, idle in every if not idle]
    return max(combined, min(active) if active else max(watermark for watermark, _ in every))


# Watermarks as texts for people: dates, or words where a watermark is no time.


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def is_moment(watermark: int | None) -> bool:
    """Return whether a watermark is one at all, and neither the start nor the end of time."""
    return watermark not in (None, MIN, LAST, MAX)


def watermark_text(watermark: int | None, *, raw: bool = False) -> str:
    """Return a watermark as UTC date and time, or ``raw`` as milliseconds; in words where it is no time."""
    if watermark is None:
        return "none yet"
    if raw:
        return str(watermark)
    if not is_moment(watermark):
        return "start of time" if watermark == MIN else "end of time"
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=watermark)
    except OverflowError:
        return str(watermark)
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
