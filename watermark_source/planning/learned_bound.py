"""Learning from disorder: the bound on out-of-orderness that is in force, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.eventtime.disorder import Counts, exact
from watermark_source.eventtime.percentile import Learned, Percentile
from watermark_source.eventtime.summary import RangeSummary
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState


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
