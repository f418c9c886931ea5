"""A split's watermark, as the strategy has it follow event time, and back; and which event times may move it."""

from __future__ import annotations

from dataclasses import replace

from watermark_source.eventtime.strategy import BoundedOutOfOrderness, Generator, Punctuated, candidate
from watermark_source.eventtime.summary import NOTHING_SEEN, RangeSummary
from watermark_source.eventtime.watermark import Millis, saturating_add
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.state import SplitState


def folded(state: SplitState, seen: RangeSummary | None, policy: PlanPolicy) -> SplitState:
    """Return a split with what its last range's tasks saw in its watermark, which never regresses.

    Args:
        state: as of the last planned batch.
        seen: ``None`` if there is no range that is not in the watermark yet.
        policy: with the bound that is in force now. A bound that became less moves splits without rows too.
    """
    learns = policy.percentile is not None
    if seen is None and (state.highest is None or (learns and not _has_come_closer(state, policy))):
        return state
    highest = _later(state.highest, None if seen is None else seen.highest) if learns else None
    summary = NOTHING_SEEN if seen is None else seen
    found = None if policy.use_processing_time else _generator(policy).on_range(
        replace(summary, highest=highest) if learns else summary
    )  # fmt: skip
    return replace(state, observed=state.position, watermark=_later(state.watermark, found), highest=highest)


def watermark_of(event_time: Millis, policy: PlanPolicy) -> Millis:
    """Return the watermark of a split whose highest event time is ``event_time``, where it goes by event times."""
    return candidate(event_time, policy.out_of_orderness)


def event_time_of(watermark: Millis, policy: PlanPolicy) -> Millis:
    """Return the highest event time that gives at most this watermark; the inverse of ``watermark_of``."""
    return saturating_add(watermark, policy.out_of_orderness + 1)


def future_cap(observation: Observation, policy: PlanPolicy) -> Millis | None:
    """Return the latest event time that may move a watermark, ``None`` if any may."""
    return None if policy.max_future_skew is None else saturating_add(observation.now, policy.max_future_skew)


def _generator(policy: PlanPolicy) -> Generator:
    return Punctuated() if policy.punctuated else BoundedOutOfOrderness(policy.out_of_orderness)


def _has_come_closer(state: SplitState, policy: PlanPolicy) -> bool:
    reached = None if state.highest is None else watermark_of(state.highest, policy)
    return reached is not None and (state.watermark is None or reached > state.watermark)


def _later(one: Millis | None, other: Millis | None) -> Millis | None:
    return one if other is None or (one is not None and one >= other) else other
