"""Marker rows: how watermarks and status changes travel with the data, in a nullable struct column ``marker``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from watermark_source.arrow_columns import column
from watermark_source.planning.catch_up import is_done
from watermark_source.planning.snapshot_ranges import snapshot_split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.status_transitions import changed_status
from watermark_source.spark.column_names import MARKER

_THOUSAND_YEARS = 1_000 * 366 * 86_400_000
_MOST_MILLIS = (2**63 - 1) // 1_000 - _THOUSAND_YEARS
"""So that what Spark adds, a join's interval for example, is a timestamp too."""

SNAPSHOT_COMPLETE = "snapshot_complete"
"""The reason of a status of the whole source, once: what a query began with has been read, in batches before."""

CAUGHT_UP = "caught_up"
"""The reason of a status of the whole source, once: its logs have been read to the ends that they had at the start."""


_REASONS: Final[Mapping[SplitStatus, str]] = {
    SplitStatus.ACTIVE: "has rows to read",
    SplitStatus.IDLE: "nothing to read, or nothing with an event time, for longer than idleTimeout",
    SplitStatus.PAUSED: "ahead of its alignment group by more than alignmentMaxDrift",
}
"""They follow from two offsets alone, on any replay, so they use no fact but the status."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker row; ``watermark`` in milliseconds."""

    type: str
    log: str | None
    split: int | None
    watermark: int | None
    status: str | None
    use_processing_time: bool
    reason: str | None


def markers_between(before: SourceState, after: SourceState) -> tuple[Marker, ...]:
    """Return the markers of the batch that leads from one state to the next: a pure function of the two offsets.

    Every batch carries the combined watermark, if there is one: a restarted Spark knows only the global watermark and
    needs each source's own again. ACTIVE precedes the watermark and IDLE follows it, so that none is sent while idle.
    Markers of snapshots precede both: their end is where a watermark may begin.
    """
    first = _of_snapshots(before, after)
    last: list[Marker] = []
    for split in sorted(changed_status(before.splits, after.splits)):
        state = after.splits[split]
        row = Marker(
            "status", split.log, split.number, state.watermark, state.status.name.lower(),
            after.use_processing_time, _REASONS[state.status],
        )  # fmt: skip
        (last if state.status is SplitStatus.IDLE else first).append(row)
    if after.watermark is not None:
        first.append(Marker("watermark", None, None, after.watermark, None, after.use_processing_time, None))
    return (*first, *last)


def _of_snapshots(before: SourceState, after: SourceState) -> list[Marker]:
    """Return the markers of snapshots, and of logs, that have been read to their ends."""
    was, now = before.snapshots, after.snapshots
    read = sorted((now.complete or frozenset()) - (was.complete or frozenset()))
    on_clock = after.use_processing_time
    found = [
        Marker("status", *snapshot_split(log), None, "finished", on_clock, "its snapshot is read to its end")
        for log in read
    ]
    at_first = before.watermark is None and not before.use_processing_time
    if at_first and was.frontiers and not now.frontiers:
        found.append(Marker("status", None, None, None, "active", on_clock, SNAPSHOT_COMPLETE))
    if is_done(after.catch_up) and not is_done(before.catch_up):
        found.append(Marker("status", None, None, None, "active", on_clock, CAUGHT_UP))
    return found


@lru_cache(maxsize=8)
def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema Spark compares the first batch with."""
    return to_arrow_schema(schema, timezone="UTC")


def marker_batch(markers: tuple[Marker, ...], schema: StructType) -> pa.RecordBatch:
    """Return the marker rows as one batch; every column but ``marker`` is null."""
    arrow = arrow_schema(schema)
    rows = [m if m.watermark is None else replace(m, watermark=in_micros(m.watermark)) for m in markers]
    fields = list(arrow.field(MARKER).type)
    members = [column([getattr(row, f.name) for row in rows], f.type) for f in fields]
    marker = pa.StructArray.from_arrays(members, fields=fields)
    columns = [marker if field.name == MARKER else pa.nulls(len(markers), field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def in_micros(watermark: int) -> int:
    """Return a watermark as Spark's timestamps have it; the ends of time are 291 000 years off there."""
    return min(max(watermark, -_MOST_MILLIS), _MOST_MILLIS) * 1_000


@lru_cache(maxsize=4)
def _null_markers(marker_type: pa.DataType, capacity: int) -> pa.Array:
    return pa.nulls(capacity, marker_type)


def no_markers(rows: int, schema: StructType) -> pa.Array:
    """Return the ``marker`` column of data rows: nulls, cut from one array that is kept."""
    capacity = 1 << max(14, (rows - 1).bit_length())
    return _null_markers(arrow_schema(schema).field(MARKER).type, capacity)[:rows]
