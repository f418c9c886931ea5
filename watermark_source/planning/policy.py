"""PURE. The policy: what the user decided, as the planner goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watermark_source.eventtime.percentile import Percentile
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.minimum_rows import MinimumRows
from watermark_source.planning.split import PositionText, plain_position


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPolicy:
    """What the user decided; durations in milliseconds."""

    out_of_orderness: int = 0
    percentile: Percentile | None = None
    """Learn the bound on out-of-orderness; ``out_of_orderness`` is the one in force then."""
    punctuated: bool = False
    """Only watermarks that rows carry move a split's."""
    watermark_lag: int | None = None
    """How far the watermark of a split at rest is behind the clock (``reached``), where that is not the log's own."""
    looks_ahead: bool = False
    """Whether no watermark passes a row that is known to lie behind the batch."""
    use_processing_time: bool = False
    """Event time is the clock, from when all snapshots are read on: before, there is no watermark (FLIP-326)."""
    idle_timeout: int | None = None
    idle_follows: bool = False
    """Whether the watermark goes on with the alignment group's members elsewhere while all splits are idle."""
    passes_returning: bool = False
    """Whether a split that was idle and is behind the combined watermark is left out of it until it has caught up."""
    max_drift: int | None = None
    """Alignment by event times is on exactly when this is set."""
    holds_group_in_snapshot: bool = True
    """Whether the members elsewhere of the alignment group wait for the snapshot that comes first."""
    waits_for_first: bool = False
    """Whether they wait until the source has its first watermark."""
    max_future_skew: int | None = None
    final_watermark: bool = False
    """Whether a run with an end is the stream's last: after its rows the watermark is the end of time."""
    watermark_interval: int = 1_000
    minimum_rows: MinimumRows | None = None
    """Few rows wait for more; ``None`` if they never do."""
    fail_on_data_loss: bool = True
    loss_conditions: Mapping[LossKind, str] = field(default_factory=dict)
    """What the system's usual Spark source calls each kind of loss."""
    position_text: PositionText = plain_position
    sends_markers: bool = True
    """Without markers a watermark or status alone is nothing to send: it goes into the offset with the next rows."""
