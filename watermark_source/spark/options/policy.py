"""The planner's policy, from what the user set."""

from __future__ import annotations

from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.policy import Alignment, Idleness, OnLoss, PlanPolicy, WatermarkStrategy
from watermark_source.spark.options.engine_options import EngineOptions


def plan_policy(options: EngineOptions, on_loss: OnLoss, minimum_rows: MinimumRows | None) -> PlanPolicy:
    """Return what the planner goes by."""
    return PlanPolicy(
        strategy=WatermarkStrategy(
            out_of_orderness=options.out_of_orderness,
            percentile=options.percentile,
            punctuated=options.punctuated,
            watermark_lag=options.watermark_lag,
            looks_ahead=options.lookahead_rows is not None,
            use_processing_time=options.processing_time,
            max_future_skew=options.max_future_skew,
            watermark_interval=options.watermark_interval,
        ),
        idleness=Idleness(
            timeout=options.idle_timeout,
            follows_group=options.idle_follows,
            passes_returning=options.passes_returning,
        ),
        alignment=Alignment(
            max_drift=options.alignment_max_drift,
            holds_in_snapshot=options.snapshot_holds_group,
            waits_for_first=options.alignment_wait_for_first,
        ),
        on_loss=on_loss,
        final_watermark=options.final_watermark,
        minimum_rows=minimum_rows,
        sends_markers=options.include_markers,
    )
