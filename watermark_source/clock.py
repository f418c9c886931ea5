"""The one place that reads clocks: a wall clock that cannot step back within a process."""

from __future__ import annotations

import time

from watermark_source.eventtime.watermark import Millis


class Clock:
    """Wall time taken once and carried on by the monotonic clock, so that a step of the system clock cannot be seen."""

    def __init__(self) -> None:
        self._wall = time.time() * 1_000
        self._monotonic = time.monotonic()

    def now(self) -> Millis:
        """Return milliseconds since 1970-01-01 UTC."""
        return Millis(int(self._wall + (time.monotonic() - self._monotonic) * 1_000))
