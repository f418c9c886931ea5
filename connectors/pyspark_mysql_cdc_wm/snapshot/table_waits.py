"""Time limits of a snapshot's waits for a table that is locked or missing."""

from __future__ import annotations

LOCK_SECONDS = 50
"""Limit in seconds for one wait for a table that another session has locked, or waits to alter."""
LOCK_WAITS = 6
"""Number of such waits, each with a warning, before the task fails."""
SWAP_SECONDS = 10.0
"""Limit in seconds for another table to replace one that was renamed; online schema change tools need less than one."""
SWAP_PAUSE_SECONDS = 0.1
