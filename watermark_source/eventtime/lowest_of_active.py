"""Combined status: one watermark out of many, as a source does over its splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from watermark_source.eventtime.watermark import MIN, Millis


class Combined(NamedTuple):
    """Result of ``recompute``."""

    timestamp: Millis
    all_idle: bool
    advanced: bool


def recompute(members: Iterable[tuple[Millis, bool]], combined: Millis) -> Combined:
    """Combine ``(watermark, idle)`` of all members with the combined watermark so far, which never regresses.

    The minimum of the active members; with all of them idle the maximum of all, so that the order of going idle does
    not matter (FLINK-38454). No members at all: idle if the combined watermark has ever advanced (FLINK-39586), for
    then nobody will ever move it; before that it waits for the first member. Finished members are left out by the
    caller. O(members).
    """
    everyone = tuple(members)
    if not everyone:
        return Combined(combined, combined > MIN, advanced=False)
    active = [watermark for watermark, idle in everyone if not idle]
    found = min(active) if active else max(watermark for watermark, _ in everyone)
    return Combined(max(found, combined), not active, found > combined)
