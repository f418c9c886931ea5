"""What a task does: read its ranges, add the engine's columns, have event time observed, report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pyarrow as pa
from pyspark.sql.types import StructType

from watermark_source.arrow_columns import bitmap, integers, repeated
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Piece
from watermark_source.spark.columns.column_names import LATE, MARKER
from watermark_source.spark.columns.markers import arrow_schema, in_micros, marker_batch, no_markers
from watermark_source.spark.connector.range_cutter import PieceReader
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.connector.read_batch import ReadBatch
from watermark_source.spark.connector.replicas import RelocatedRangeReader
from watermark_source.spark.connector.snapshots import SnapshotRangeReader
from watermark_source.spark.exchange.read_tasks import ReadTask
from watermark_source.spark.startup.garbage_collector import spare_imports
from watermark_source.spark.tasks.event_time_observer import EventTimeObserver
from watermark_source.spark.tasks.report_client import send_reports


def run_task(reader: RangeReader, task: ReadTask, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the task's markers and rows; when the last row has been taken, report what was seen."""
    if task.markers and MARKER in schema.names:
        yield marker_batch(task.markers, schema)
    if not task.ranges:
        return
    observer = EventTimeObserver(task.ranges, task.future_cap, task.late_at, task.beginnings)
    spare_imports()
    for batch in batches_of(reader, task):
        observer.observe(batch)
        if not batch.rows:
            continue
        event_time = (
            batch.event_time if task.clock is None else repeated(task.clock * 1_000, batch.event_time.type, batch.rows)
        )
        yield data_batch(batch, event_time, schema, task.late_at)
    if task.report_to is not None:
        send_reports(task.report_to, observer.reports())


def batches_of(reader: RangeReader, task: ReadTask) -> Iterator[ReadBatch]:
    """Yield the rows of a task's ranges, read as its batch says."""
    if task.relocation is not None:
        reader = cast("RelocatedRangeReader", reader).relocated(task.relocation)
    if task.whole is not None:
        (piece,) = task.ranges
        return cast("PieceReader", reader).read_piece(Piece(piece, task.whole), task.snapshot)
    if task.snapshot is not None:
        return cast("SnapshotRangeReader", reader).read_during_snapshot(task.ranges, task.snapshot)
    return reader.read(task.ranges)


def data_batch(
    batch: ReadBatch, event_time: pa.Array, schema: StructType, late_at: Millis | None = None
) -> pa.RecordBatch:
    """Return rows with the engine's own columns behind the system's; data rows have no marker."""
    columns = [*batch.columns, event_time]
    if LATE in schema.names[len(batch.columns) :]:
        columns.append(_late_column(event_time, late_at))
    if MARKER in schema.names[len(batch.columns) :]:
        columns.append(no_markers(batch.rows, schema))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _late_column(event_time: pa.Array, late_at: Millis | None) -> pa.Array:
    if late_at is None:
        return repeated(False, pa.bool_(), len(event_time))
    return pa.Array.from_buffers(
        pa.bool_(), len(event_time), [None, bitmap(integers(event_time) <= in_micros(late_at))], 0
    )
