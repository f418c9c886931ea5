"""Combined status with the processing-time flag (FLIP-326)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.reference.eventtime.watermark import START, Watermark
from watermark_source.eventtime.lowest_of_active import recompute
from watermark_source.eventtime.watermark import Millis


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
