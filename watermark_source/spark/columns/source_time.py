"""What a source declares about its time, in the metadata of a column: how operators know it before a row has come.

The source writes it to its ``marker`` column, ``follow_watermark`` carries it to the event-time column, and Spark keeps
it there through ``select``, renames, filters and unions of equals; a column that is computed has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watermark_source.eventtime.watermark_characteristic import WatermarkCharacteristic
from watermark_source.spark.options.engine_options import EngineOptions

KEY = "watermark_source"
"""Of the metadata."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """One source's time."""

    source: str
    characteristic: WatermarkCharacteristic
    processing_time: bool
    """Whether event time is the clock."""
    group: str | None = None
    """The alignment group in which it meets other sources; ``None``: it meets nobody."""
    holds_group: bool = False
    """Whether the others of the group wait until it has read what it begins with."""
    begins_with_snapshot: bool = False
    """Whether it begins with what tables hold, and has no watermark before that is complete."""

    @classmethod
    def of_options(
        cls, options: EngineOptions, characteristic: WatermarkCharacteristic, *, begins_with_snapshot: bool
    ) -> SourceTime:
        """Return what a source is, by its user's options and by what its connector declares."""
        group = options.group
        meets = group is not None and group.store is not None
        return cls(
            source=options.source_name,
            characteristic=characteristic,
            processing_time=options.strategy.use_processing_time,
            group=group.name if group is not None and meets else None,
            holds_group=meets and begins_with_snapshot and options.alignment.holds_in_snapshot,
            begins_with_snapshot=begins_with_snapshot,
        )

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> SourceTime | None:
        """Read a column's metadata; ``None`` where nothing is declared."""
        told = metadata.get(KEY)
        if not isinstance(told, Mapping):
            return None
        return cls(
            source=told["source"],
            characteristic=WatermarkCharacteristic(told["characteristic"]),
            processing_time=told["processingTime"],
            group=told.get("group"),
            holds_group=told["holdsGroup"],
            begins_with_snapshot=told["beginsWithSnapshot"],
        )

    @property
    def tells_when_time_is_the_clocks(self) -> bool:
        """Whether it declares to send a watermark that says so (FLIP-326)."""
        return self.characteristic is WatermarkCharacteristic.ANY_WATERMARK

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a column that says this."""
        told = {
            "source": self.source,
            "characteristic": self.characteristic.value,
            "processingTime": self.processing_time,
            "holdsGroup": self.holds_group,
            "beginsWithSnapshot": self.begins_with_snapshot,
        }
        return {KEY: told if self.group is None else {**told, "group": self.group}}
