"""When positions are committed: news about once a second, the same again each minute, less often while it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAUSE_S: Final = 1.0
REPEAT_S: Final = 60.0
"""A broker forgets a group nobody commits to (``offsets.retention.minutes``), also when there is nothing to read."""
LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CommitPace:
    """When the next try is due, in seconds of the monotonic clock."""

    not_before: float = 0.0
    repeat_at: float = 0.0
    failures: int = 0
    """In a row, the last tries."""

    def wait(self, now: float, *, news: bool) -> float:
        """Return the seconds until the next try; with ``news`` there are positions not committed yet."""
        return max(0.0, (self.not_before if news else self.repeat_at) - now)

    def after_success(self, now: float) -> CommitPace:
        """Return the pace after a try that worked."""
        return CommitPace(not_before=now + PAUSE_S, repeat_at=now + REPEAT_S)

    def after_failure(self, now: float) -> CommitPace:
        """Return the pace after a try that failed: each pause is twice the one before, up to half a minute."""
        due = now + min(LONGEST_PAUSE_S, PAUSE_S * 2.0 ** min(self.failures, 10))
        return CommitPace(not_before=due, repeat_at=due, failures=self.failures + 1)
