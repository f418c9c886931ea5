"""Splits that come back from idleness behind the combined watermark, and whether it waits for them (``idleReturn``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.eventtime.summary import NOTHING_SEEN, RangeSummary
from watermark_source.planning.policy import Idleness
from watermark_source.planning.split import Split
from watermark_source.planning.state import Returning, SourceState, SplitState, SplitStatus


def is_left_out(state: SplitState, before: SourceState, idleness: Idleness) -> bool:
    """Return whether a split is not waited for though it is not idle: see ``combined``.

    That a split is behind does not tell: the watermark may be that of rows (``with_batch_watermark``) that lead less
    far now, by a bound that became larger.
    """
    if not idleness.passes_returning or before.watermark is None or state.watermark is None:
        return False
    return state.returning is Returning.READ and state.watermark < before.watermark


def returned(state: SplitState, seen: RangeSummary) -> SplitState:
    """Return a split whose last range was read, and is in its watermark; ``seen`` is what its tasks saw.

    A range may have no rows, but only the end of a transaction that was aborted.
    """
    if state.returning is not Returning.AWAITED or replace(seen, is_whole=True) == NOTHING_SEEN:
        return state
    return replace(state, returning=Returning.READ)


def marked_returning(
    before: SourceState, planned: Mapping[Split, SplitState], idleness: Idleness
) -> dict[Split, SplitState]:
    """Return the planned splits that come back from idleness, or have caught up, with ``returning`` as it is now."""
    changed: dict[Split, SplitState] = {}
    for split, at in planned.items():
        if at.returning is None and not idleness.passes_returning:
            continue
        returning = returning_now(split, at, before) if idleness.passes_returning else None
        if returning is not at.returning:
            changed[split] = replace(at, returning=returning)
    return changed


def returning_now(split: Split, at: SplitState, before: SourceState) -> Returning | None:
    """Return where a planned split is on its way back: ``None`` if it is idle, was not, or has caught up."""
    was = before.splits.get(split)
    if was is None or at.status is SplitStatus.IDLE:
        return None
    if was.status is SplitStatus.IDLE:
        return Returning.AWAITED
    caught_up = at.watermark is not None and (before.watermark is None or at.watermark >= before.watermark)
    return None if caught_up else at.returning
