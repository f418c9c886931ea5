"""Watermark strategies: how a split's watermark follows what its ranges say. Generators over range summaries.

A generator has no memory of its own: the split's watermark is the highest candidate so far, which is Flink's output
rule. In Flink a generator sees each record (``onEvent``); a range of one record says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from watermark_source.planning.disorder import NOTHING_SEEN, Counts, Learned, Percentile, RangeSummary, exact
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import MIN, Millis, saturating_add


def candidate(max_event_time: Millis | None, bound: int) -> Millis:
    """Return the watermark of bounded out-of-orderness: the highest event time less ``bound`` ms and one more.

    The one is there because an event with the same time may still follow. ``MIN`` before the first event, and never
    less; never ``MAX``, which only the end of a stream may say.
    """
    return MIN if max_event_time is None else saturating_add(max_event_time, -bound - 1)


class Generator(Protocol):
    """A strategy for one split."""

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return the watermark that a range leads to, ``None`` if it says nothing; it may be behind an earlier one."""
        ...


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness:
    """Follows the highest event time at a distance of ``bound`` ms; a bound of 0 is the monotonous strategy."""

    bound: int

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return ``candidate`` of the highest event time."""
        return None if summary.highest is None else candidate(summary.highest, self.bound)


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Goes by the watermarks that rows themselves carry; rows without one move nothing."""

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return the highest of them."""
        return summary.marked


# A split's watermark, as the strategy has it follow event time, and back; and which event times may move it.


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


# Learning from disorder: the bound on out-of-orderness that is in force, and what it is made of.


def learned_after(
    state: SourceState, seen: Mapping[Split, RangeSummary], percentile: Percentile | None
) -> Learned | None:
    """Return what is known of the source's disorder once the last ranges are; ``None`` if nobody learns from it."""
    if percentile is None:
        return None
    counts: list[Counts] = []
    for split, at in state.splits.items():
        if at.observed != at.position:
            counts += exact(seen[split].segments, at.highest)
    if not counts and state.learned is not None:
        return state.learned
    return percentile.after(state.learned, counts)


def in_force(strategy: WatermarkStrategy, learned: Learned | None) -> WatermarkStrategy:
    """Return the strategy with the bound that was learned."""
    if strategy.percentile is None or learned is None:
        return strategy
    return replace(strategy, out_of_orderness=min(learned.bound, strategy.percentile.most))
