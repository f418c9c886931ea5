"""The watermark as a value that travels, and the status beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from watermark_source.eventtime.watermark import MAX, MIN, Millis


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
