"""Combined status: one watermark out of many, as a source does over its splits."""

from __future__ import annotations

from collections.abc import Iterable

from watermark_source.eventtime.watermark import Millis


def lowest_of_active(members: Iterable[tuple[Millis, bool]], combined: Millis) -> Millis:
    """Combine ``(watermark, idle)`` of all members with the combined watermark so far, which never regresses.

    The minimum of the active members; with all of them idle the maximum of all, so that the order of going idle does
    not matter (FLINK-38454). Without members the combined watermark stands. The caller leaves out finished members.
    O(members).
    """
    every = tuple(members)
    if not every:
        return combined
    active = [watermark for watermark, idle in every if not idle]
    return max(combined, min(active) if active else max(watermark for watermark, _ in every))
