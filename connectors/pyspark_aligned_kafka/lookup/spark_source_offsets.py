"""Offsets that Spark's own Kafka source wrote to a checkpoint, so that a query can be switched over in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_aligned_kafka.options.positions import ShapeError, integers_of
from watermark_source.planning.split import Split


def foreign_positions(offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
    """Return the positions in ``{"topic":{"0":23}}``, or ``None`` if the offset is anything else."""
    try:
        positions = integers_of(offset)
    except ShapeError:
        return None
    return positions if positions and min(positions.values()) >= 0 else None
