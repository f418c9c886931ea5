"""How long a read goes on without progress."""

from __future__ import annotations

import time
from typing import Final

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class Patience:
    """Time spent waiting for the cluster since a position last moved; the consumer's own time does not count.

    A clock, so it is not frozen: what it measures changes by itself.
    """

    __slots__ = ("_pauses", "checked_at_s", "limit_s", "spent_s")

    def __init__(self, limit_ms: int) -> None:
        self.limit_s = limit_ms / 1000
        self.reset()

    def reset(self) -> None:
        """A position has moved: start anew."""
        self.spent_s = 0.0
        self.checked_at_s = 0.0
        """The time spent when the log's bounds were last looked at."""
        self._pauses = 0

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.limit_s - self.spent_s)

    @property
    def left_ms(self) -> int:
        """Milliseconds left, at least one because a time limit of zero means something else to sockets."""
        return max(1, int(self.left_s * 1000))

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left_s == 0.0

    def spend(self, begun: float) -> None:
        """Count the time since ``begun`` (monotonic)."""
        self.spent_s += time.monotonic() - begun

    def pause(self) -> None:
        """Wait before the next try, longer each time."""
        begun = time.monotonic()
        time.sleep(min(_PAUSES_S[min(self._pauses, len(_PAUSES_S) - 1)], self.left_s))
        self._pauses += 1
        self.spend(begun)
