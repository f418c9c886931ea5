"""Idle timer and pausable clock: a split is idle after a quiet time that was its own, not one it was held up for.

For whoever sees records go by. A planner that can ask a log for its end needs no timer: planning/status_transitions.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from watermark_source.errors import InternalError


@dataclass(frozen=True, slots=True)
class PausableClock:
    """A relative clock with counted pauses: paused twice it needs two resumes (FLIP-471). Milliseconds."""

    pauses: int = 0
    paused_at: int = 0
    """Meaningful while ``pauses`` is greater than 0."""
    lost: int = 0
    """Time spent in earlier pauses."""

    def read(self, now: int) -> int:
        """Return the reading at ``now``; frozen while paused."""
        return (self.paused_at if self.pauses else now) - self.lost

    def pause(self, now: int) -> PausableClock:
        """Return the clock with one more pause."""
        return PausableClock(self.pauses + 1, self.paused_at if self.pauses else now, self.lost)

    def resume(self, now: int) -> PausableClock:
        """Return the clock with one pause less; ``InternalError`` if it runs."""
        if not self.pauses:
            raise InternalError("a clock that runs was resumed; every resume must end one pause")
        if self.pauses > 1:
            return replace(self, pauses=self.pauses - 1)
        return PausableClock(0, 0, self.lost + now - self.paused_at)


RUNNING_CLOCK = PausableClock()


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """Time since the first quiet probe. ``timeout`` in milliseconds of the split's pausable clock."""

    timeout: int
    touched: bool = False
    """Whether there was a record since the last probe."""
    quiet_since: int | None = None
    announced: bool = False


class Verdict(Enum):
    """What one probe found."""

    ACTIVE = "active"
    BECAME_IDLE = "became idle"
    STILL_IDLE = "still idle"


def touch(timer: IdleTimer) -> IdleTimer:
    """Return the timer after a record."""
    return replace(timer, touched=True, announced=False)


def probe(timer: IdleTimer, reading: int) -> tuple[IdleTimer, Verdict]:
    """Judge at a periodic probe: idle once *more* than the timeout has passed since the first quiet probe.

    A record does not wake the split by itself: the next probe, or a watermark, does.
    """
    if timer.touched:
        return replace(timer, touched=False, quiet_since=None), Verdict.ACTIVE
    if timer.quiet_since is None:
        return replace(timer, quiet_since=reading), Verdict.ACTIVE
    if reading - timer.quiet_since <= timer.timeout:
        return timer, Verdict.ACTIVE
    return replace(timer, announced=True), Verdict.STILL_IDLE if timer.announced else Verdict.BECAME_IDLE
