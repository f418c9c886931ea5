"""Packs: rows of one bucket as one binary value, which a Python stateful operator receives instead of single rows.

Spark passes rows to a ``StatefulProcessor`` cell by cell, and reads its state key by key. So rows are hash-partitioned
by their key into a fixed number of buckets, the rows of a bucket are packed into Arrow bytes, and the operator is keyed
by the bucket. Its output is unpacked in the same way. Every column keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from watermark_source.arrow_columns import column, repeated
from watermark_source.errors import UsageError
from watermark_source.operators.waiting_rows import RowLayout, by_bucket, from_bytes, gathered, to_bytes

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow``."""
_MOST_BUCKETS = 65_536


def need_buckets(buckets: object, caller: str) -> None:
    """Raise ``UsageError`` for what is no number of buckets."""
    if type(buckets) is not int or not 1 <= buckets <= _MOST_BUCKETS:
        raise UsageError(f"{caller}: buckets = {buckets!r}; it must be an integer from 1 to {_MOST_BUCKETS}, as in 64")


def arrow_field(field: StructField, caller: str) -> pa.Field:
    """Return a column as Arrow has it, whatever the session's time zone; raises ``UsageError`` if it has none."""
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except PySparkException as reason:
        raise UsageError(
            f"{caller}: column {field.name!r} is {field.dataType.simpleString()}, which Spark cannot pass to Python "
            f"({reason}); drop or cast it first"
        ) from None


def packer(columns: pa.Schema, packed: StructType, tags: Callable[[int], tuple[int, ...]], name: str) -> Batches:
    """Return a function that packs rows.

    Args:
        columns: those of the rows, independent of the session's time zone and string widths. The first is the bucket.
        packed: the columns of packs: the bucket, those of ``tags``, and the rows.
        tags: what packs state of the rows of a task's batch, by its number.
        name: of the function, in Spark's plan.
    """
    schema = to_arrow_schema(packed)

    def packs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(gathered(batches)):
            rows = batch.cast(columns)
            buckets, parts = by_bucket(rows.column(0), rows.remove_column(0))
            stated = zip(tags(number), schema.types[1:-1], strict=True)
            known = [repeated(value, kind, len(parts)) for value, kind in stated]
            bodies = column([to_bytes(part) for part in parts], pa.binary())
            yield pa.RecordBatch.from_arrays([buckets, *known, bodies], schema=schema)

    packs.__name__ = name
    return packs


# Packs of temporal_join.

BUCKET, IS_PROBE, ROWS = "bucket", "is_probe", "rows"
PACKED = (
    StructType()
    .add(BUCKET, "integer", nullable=False)
    .add(IS_PROBE, "boolean", nullable=False)
    .add(ROWS, "binary", nullable=False)
)
UNPACKED = StructType().add(ROWS, "binary")


def unpacker(schema: pa.Schema, name: str) -> Batches:
    """Return a function that unpacks the join's output; ``name`` is its name in Spark's plan."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pack in batch.column(0):
                yield from_bytes(pack.as_buffer(), schema)

    unpacked.__name__ = name
    return unpacked


# Packs of order_by_event_time, which number the packs of a task to restore the order of arrival.

ORDERING_BUCKET = "__bucket"
ORDERING_PACKED = (
    StructType().add(ORDERING_BUCKET, "integer").add("task", "integer").add("number", "long").add(ROWS, "binary")
)
EMITTED = StructType().add("late", "boolean").add(ROWS, "binary")
"""The operator's output."""


def row_packer(layout: RowLayout) -> Batches:
    """Return a function that packs rows behind their bucket, in types that do not depend on the session's time zone."""

    def numbered(number: int) -> tuple[int, ...]:
        context = TaskContext.get()
        return 0 if context is None else context.partitionId(), number

    columns = pa.schema([pa.field(ORDERING_BUCKET, pa.int32()), *layout.columns])
    return packer(columns, ORDERING_PACKED, numbered, "RowPacker")


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
