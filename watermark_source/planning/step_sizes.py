"""Steps: how many rows of a split are planned at a time where nothing looks their event times up."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from watermark_source.planning.state import SplitState
from watermark_source.planning.watermark import Millis

BLIND_STEP: Final = 10_000
"""Rows of a split whose event times are not known."""
LEAST_STEP: Final = 1_000
"""Rows below which a batch costs more than alignment gains."""
MOST_STEP: Final = 100_000_000
GROWTH: Final = 8
"""Factor by which a step may exceed what it was learned from, or fall below it: ranges differ."""


class FirstLook(NamedTuple):
    """Event times of a split's first rows, read before any of them was planned, where they cannot be looked up."""

    first: Millis
    """Event time of its first row."""
    rows: int
    """How many positions further on a second row was read,"""
    advanced: int
    """and by how much its event time was later, in milliseconds."""


def half(drift: int) -> int:
    """Return the event time that a step spans at most."""
    return max(1, drift // 2)


def learned(step: int | None, rows: int, advanced: int, drift: int) -> int:
    """Return the step of a split after one of its ranges was read.

    Args:
        step: the step so far; ``None`` before a range has shown how fast its event time advances.
        rows: positions of the range.
        advanced: by how much it moved the split's event time, in milliseconds.
        drift: of the alignment group. A step spans at most half of it, as estimated.
    """
    if step is not None and rows * GROWTH < step and advanced * GROWTH < half(drift):
        # Too few rows for an estimate.
        return step
    fits = rows * half(drift) // advanced if advanced > 0 else rows * GROWTH
    most = GROWTH * max(rows, step or 0)
    return min(max(min(fits, most), (step or 0) // GROWTH, 1), MOST_STEP)


def with_step(after: SplitState, before: SplitState, drift: int | None) -> SplitState:
    """Return a split whose last range is in its watermark, with the step learned from that range.

    Args:
        after: with the watermark, or highest event time, after the range.
        before: as of the batch that read it.
        drift: of the alignment group; ``None`` where nothing is to be learned.
    """
    if before.observed == before.position:
        return after
    step = None if drift is None else before.step
    came_from, came_to = _event_times(before, after)
    if drift is not None and came_from is not None and came_to is not None:
        step = learned(step, before.position - before.observed, came_to - came_from, drift)
    return after if step == after.step else replace(after, step=step)


def _event_times(before: SplitState, after: SplitState) -> tuple[Millis | None, Millis | None]:
    """Return the event times that a split had reached before and after, up to a constant.

    Where the bound is learned, the watermark is no measure: it stands still while the bound grows.
    """
    if before.highest is not None and after.highest is not None:
        return before.highest, after.highest
    return before.watermark, after.watermark


def rows_up_to(step: int, watermark: Millis, limit: Millis, drift: int, *, at_least: int = LEAST_STEP) -> int:
    """Return how many rows may be read of a split whose watermark may reach ``limit``; 0 if hardly any.

    That is half a drift, and of a split that is far behind what separates it from half a drift before the limit. Few
    rows before the limit are left to a later batch, unless the group waits for them.
    """
    room, span = limit - watermark, half(drift)
    if room * GROWTH < span and room < drift:
        return 0
    aim = min(room, max(span, room - span))
    return max(at_least, min(step * aim // span, GROWTH * step))
