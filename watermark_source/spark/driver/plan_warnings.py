"""Warnings of what in a plan may not be what the user wants: new splits, a watermark of the future, losses."""

from __future__ import annotations

import logging

from watermark_source.errors import listed
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.state import SourceState
from watermark_source.watermark_text import watermark_text

_log = logging.getLogger(__name__)

_FAR_FUTURE = 3_600_000
"""Milliseconds after which a watermark of the future is told, where nothing keeps it from there."""


def warn_of(planned: Plan, before: SourceState, now: Millis, strategy: WatermarkStrategy) -> None:
    """Log warnings of a plan that began with the state ``before`` at ``now`` by the wall clock."""
    added = planned.state.splits.keys() - before.splits.keys()
    if added and before.watermark is not None and not strategy.use_processing_time:
        _log.warning(
            "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
            "watermark, %s, are late", listed(added), watermark_text(before.watermark),
        )  # fmt: skip
    watermark, soon = planned.state.watermark, now + _FAR_FUTURE
    if strategy.max_future_skew is None and watermark != MAX and (before.watermark or MIN) <= soon < (watermark or MIN):
        _log.warning(
            "the watermark, %s, is more than an hour in the future: rows of now are late. A clock may be wrong; "
            "with maxFutureSkew (1 hour, say) such a row would be counted and move no watermark",
            watermark_text(watermark),
        )  # fmt: skip
    for loss in planned.losses:
        _log.warning("failOnDataLoss is false, going on: %s", loss.text)
