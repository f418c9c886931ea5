"""The watermark of each split: what the rows of its last range advance it to, and what is learned from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from watermark_source.planning.disorder import NOTHING_SEEN, Counts, Learned, RangeSummary, exact
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import Millis


def advanced(state: SplitState, seen: RangeSummary | None, strategy: WatermarkStrategy) -> SplitState:
    """Return a split whose last range is in its watermark, which never regresses.

    Args:
        state: as of the last planned batch.
        seen: what tasks observed in that range; ``None`` if the watermark includes it already.
        strategy: with the bound in force. A bound that became smaller advances splits without rows too.
    """
    if seen is None and state.highest is None:
        return state
    summary = NOTHING_SEEN if seen is None else seen
    highest = strategy.kept_highest(state.highest, summary)
    found = strategy.on_range(summary if highest is None else replace(summary, highest=highest))
    watermark = later(state.watermark, found)
    if seen is None and (highest, watermark) == (state.highest, state.watermark):
        return state
    return state.observed_to_its_end(watermark, highest)


def later(one: Millis | None, other: Millis | None) -> Millis | None:
    """Return the later of two watermarks, either of which may be missing."""
    return one if other is None or (one is not None and one >= other) else other


def learned_after(
    state: SourceState, seen: Mapping[Split, RangeSummary], strategy: WatermarkStrategy
) -> Learned | None:
    """Return what is known of the source's disorder after its last ranges; ``None`` if the strategy learns nothing."""

    def counts() -> Iterator[Counts]:
        for split, at in state.splits.items():
            if at.observed != at.position:
                yield from exact(seen[split].segments, at.highest)

    return strategy.after(state.learned, counts())
