"""The watermark value: a claim that no event at or before its timestamp is still to come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

Millis = NewType("Millis", int)
"""Milliseconds since 1970-01-01 UTC, a signed 64-bit integer."""

MIN = Millis(-(2**63))
"""Start of time: what every stream begins at."""
MAX = Millis(2**63 - 1)
"""End of time: the last watermark of a stream that has ended."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """No event with a time at or before ``timestamp`` is still to come.

    With ``use_processing_time`` event time goes with the system clock from ``timestamp`` on (FLIP-326).
    """

    timestamp: Millis
    use_processing_time: bool = False


class Status(Enum):
    """Whether downstream has to wait for this stream."""

    ACTIVE = "active"
    IDLE = "idle"


Emission = Watermark | Status
"""What goes downstream. A status is sent on change only, and no watermark between IDLE and ACTIVE."""

START = Watermark(MIN)
"""What every stream has before its first watermark."""
END = Watermark(MAX)
"""The final watermark of a stream that has ended."""


def saturating_add(a: int, b: int) -> Millis:
    """Add within the 64-bit range: a sum beyond either end is that end, never a wrapped value."""
    return Millis(min(max(a + b, MIN), MAX))
