"""What a task does with its pack: read, add the engine's columns, watch event time, report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.report import RangeReport
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.spark.arrow import repeated
from watermark_source.spark.collector import spare_imports
from watermark_source.spark.column_names import MARKER
from watermark_source.spark.connector import (
    PieceReader,
    RangeReader,
    ReadBatch,
    RelocatedRangeReader,
    SnapshotRangeReader,
)
from watermark_source.spark.markers import arrow_schema, marker_batch, no_markers
from watermark_source.spark.packs import Pack
from watermark_source.spark.reports import send_reports


class Observer:
    """Watches the event times of ranges, column by column. Of several ranges of a split the first has all its rows."""

    def __init__(self, ranges: Sequence[SplitRange], future_cap: Millis | None) -> None:
        self._ranges = ranges
        # Event times are microseconds in the columns; a whole millisecond at the cap still counts.
        self._cap = None if future_cap is None else future_cap * 1_000 + 999
        self._highest: dict[Split, int] = {}
        self._rows: dict[Split, int] = {}
        self._future: dict[Split, int] = {}

    def observe(self, batch: ReadBatch) -> None:
        """Take a batch's event times in."""
        times = batch.event_time
        micros = np.frombuffer(times.buffers()[1], dtype=np.int64, count=len(times), offset=8 * times.offset)
        split = batch.split
        self._rows[split] = self._rows.get(split, 0) + len(micros)
        if batch.reached is not None and (self._cap is None or batch.reached <= self._cap):
            self._highest[split] = max(batch.reached, self._highest.get(split, batch.reached))
        if not len(micros):
            return
        highest = int(micros.max())
        if self._cap is not None and highest > self._cap:
            counted = micros[micros <= self._cap]
            self._future[split] = self._future.get(split, 0) + len(micros) - len(counted)
            if not len(counted):
                return
            highest = int(counted.max())
        self._highest[split] = max(highest, self._highest.get(split, highest))

    def reports(self) -> list[RangeReport]:
        """Return what was seen, a report a range."""
        rows, future = dict(self._rows), dict(self._future)
        return [
            RangeReport(
                range=r,
                max_event_time=None if (m := self._highest.get(r.split)) is None else Millis(m // 1_000),
                rows=rows.pop(r.split, 0),
                future_rows=future.pop(r.split, 0),
            )
            for r in self._ranges
        ]


def observe(batches: Iterable[ReadBatch], ranges: Sequence[SplitRange], future_cap: Millis | None) -> list[RangeReport]:
    """Read batches only for what their event times say."""
    observer = Observer(ranges, future_cap)
    for batch in batches:
        observer.observe(batch)
    return observer.reports()


def read_pack(reader: RangeReader, pack: Pack, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the pack's markers and rows; when the last row has been taken, report what was seen."""
    if pack.markers and MARKER in schema.names:
        yield marker_batch(pack.markers, schema)
    if not pack.ranges:
        return
    observer = Observer(pack.ranges, pack.future_cap)
    spare_imports()
    for batch in batches_of(reader, pack):
        observer.observe(batch)
        if not batch.rows:
            continue
        event_time = (
            batch.event_time if pack.clock is None else repeated(pack.clock * 1_000, batch.event_time.type, batch.rows)
        )
        yield data_batch(batch, event_time, schema)
    if pack.report_to is not None:
        send_reports(pack.report_to, observer.reports())


def batches_of(reader: RangeReader, pack: Pack) -> Iterator[ReadBatch]:
    """Yield the rows of a pack's ranges, read as its batch says."""
    if pack.relocation is not None:
        reader = cast("RelocatedRangeReader", reader).relocated(pack.relocation)
    if pack.whole is not None:
        (piece,) = pack.ranges
        return cast("PieceReader", reader).read_piece(Piece(piece, pack.whole), pack.snapshot)
    if pack.snapshot is not None:
        return cast("SnapshotRangeReader", reader).read_during_snapshot(pack.ranges, pack.snapshot)
    return reader.read(pack.ranges)


def data_batch(batch: ReadBatch, event_time: pa.Array, schema: StructType) -> pa.RecordBatch:
    """Return rows with the engine's own columns behind the system's; data rows have no marker."""
    arrow = arrow_schema(schema)
    engine_columns = (event_time, no_markers(batch.rows, schema)) if MARKER in schema.names else (event_time,)
    return pa.RecordBatch.from_arrays([*batch.columns, *engine_columns], schema=arrow)
