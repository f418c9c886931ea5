"""Polling: how often Spark's question "is there anything new?" may reach the brokers or the database."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

_SHORTEST, _LONGEST = 0.015, 0.1
"""Seconds from an answer "nothing new" to the next look. Spark asks about 85 times a second while it is idle."""
_SHARE = 0.04
"""The next look comes after this part of the time that has passed since the last batch, within those bounds."""
_CPU_SHARE, _RAREST = 0.04, 1.0
"""Looks that would take more than this share of a core are further apart, up to so many seconds: thousands of splits
take their time."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next look is due, in seconds of the monotonic clock."""

    last_batch: float = field(default_factory=time.monotonic)
    next_look: float = 0.0

    def after(self, *, is_batch: bool, held: bool = False, cpu: float = 0.0) -> Pace:
        """Return the pace after a look that led to a batch with rows, or found none; it took ``cpu`` seconds of a core.

        ``held``: there are rows that the alignment group does not allow to be read. In a run with an end each such look
        is a batch without rows, so they become rarer the longer it takes.
        """
        now = time.monotonic()
        if is_batch and not held:
            return Pace(now)
        longest = _RAREST if held else min(_RAREST, max(_LONGEST, cpu / _CPU_SHARE))
        pause = min(longest, max(_SHORTEST, _SHARE * (now - self.last_batch)))
        return Pace(self.last_batch, now + pause)

    def wait(self) -> None:
        """Sleep until the next look is due.

        The question could be answered from memory instead, but ``processAllAvailable`` must see what was written
        before it was called.
        """
        time.sleep(max(0.0, self.next_look - time.monotonic()))
