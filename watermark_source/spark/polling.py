"""Polling: how often Spark's question "is there anything new?" may reach the brokers or the database."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

_SHORTEST, _LONGEST = 0.015, 0.1
"""Seconds from an answer "nothing new" to the next look. Spark asks about 85 times a second while it is idle."""
_SHARE = 0.04
"""The next look comes after this part of the time that has passed since the last batch, within those bounds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next look is due, in seconds of the monotonic clock."""

    last_batch: float = field(default_factory=time.monotonic)
    next_look: float = 0.0

    def after(self, *, is_batch: bool) -> Pace:
        """Return the pace after a look that led to a batch, or found nothing new."""
        now = time.monotonic()
        if is_batch:
            return Pace(now)
        pause = min(_LONGEST, max(_SHORTEST, _SHARE * (now - self.last_batch)))
        return Pace(self.last_batch, now + pause)

    def wait(self) -> None:
        """Sleep until the next look is due.

        The question could be answered from memory instead, but ``processAllAvailable`` must see what was written
        before it was called.
        """
        time.sleep(max(0.0, self.next_look - time.monotonic()))
