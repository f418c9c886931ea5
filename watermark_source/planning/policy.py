"""The policy: the user's decisions, in the form that the planner uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from watermark_source.planning.disorder import Learned
from watermark_source.planning.split import PositionText, Split, plain_position
from watermark_source.planning.strategy import Bounded, ProcessingTime, WatermarkStrategy
from watermark_source.planning.watermark import Millis, saturating_add

# Minimum rows: a batch waits until it has enough rows, or until it has waited long enough.


@dataclass(frozen=True, slots=True)
class MinimumRows:
    """How long few rows wait for more before they are read."""

    rows: int
    max_delay: Millis


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How many rows a batch of a stream has."""

    most: int | None = None
    """``None``: no limit."""
    minimum: MinimumRows | None = None
    """Fewer rows wait for more, up to a delay; ``None``: rows never wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """When the watermark stops waiting for a split, and what it does then."""

    timeout: int | None = None
    """How long a split must be quiet to be idle; ``None``: it never is."""
    learned: bool = False
    """Whether it is learned for each split; ``timeout`` is then for splits with too few observations."""
    follows_group: bool = False
    """Whether the watermark follows other sources of the alignment group while all splits are idle."""
    passes_returning: bool = False
    """Whether a split that was idle and is behind the combined watermark is left out of it until it has caught up."""

    def timeout_of(self, split: Split, learned: Mapping[Split, int]) -> int | None:
        """Return for how many milliseconds a split must be quiet to be idle; ``learned`` has learned timeouts."""
        return learned.get(split, self.timeout)


class GroupHold(Enum):
    """What the other members of an alignment group wait for when a source begins."""

    NOTHING = "nothing"
    SNAPSHOT = "snapshot"
    """For what it reads before it has a watermark: a snapshot, or its logs up to their ends."""
    FIRST_WATERMARK = "firstWatermark"
    """For that, and until it has its first watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the members of an alignment group wait for each other."""

    max_drift: int | None = None
    """Alignment by event times is on exactly when this is set."""
    hold: GroupHold = GroupHold.SNAPSHOT
    """What the other members wait for at first."""


class LossKind(Enum):
    """What happened to rows that were due; the system's usual Spark source has conditions of its own for each."""

    SPLIT_GONE = auto()
    LOG_SHORTER = auto()
    """The log ends before our position."""
    LOG_REPLACED = auto()
    """The log was created again, or has other rows before our position."""
    ROWS_EXPIRED = auto()
    """The log begins after our position."""
    NEW_SPLIT_EXPIRED = auto()
    """A split that is new has lost its first rows already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnLoss:
    """What happens when rows were deleted before they were read, and how it is reported."""

    fails: bool = True
    conditions: Mapping[LossKind, str] = field(default_factory=dict)
    """The error condition of each kind of loss in the system's usual Spark source."""
    position_text: PositionText = plain_position
    positions_are_rows: bool = True
    """Whether positions count rows: then so many are gone at most as lie between two of them."""


EVERY_LOSS_FAILS: Final = OnLoss()


class AfterCatchUp(Enum):
    """What begins once a source has caught up."""

    WATERMARK = "watermark"
    """The watermark; before, there is none, and the alignment group waits."""
    CLOCK = "clock"
    """Processing time; before, time is that of the events."""


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
    after_catch_up: AfterCatchUp | None = None
    """What begins once the logs have been read to the ends found at the start; ``None``: nothing waits for that."""
    sends_markers: bool = True
    """Without markers a watermark or status alone is nothing to send: it goes into the offset with the next rows."""

    def future_cap(self, now: Millis) -> Millis | None:
        """Return the latest event time that may move a watermark, ``None`` if any may."""
        return None if self.max_future_skew is None else saturating_add(now, self.max_future_skew)

    def in_force(self, *, use_processing_time: bool) -> PlanPolicy:
        """Return the policy after a batch whose event time was the clock, or was not."""
        return self.on_clock if use_processing_time and self.after_catch_up is AfterCatchUp.CLOCK else self

    def with_learned(self, learned: Learned | None) -> PlanPolicy:
        """Return the policy with the bound that was learned."""
        strategy = self.strategy.with_learned(learned)
        return self if strategy is self.strategy else replace(self, strategy=strategy)

    def with_drift(self, max_drift: int | None) -> PlanPolicy:
        """Return the policy with another max drift."""
        return replace(self, alignment=replace(self.alignment, max_drift=max_drift))

    @property
    def on_clock(self) -> PlanPolicy:
        """The policy once event time is the clock: no event time of a row matters any more."""
        return replace(self.with_drift(None), strategy=ProcessingTime(), max_future_skew=None, idleness=Idleness())
