"""The columns every source adds to its system's own, and how operators recognise them."""

from __future__ import annotations

from typing import Final

EVENT_TIME: Final = "event_time"
LATE: Final = "late"
MARKER: Final = "marker"
KEY: Final = "watermark_source"
"""Of the metadata in which a source declares its time (``source_time.SourceTime``)."""
CLOCK: Final = "__watermark_source_clock"
"""The column under Spark's watermark node; that of ``follow_clock`` begins with the same text."""
DECLARED: Final = "__watermark_source_declared"
"""The column, below that watermark alone, with the text of what the source declares (``source_time.SourceTime``)."""
