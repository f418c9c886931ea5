"""Rows of one split as they were read: what a connector's reader yields."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watermark_source.planning.split import Split


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Columns decoded from one split: ``columns`` in schema order without the engine's own, all of ``rows`` length."""

    split: Split
    rows: int
    columns: tuple[pa.Array, ...]
    event_time: pa.Array
    """``timestamp[us, tz=UTC]``; a null is no event time, moves nothing, and holds the highest number there is."""
    reached: int | None = None
    """Microseconds: no later row of the split is earlier than this, as its log says by itself. The event time that a
    log has reached may be later than that of any row: of what it tells, rows are only a part."""
    undated: int = 0
    """Rows in which no event time was found."""
