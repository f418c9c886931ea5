"""For how long a table that is taken away is waited for: tools of online schema change put a copy in its place."""

from __future__ import annotations

SWAP_SECONDS = 10.0
"""Tools need less than one."""
SWAP_PAUSE_SECONDS = 0.1
