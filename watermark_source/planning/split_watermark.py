"""A split's watermark, as the strategy has it follow event time, and back; and which event times may move it."""

from __future__ import annotations

from watermark_source.eventtime.strategy import candidate
from watermark_source.eventtime.watermark import Millis, saturating_add
from watermark_source.planning.observation import Observation, PlanPolicy


def watermark_of(event_time: Millis, policy: PlanPolicy) -> Millis:
    """Return the watermark of a split whose highest event time is ``event_time``."""
    return candidate(event_time, policy.out_of_orderness)


def event_time_of(watermark: Millis, policy: PlanPolicy) -> Millis:
    """Return the highest event time that gives at most this watermark; the inverse of ``watermark_of``."""
    return saturating_add(watermark, policy.out_of_orderness + 1)


def future_cap(observation: Observation, policy: PlanPolicy) -> Millis | None:
    """Return the latest event time that may move a watermark, ``None`` if any may."""
    return None if policy.max_future_skew is None else saturating_add(observation.now, policy.max_future_skew)
