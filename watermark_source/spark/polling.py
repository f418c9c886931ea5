"""Polling: how often Spark's question "is there anything new?" may reach the brokers or the database."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

_INTERVAL = 0.015
"""Least seconds from an answer "nothing new" to the next look. Spark asks about 85 times a second while it is idle."""
_RESTING_AFTER = 1.0
"""Seconds without a batch after which looks become rarer."""
_RESTING_INTERVAL = 0.04


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
        resting = now - self.last_batch > _RESTING_AFTER
        return Pace(self.last_batch, now + (_RESTING_INTERVAL if resting else _INTERVAL))

    def wait(self) -> None:
        """Sleep until the next look is due.

        The question could be answered from memory instead, but ``processAllAvailable`` must see what was written
        before it was called.
        """
        time.sleep(max(0.0, self.next_look - time.monotonic()))
