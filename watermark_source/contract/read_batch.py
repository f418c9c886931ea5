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
    # What is further away than microseconds can tell is as far away as they can.
    within = np.clip(arrow.integers(millis), -_HIGHEST // 1_000, _HIGHEST // 1_000)
    micros = np.where(is_valid, within * 1_000, _HIGHEST)
    buffers = [arrow.bitmap(is_valid), pa.py_buffer(micros)]
    return pa.Array.from_buffers(_MICROS, len(millis), buffers, millis.null_count)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Columns decoded from one split: ``columns`` in schema order without the engine's own, all of ``rows`` length."""

    split: Split
    rows: int
    columns: tuple[pa.Array, ...]
    event_time: pa.Array
    """``timestamp[us, tz=UTC]``; a null is no event time, moves nothing, and holds the highest number there is."""
    reached: int | None = None
    """Microseconds: no later row of the split is earlier than this, as its log reports. It may be later than the event
    time of any row, because a log contains more than the delivered rows."""
    undated: int = 0
    """Rows in which no event time was found."""
    positions: pa.Array | None = None
    """``int64``, where each row is; ``None`` where positions are no rows."""
    marks: pa.Array | None = None
    """``int64``, microseconds: the watermarks of the rows that carry one, in order; ``None``: not used."""
