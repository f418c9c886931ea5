"""How often a test looks at what it waits for."""

from __future__ import annotations

import time

_REST = 4.0


def rest(took: float, least: float, most: float = 1.0) -> None:
    """Sleep after a look that took so many seconds for four times as long, and within the bounds.

    So looks leave most of a core to what is waited for, unless they take longer than a quarter of ``most``.
    """
    time.sleep(max(least, min(_REST * took, most)))
