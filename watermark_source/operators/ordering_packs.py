"""Rows packed for the way through the state operator, and unpacked behind it.

Spark hands a stateful operator written in Python one row after the other. Here such a row is a pack: the rows of one
bucket, of a task's next ten thousands of rows, as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructField, StructType

from watermark_source.arrow_columns import repeated
from watermark_source.operators.bucketed_batches import binary_column, dealt, gathered
from watermark_source.operators.sorted_rows import RowLayout, from_bytes, to_bytes

BUCKET = "__bucket"

PACKED = StructType(
    [
        StructField(BUCKET, IntegerType()),
        StructField("task", IntegerType()),
        StructField("number", LongType()),
        StructField("rows", BinaryType()),
    ]
)
"""A pack: its bucket, which task's which pack it is, by which packs are put in the order of arrival, and its rows."""
LEFT = StructType([StructField("late", BooleanType()), StructField("rows", BinaryType())])
"""Rows that leave the operator."""


@dataclass(frozen=True)
class RowPacker:
    """Packs batches whose first column is the bucket; for ``mapInArrow``."""

    layout: RowLayout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the packs of a task."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for number, rows in enumerate(gathered(batches)):
            yield self._packs(rows, task, number)

    def _packs(self, rows: pa.RecordBatch, task: int, number: int) -> pa.RecordBatch:
        buckets, parts = dealt(rows.column(0), self._in_layout(rows))
        columns = [
            buckets,
            repeated(task, pa.int32(), len(parts)),
            repeated(number, pa.int64(), len(parts)),
            binary_column([to_bytes(part) for part in parts]),
        ]
        return pa.RecordBatch.from_arrays(columns, names=PACKED.names)

    def _in_layout(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without their bucket, of the types that all packs have whatever the session's time zone."""
        schema = self.layout.columns
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns[1:], schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Unpacking:
    """Unpacks what left the operator, with the column that says whether it was late; for ``mapInArrow``."""

    layout: RowLayout
    late: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order in which they left."""
        yield from gathered(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.layout.columns.append(pa.field(self.late, pa.bool_(), nullable=False))
        for batch in batches:
            late, packs = batch.columns
            for is_late, pack in zip(late.to_numpy(zero_copy_only=False), packs, strict=True):
                rows = from_bytes(pack.as_buffer(), self.layout.columns)
                flag = repeated(bool(is_late), pa.bool_(), rows.num_rows)
                yield pa.RecordBatch.from_arrays([*rows.columns, flag], schema=schema)
