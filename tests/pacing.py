"""How often a test looks at what it waits for."""

from __future__ import annotations

import time

_REST, _LONGEST_REST_SECONDS = 4.0, 1.0


def rest(took: float, least: float) -> None:
    """Sleep after a look that took so many seconds: looks take at most a fifth of a core from what is waited for."""
    time.sleep(max(least, min(_REST * took, _LONGEST_REST_SECONDS)))
