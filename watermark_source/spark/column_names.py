"""The columns every source adds to its system's own."""

from __future__ import annotations

from typing import Final

EVENT_TIME: Final = "event_time"
LATE: Final = "late"
MARKER: Final = "marker"
