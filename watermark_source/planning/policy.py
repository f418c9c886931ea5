"""The policy: what the user decided, as the planner goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.split import PositionText, Split, plain_position
from watermark_source.planning.strategy import Bounded, WatermarkStrategy
from watermark_source.planning.watermark import Millis, saturating_add

# Minimum rows: a batch waits until enough rows are there for it, or until it has waited long enough.


@dataclass(frozen=True, slots=True)
class MinimumRows:
    """What rows wait for before they are read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` of Spark's source."""

    rows: int
    max_delay: Millis


def waits_for_more(minimum: MinimumRows, waiting: int, since_rows: Millis | None) -> bool:
    """Return whether rows wait for more to come.

    Args:
        minimum: the rule.
        waiting: positions that could be read now.
        since_rows: time since a batch last read rows; ``None`` in a process that has read none, whose first rows never
            wait.
    """
    return waiting < minimum.rows and since_rows is not None and since_rows < minimum.max_delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """When nobody waits for a split, and what the watermark does then."""

    timeout: int | None = None
    """How long a split must be quiet to be idle; ``None``: it never is."""
    learned: bool = False
    """Whether that is learned of each split; ``timeout`` is then for those of which little is known."""
    follows_group: bool = False
    """Whether the watermark goes on with the alignment group's members elsewhere while all splits are idle."""
    passes_returning: bool = False
    """Whether a split that was idle and is behind the combined watermark is left out of it until it has caught up."""

    def timeout_of(self, split: Split, learned: Mapping[Split, int]) -> int | None:
        """Return for how many milliseconds a split must be quiet to be idle: as is learned of it, where it is."""
        return learned.get(split, self.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the members of an alignment group wait for each other."""

    max_drift: int | None = None
    """Alignment by event times is on exactly when this is set."""
    holds_in_snapshot: bool = True
    """Whether the members elsewhere wait for the snapshot that comes first."""
    waits_for_first: bool = False
    """Whether they wait until the source has its first watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnLoss:
    """What is done about rows that are gone before they were read, and how it is told."""

    fails: bool = True
    conditions: Mapping[LossKind, str] = field(default_factory=dict)
    """What the system's usual Spark source calls each kind of loss."""
    position_text: PositionText = plain_position


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPolicy:
    """What the user decided; durations in milliseconds."""

    strategy: WatermarkStrategy = field(default_factory=Bounded)
    max_future_skew: int | None = None
    """How far after the driver's clock an event time may be and still move a watermark; ``None``: no limit."""
    watermark_interval: int = 1_000
    """While no rows come, the shortest time between two batches that only advance the watermark."""
    idleness: Idleness = field(default_factory=Idleness)
    alignment: Alignment = field(default_factory=Alignment)
    on_loss: OnLoss = field(default_factory=OnLoss)
    final_watermark: bool = False
    """Whether a run with an end is the stream's last: after its rows the watermark is the end of time."""
    minimum_rows: MinimumRows | None = None
    """Few rows wait for more; ``None`` if they never do."""
    sends_markers: bool = True
    """Without markers a watermark or status alone is nothing to send: it goes into the offset with the next rows."""

    def future_cap(self, now: Millis) -> Millis | None:
        """Return the latest event time that may move a watermark, ``None`` if any may."""
        return None if self.max_future_skew is None else saturating_add(now, self.max_future_skew)
