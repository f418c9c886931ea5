"""The watermark that an operator's timer waits for. Spark's are whole milliseconds, event times are microseconds."""

from __future__ import annotations

FIRST_WATERMARK = 1
"""Milliseconds: Spark's watermark is 0 while there is none."""


def watermark_past(micros: int) -> int:
    """Return the first watermark that has passed an event time, in milliseconds."""
    return max(FIRST_WATERMARK, -(-micros // 1_000))
