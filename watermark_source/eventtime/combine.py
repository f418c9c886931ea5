"""Combined status: one watermark out of many, as a source does over its splits and an operator over its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from watermark_source.eventtime.watermark import MIN, START, Millis, Watermark


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


class Member(NamedTuple):
    """One member of a combination; it may go back and forth between idle and active."""

    watermark: Watermark = START
    idle: bool = False


class CombinedWatermark(NamedTuple):
    """Result of ``recompute_watermark``; ``advanced`` also when the processing-time flag has come on."""

    watermark: Watermark
    all_idle: bool
    advanced: bool


def recompute_watermark(members: Iterable[Member], combined: Watermark) -> CombinedWatermark:
    """``recompute`` with the processing-time flag (FLIP-326).

    A flagged member is always active and never the minimum beside one that is not. The result is flagged when all
    active members are; from then on only flagged members count, because the flag never goes back.
    """
    unflagged: list[tuple[Millis, bool]] = []
    flagged: list[tuple[Millis, bool]] = []
    for watermark, idle in members:
        if watermark.use_processing_time:
            flagged.append((watermark.timestamp, False))
        else:
            unflagged.append((watermark.timestamp, idle))
    if not flagged:
        if combined.use_processing_time:
            return CombinedWatermark(combined, all_idle=False, advanced=False)
        plain = recompute(unflagged, combined.timestamp)
        return CombinedWatermark(Watermark(plain.timestamp), plain.all_idle, plain.advanced)
    if not combined.use_processing_time and any(not idle for _, idle in unflagged):
        plain = recompute((m for m in unflagged if not m[1]), combined.timestamp)
        return CombinedWatermark(Watermark(plain.timestamp), all_idle=False, advanced=plain.advanced)
    both = recompute(flagged, combined.timestamp)
    advanced = both.advanced or not combined.use_processing_time
    return CombinedWatermark(Watermark(both.timestamp, use_processing_time=True), all_idle=False, advanced=advanced)


def raised(old: Watermark, new: Watermark) -> Watermark:
    """Return a member's watermark after ``new``: neither its timestamp nor its flag goes back."""
    if new.timestamp <= old.timestamp and new.use_processing_time <= old.use_processing_time:
        return old
    return Watermark(
        max(old.timestamp, new.timestamp), use_processing_time=old.use_processing_time or new.use_processing_time
    )
