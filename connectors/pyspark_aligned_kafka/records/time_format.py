"""How moments are written in records."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """How moments are written."""

    AUTO = "auto"
    """ISO 8601, or a number whose size says its unit: below 10^11 seconds (until 5138), below 10^14 milliseconds, below
    10^17 microseconds, and nanoseconds from there on."""
    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"
    ISO_8601 = "iso8601"
