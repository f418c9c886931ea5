"""The planner's policy, from what the user set."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import PositionText
from watermark_source.spark.options.engine_options import EngineOptions


def plan_policy(
    options: EngineOptions,
    *,
    minimum_rows: MinimumRows | None,
    fail_on_data_loss: bool,
    loss_conditions: Mapping[LossKind, str],
    position_text: PositionText,
) -> PlanPolicy:
    """Return what the planner goes by."""
    return PlanPolicy(
        out_of_orderness=options.out_of_orderness,
        percentile=options.percentile,
        punctuated=options.punctuated,
        watermark_lag=options.watermark_lag,
        looks_ahead=options.lookahead_rows is not None,
        use_processing_time=options.processing_time,
        idle_timeout=options.idle_timeout,
        idle_follows=options.idle_follows,
        passes_returning=options.passes_returning,
        max_drift=options.alignment_max_drift,
        holds_group_in_snapshot=options.snapshot_holds_group,
        waits_for_first=options.alignment_wait_for_first,
        max_future_skew=options.max_future_skew,
        final_watermark=options.final_watermark,
        watermark_interval=options.watermark_interval,
        minimum_rows=minimum_rows,
        fail_on_data_loss=fail_on_data_loss,
        loss_conditions=loss_conditions,
        position_text=position_text,
        sends_markers=options.include_markers,
    )
