"""PURE. The combined watermark of a source: before a batch is read, and what it will be when it has been."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.eventtime.combine import recompute
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.planning.observation import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import watermark_of
from watermark_source.planning.state import SourceState, SplitState, SplitStatus


def combined(held: Millis | None, splits: Mapping[Split, SplitState]) -> Millis | None:
    """Return the combined watermark of splits, which is never before ``held``; ``None`` before the first."""
    members = ((MIN if t.watermark is None else t.watermark, t.status is SplitStatus.IDLE) for t in splits.values())
    found = recompute(members, MIN if held is None else held).timestamp
    return None if found == MIN else found


def with_rows(planned: SourceState, reached: Mapping[Split, Millis], policy: PlanPolicy) -> SourceState:
    """Return a planned batch with the watermark that its own rows lead to, so that it goes out with them.

    Spark applies a batch's watermark at its end, to the next one: no row of this batch is late for it.

    Args:
        planned: as of ``plan``, whose watermark is that of the rows before the batch.
        reached: an event time that each planned range is known to hold, at best its highest. A range that is left out
            moves nothing.
        policy: the user's decisions.

    The splits' own watermarks stay those of the rows before: what the tasks report is folded in one batch later, and
    leads at least as far, unless a row is gone by then. The offset holds the decision, so that a replay is equal.
    """
    if planned.use_processing_time or planned.frontiers:
        return planned
    cap = planned.future_cap
    moved = dict(planned.splits)
    for split, event_time in reached.items():
        at = moved[split]
        # Beyond the cap is a row that moves nothing; which one is the highest that does, nobody knows.
        if at.position == at.observed or (cap is not None and event_time > cap):
            continue
        watermark = watermark_of(event_time, policy)
        moved[split] = replace(at, watermark=watermark if at.watermark is None else max(watermark, at.watermark))
    return replace(planned, watermark=combined(planned.watermark, moved))
