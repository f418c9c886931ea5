"""Clock: the wall time in milliseconds, in several senses. The engine reads the system's clock only here."""

from __future__ import annotations

import time

from watermark_source.planning.watermark import Millis

_STEP = 1_000
"""Milliseconds: with a smaller difference from the monotonic clock the system's clock has made no step."""


class Clock:
    """Readings in milliseconds since 1970-01-01 UTC."""

    def __init__(self) -> None:
        self._wall = time.time() * 1_000
        self._monotonic = time.monotonic()

    def elapsed(self) -> Millis:
        """Return the wall time of the start plus the time since by the monotonic clock, without later steps."""
        return Millis(int(self._wall + (time.monotonic() - self._monotonic) * 1_000))

    def steady(self) -> Millis:
        """Return the monotonic clock alone: no step of the system's clock changes the time between two readings."""
        return Millis(int(time.monotonic() * 1_000))

    def catch_up(self) -> bool:
        """Advance ``elapsed`` to the wall time if the system's clock was set forward; return whether it was.

        The next process starts from the wall time. Without this, moments that this process has recorded would seem
        long ago to it.
        """
        ahead = time.time() * 1_000 - self.elapsed()
        if ahead < _STEP:
            return False
        self._wall += ahead
        return True

    def now(self) -> Millis:
        """Return the wall time. It follows steps of the system's clock forward, as after a suspension, but not back."""
        return max(self.elapsed(), self.wall())

    def wall(self) -> Millis:
        """Return the system's wall time, which may be set back."""
        return Millis(int(time.time() * 1_000))
