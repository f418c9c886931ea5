"""How long one call tries: its deadline, and the pauses between its tries."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

from kafka.net.selector import NetworkSelector

API_TIMEOUT: Final = "kafka.default.api.timeout.ms"


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one call's time limit, in seconds of the monotonic clock."""

    at: float
    total_ms: int
    option: str | None = None
    """The option that sets the limit, if one does."""

    @classmethod
    def after(cls, millis: int, option: str | None = None) -> Deadline:
        """Start counting now."""
        return cls(time.monotonic() + millis / 1000, millis, option)

    @property
    def text(self) -> str:
        """Return the whole time limit, for errors."""
        return f"{self.total_ms / 1000:g} s" + ("" if self.option is None else f" ({self.option})")

    @property
    def left_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, (self.at - time.monotonic()) * 1000)


class Backoff:
    """Pauses that double from try to try (KIP-580), each with a random fifth more or less."""

    def __init__(self, net: NetworkSelector, deadline: Deadline, shortest_ms: int, longest_ms: int) -> None:
        self._net = net
        self._deadline = deadline
        self._next_ms = float(max(shortest_ms, 1))
        self._longest_ms = float(max(longest_ms, shortest_ms, 1))

    async def wait(self) -> bool:
        """Pause before the next try; false, at once, if the deadline leaves no time for one."""
        pause_ms = self._next_ms * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, guards no secret
        self._next_ms = min(self._next_ms * 2, self._longest_ms)
        if self._deadline.left_ms <= pause_ms:
            return False
        await self._net.sleep(pause_ms / 1000)
        return True
