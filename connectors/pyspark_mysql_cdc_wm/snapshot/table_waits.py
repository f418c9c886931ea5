"""For how long a snapshot waits for a table that is locked, or taken away."""

from __future__ import annotations

LOCK_SECONDS = 50
"""So long the server lets a chunk wait for a table that somebody has locked, or waits to alter."""
LOCK_WAITS = 6
"""So often it is asked, with a warning each time, before that is an error."""
SWAP_SECONDS = 10.0
"""For a table to take the place of one that is gone: tools of online schema change need less than one."""
SWAP_PAUSE_SECONDS = 0.1
