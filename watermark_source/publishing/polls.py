"""Polls: when a query is asked next for its last committed batch. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_POLLS_S: Final = (0.05, 0.25)
"""Shortest and longest pause between two polls."""
_POLL_SHARE: Final = 0.1
"""A pause is this share of the time since the last new batch, within those bounds, so that it delays an announcement by
little of the time that a batch takes."""
_FIRST_POLL: Final = 0.7
"""The first poll after a batch comes after this share of the time from the batch before to it, at the longest pause."""


@dataclass(frozen=True, slots=True)
class Polls:
    """When the last committed batch is polled next, in seconds of the monotonic clock. Pure."""

    new_at: float
    """When a new batch was found last."""
    usual: float = 0.0
    """Seconds from the batch before to that one."""
    is_first: bool = True
    """Whether no poll has followed it."""

    def after(self, now: float, *, is_new: bool) -> Polls:
        """Return it after a poll that found a new batch, or none."""
        return Polls(now, now - self.new_at) if is_new else Polls(self.new_at, self.usual, is_first=False)

    def pause(self, now: float) -> float:
        """Return the seconds until the next poll."""
        shortest, longest = _POLLS_S
        wanted = _FIRST_POLL * self.usual if self.is_first else _POLL_SHARE * (now - self.new_at)
        return min(longest, max(shortest, wanted))
