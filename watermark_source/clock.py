"""The one place that reads clocks: what time it is, and how much time has passed."""

from __future__ import annotations

import time

from watermark_source.planning.watermark import Millis

_STEP = 1_000
"""By so many milliseconds a clock that was set, or a machine that was suspended, is further at least."""


class Clock:
    """Readings in milliseconds since 1970-01-01 UTC: of how much time has passed, and of what time it is."""

    def __init__(self) -> None:
        self._wall = time.time() * 1_000
        self._monotonic = time.monotonic()

    def elapsed(self) -> Millis:
        """Return the wall time of the start, carried on by the monotonic clock; a step of the system's is not seen."""
        return Millis(int(self._wall + (time.monotonic() - self._monotonic) * 1_000))

    def catches_up(self) -> bool:
        """Let ``elapsed`` go on from the wall time if that was set forward; return whether it was.

        The next process begins with the wall time: what this one remembers must not seem long ago to it.
        """
        ahead = time.time() * 1_000 - self.elapsed()
        if ahead < _STEP:
            return False
        self._wall += ahead
        return True

    def now(self) -> Millis:
        """Return the wall time. It follows the system's clock forward, after a suspension for example, not back."""
        return max(self.elapsed(), self.wall())

    def wall(self) -> Millis:
        """Return the wall time, which may be set back: that it was wrong before is over then."""
        return Millis(int(time.time() * 1_000))
