"""The watermark value, in milliseconds: a claim that no event at or before it is still to come."""

from __future__ import annotations

from typing import NewType

Millis = NewType("Millis", int)
"""Milliseconds since 1970-01-01 UTC, a signed 64-bit integer."""


MIN = Millis(-(2**63))
"""Start of time: what every stream begins at."""


MAX = Millis(2**63 - 1)
"""End of time: the last watermark of a stream that has ended."""


def saturating_add(a: int, b: int) -> Millis:
    """Add within the 64-bit range: a sum beyond either end is that end, never a wrapped value."""
    return Millis(min(max(a + b, MIN), MAX))
