"""Rows of one split as they were read: what a connector's reader yields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watermark_source import arrow_columns as arrow
from watermark_source.planning.split import Split

_MICROS = pa.timestamp("us", tz="UTC")
_HIGHEST = 2**63 - 1


def event_times(millis: pa.Array) -> pa.Array:
    """Return the ``event_time`` of a ``ReadBatch`` from milliseconds since 1970 in an ``int64`` column."""
    is_valid = arrow.is_valid(millis)
    # A time beyond the range of microseconds becomes the nearest one within it.
    within = np.clip(arrow.integers(millis), -_HIGHEST // 1_000, _HIGHEST // 1_000)
    micros = np.where(is_valid, within * 1_000, _HIGHEST)
    buffers = [arrow.bitmap(is_valid), pa.py_buffer(micros)]
    return pa.Array.from_buffers(_MICROS, len(millis), buffers, millis.null_count)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Columns decoded from one split: ``columns`` in schema order without the engine's own, each of ``rows`` values."""

    split: Split
    rows: int
    columns: tuple[pa.Array, ...]
    event_time: pa.Array
    """``timestamp[us, tz=UTC]``. A null is a row without an event time, which moves no watermark; the buffer
    holds the highest 64-bit number there."""
    reached: int | None = None
    """Microseconds: no later row of the split is earlier than this, as its log reports. It may be later than the event
    time of any row, because a log contains more than the delivered rows."""
    undated: int = 0
    """Number of rows without an event time."""
    malformed: int = 0
    """Number of rows whose value does not fit the schema that the user gave for it."""
    positions: pa.Array | None = None
    """``int64``, the position of each row; ``None`` where positions are not rows."""
    marks: pa.Array | None = None
    """``int64``, microseconds: the watermarks of the rows that carry one, in order; ``None``: not used."""
