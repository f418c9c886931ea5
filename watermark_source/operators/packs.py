"""Packs: rows of one bucket as one binary value, which a Python stateful operator receives instead of single rows.

Spark passes rows to a ``StatefulProcessor`` cell by cell, and reads its state key by key. So rows are hash-partitioned
by their key into a fixed number of buckets, the rows of a bucket are packed into Arrow bytes, and the operator is keyed
by the bucket. Its output is unpacked in the same way. Every column keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructField, StructType

from watermark_source.arrow_columns import column, repeated
from watermark_source.operators.waiting_rows import RowLayout, by_bucket, from_bytes, gathered, to_bytes

# Packs of temporal_join.

BUCKET, IS_PROBE, ROWS = "bucket", "is_probe", "rows"
PACKED = StructType(
    [
        StructField(BUCKET, IntegerType(), nullable=False),
        StructField(IS_PROBE, BooleanType(), nullable=False),
        StructField(ROWS, BinaryType(), nullable=False),
    ]
)
UNPACKED = StructType([StructField(ROWS, BinaryType())])
_ARROW = to_arrow_schema(PACKED)


def packer(
    columns: pa.Schema, name: str, *, is_probe: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that packs the rows of one side of a join.

    Args:
        columns: those in packs, independent of the session's time zone and string widths. The first is the bucket.
        name: of the function, in Spark's plan.
        is_probe: which side.
    """

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in gathered(batches):
            rows = batch.cast(columns)
            buckets, parts = by_bucket(rows.column(0), rows.remove_column(0))
            sides = repeated(is_probe, pa.bool_(), len(parts))
            packs = column([stream_bytes(part) for part in parts], pa.binary())
            yield pa.RecordBatch.from_arrays([buckets, sides, packs], schema=_ARROW)

    packed.__name__ = name
    return packed


def unpacker(schema: pa.Schema, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that unpacks the join's output; ``name`` is its name in Spark's plan."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pack in batch.column(0):
                yield from pa.ipc.open_stream(pack.as_buffer()).read_all().cast(schema).to_batches()

    unpacked.__name__ = name
    return unpacked


def stream_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def rows_of(packs: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of packs that ``stream_bytes`` wrote."""
    for pack in packs:
        yield from pa.ipc.open_stream(pack)


# Packs of order_by_event_time, which number the packs of a task to restore the order of arrival.

ORDERING_BUCKET = "__bucket"
ORDERING_PACKED = StructType(
    [
        StructField(ORDERING_BUCKET, IntegerType()),
        StructField("task", IntegerType()),
        StructField("number", LongType()),
        StructField("rows", BinaryType()),
    ]
)
EMITTED = StructType([StructField("late", BooleanType()), StructField("rows", BinaryType())])
"""The operator's output."""


@dataclass(frozen=True)
class RowPacker:
    """Packs the rows of batches whose first column is the bucket; for ``mapInArrow``."""

    layout: RowLayout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packs of a task."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for number, rows in enumerate(gathered(batches)):
            yield self._packs(rows, task, number)

    def _packs(self, rows: pa.RecordBatch, task: int, number: int) -> pa.RecordBatch:
        # In types that do not depend on the session's time zone.
        schema = self.layout.columns
        cast = [each.cast(field.type) for each, field in zip(rows.columns[1:], schema, strict=True)]
        buckets, parts = by_bucket(rows.column(0), pa.RecordBatch.from_arrays(cast, schema=schema))
        columns = [
            buckets,
            repeated(task, pa.int32(), len(parts)),
            repeated(number, pa.int64(), len(parts)),
            column([to_bytes(part) for part in parts], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=ORDERING_PACKED.names)


@dataclass(frozen=True)
class RowUnpacker:
    """Unpacks the operator's output, and adds the column of late rows; for ``mapInArrow``."""

    layout: RowLayout
    late: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order in which the operator emitted them."""
        yield from gathered(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.layout.columns.append(pa.field(self.late, pa.bool_(), nullable=False))
        for batch in batches:
            late, packs = batch.columns
            for is_late, pack in zip(late.to_numpy(zero_copy_only=False), packs, strict=True):
                rows = from_bytes(pack.as_buffer(), self.layout.columns)
                flag = repeated(bool(is_late), pa.bool_(), rows.num_rows)
                yield pa.RecordBatch.from_arrays([*rows.columns, flag], schema=schema)
