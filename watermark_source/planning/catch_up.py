"""Catching up: the ends that logs had when a query began, and whether they have been read up to there.

Ends are positions: rows that compaction removed, or that a transaction aborted, need not be there. The logs are read up
to their ends twice: to those found at the start, then to those found when these were reached. A log cleaner may remove
a row before it is read only for a later row of its key, and that one is before the second ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from watermark_source.errors import OffsetError
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import AfterCatchUp
from watermark_source.planning.split import Split
from watermark_source.planning.state import CatchUp, SourceState, SplitState
from watermark_source.planning.strategy import CLOCKS_DIFFER
from watermark_source.planning.watermark import Millis, saturating_add, watermark_text


def is_done(catch_up: CatchUp | None) -> bool:
    """Return whether a source has caught up."""
    return catch_up is not None and catch_up.again and not catch_up.ends


def reads_first(after: AfterCatchUp | None, catch_up: CatchUp | None) -> bool:
    """Return whether logs are still read to their ends, before which there is no watermark."""
    return after is AfterCatchUp.WATERMARK and not is_done(catch_up)


def begins(before: SourceState, after: AfterCatchUp) -> bool:
    """Return whether the next plan finds the ends up to which a source catches up.

    What came after an earlier first reading is history, too, for a source that changes to the
    clock now.
    """
    is_of_first_reading = after is AfterCatchUp.CLOCK and is_done(before.catch_up) and not before.use_processing_time
    return before.catch_up is None or is_of_first_reading


def caught_up_after(
    before: SourceState,
    splits: Mapping[Split, SplitState],
    logs: ObservedLogs,
    shorter: Set[Split],
    after: AfterCatchUp,
) -> CatchUp | None:
    """Return how far a source has caught up with its last planned batch.

    Args:
        before: as of that batch.
        splits: those that exist now, after the checks for losses: a split that lost rows continues behind them.
        logs: as they are now.
        shorter: splits whose log was found shorter than what was read: it is read to its present end.
        after: what begins then.

    Returns:
        ``None`` until the end of each split that exists is known.
    """
    known = None if begins(before, after) else before.catch_up
    if known is None:
        # Rows that are committed may lie behind one of a transaction that is open, and are read after it only.
        opened = {split: end for split, end in logs.open_ends.items() if end is not None}
        if logs.unknown or len(opened) < len(logs.open_ends):
            return None
        known = CatchUp({**logs.ends, **opened})
    if is_done(known):
        return known
    cut = {s: min(known.ends[s], logs.ends[s]) for s in shorter & known.ends.keys() & logs.ends.keys()}
    ends = _not_reached({**known.ends, **cut}, splits)
    if not ends and not known.again:
        if logs.unknown or logs.stale:
            return CatchUp({})
        return CatchUp(_not_reached(logs.ends, splits), again=True)
    return replace(known, ends=ends) if ends != known.ends else known


def _not_reached(ends: Mapping[Split, int], splits: Mapping[Split, SplitState]) -> dict[Split, int]:
    return {s: end for s, end in sorted(ends.items()) if s in splits and splits[s].position < end}


def check_start(state: SourceState, after: AfterCatchUp | None, *, keeps_clock: bool) -> None:
    """Refuse to read logs to their ends first where a watermark has been sent already, and to leave the clock.

    Args:
        state: as of the last planned batch.
        after: what the user chose.
        keeps_clock: whether the strategy continues where event time is the clock.

    Raises:
        OffsetError: the checkpoint was begun without the option, or has come to the clock by one that is not set.
    """
    if after is None and state.use_processing_time and is_done(state.catch_up) and not keeps_clock:
        raise OffsetError(
            "the checkpoint's event time has been the clock since the source caught up (whenCaughtUp clock, or "
            "watermark with watermarkStrategy none), and the option is not set any more: every row would be late. Set "
            "it again, or start with a new checkpoint location."
        )
    if reads_first(after, state.catch_up) and state.watermark is not None:
        raise OffsetError(
            "whenCaughtUp is watermark, and the checkpoint was begun without it: a watermark has been sent before the "
            "logs were read to their ends. Leave the option out, or start with a new checkpoint location."
        )


def check_clock(watermark: Millis | None, now: Millis) -> None:
    """Refuse processing time while the watermark is later than the clock (FLIP-326).

    Raises:
        OffsetError: rows would be dated by the watermark, and no window would close.
    """
    if watermark is not None and watermark > saturating_add(now, CLOCKS_DIFFER):
        raise OffsetError(
            "whenCaughtUp is clock, and the source has caught up with a watermark of "
            f"{watermark_text(watermark)}, later than the driver's clock, {watermark_text(now)}: until then every row "
            "would be dated so, and no window would close. An event from the future does not advance the watermark "
            "with maxFutureSkew: set it to 1 minute, and start with a new checkpoint location. Or leave whenCaughtUp "
            "out."
        )
