"""A split's watermark, as the strategy has it follow event time, and back; and which event times may move it."""

from __future__ import annotations

from dataclasses import replace

from watermark_source.eventtime.summary import NOTHING_SEEN, RangeSummary
from watermark_source.eventtime.watermark import Millis, saturating_add
from watermark_source.eventtime.watermark_generators import BoundedOutOfOrderness, Generator, Punctuated, candidate
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.state import SplitState


def advanced(state: SplitState, seen: RangeSummary | None, strategy: WatermarkStrategy) -> SplitState:
    """Return a split with what its last range's tasks saw in its watermark, which never regresses.

    Args:
        state: as of the last planned batch.
        seen: ``None`` if there is no range that is not in the watermark yet.
        strategy: with the bound that is in force now. A bound that became less moves splits without rows too.
    """
    learns = strategy.percentile is not None
    if seen is None and (
        state.highest is None or (learns and not _leads_on(watermark_of(state.highest, strategy), state.watermark))
    ):
        return state
    highest = _later(state.highest, None if seen is None else seen.highest) if learns else None
    summary = NOTHING_SEEN if seen is None else seen
    found = None if strategy.use_processing_time else _generator(strategy).on_range(
        replace(summary, highest=highest) if learns else summary
    )  # fmt: skip
    return state.observed_to_its_end(_later(state.watermark, found), highest)


def watermark_of(event_time: Millis, strategy: WatermarkStrategy) -> Millis:
    """Return the watermark of a split whose highest event time is ``event_time``, where it goes by event times."""
    return candidate(event_time, strategy.out_of_orderness)


def event_time_of(watermark: Millis, strategy: WatermarkStrategy) -> Millis:
    """Return the highest event time that gives at most this watermark; the inverse of ``watermark_of``."""
    return saturating_add(watermark, strategy.out_of_orderness + 1)


def future_cap(now: Millis, strategy: WatermarkStrategy) -> Millis | None:
    """Return the latest event time that may move a watermark, ``None`` if any may."""
    return None if strategy.max_future_skew is None else saturating_add(now, strategy.max_future_skew)


def _generator(strategy: WatermarkStrategy) -> Generator:
    return Punctuated() if strategy.punctuated else BoundedOutOfOrderness(strategy.out_of_orderness)


def _leads_on(reached: Millis, watermark: Millis | None) -> bool:
    return watermark is None or reached > watermark


def _later(one: Millis | None, other: Millis | None) -> Millis | None:
    return one if other is None or (one is not None and one >= other) else other
