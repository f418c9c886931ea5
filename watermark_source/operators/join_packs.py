"""Many rows as one: rows of a stream that an operator in Python takes by the thousand, as Arrow, not one by one.

Spark hands rows to a ``StatefulProcessor`` cell by cell, and asks its state key by key. So rows are hash-partitioned
by their key into a fixed number of buckets, those of one bucket travel as one binary value (an Arrow stream), and the
operator is keyed by the bucket. What it returns is unpacked in the same way. All types stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, StructField, StructType

from watermark_source.arrow_columns import repeated
from watermark_source.operators.bucketed_batches import binary_column, dealt, gathered

BUCKET, IS_PROBE, ROWS = "bucket", "is_probe", "rows"
PACKED = StructType(
    [
        StructField(BUCKET, IntegerType(), nullable=False),
        StructField(IS_PROBE, BooleanType(), nullable=False),
        StructField(ROWS, BinaryType(), nullable=False),
    ]
)
UNPACKED = StructType([StructField(ROWS, BinaryType())])
_ARROW = pa.schema(
    [
        pa.field(BUCKET, pa.int32(), nullable=False),
        pa.field(IS_PROBE, pa.bool_(), nullable=False),
        pa.field(ROWS, pa.binary(), nullable=False),
    ]
)

Batches = Iterable[pa.RecordBatch]


def to_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def of_bytes(packs: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of packs."""
    for pack in packs:
        yield from pa.ipc.open_stream(pack)


@dataclass(frozen=True)
class Packer:
    """Deals rows into packs; for ``mapInArrow``."""

    columns: pa.Schema
    """Of the rows, as they are in packs whatever the session says of time zones and widths. The first is the bucket."""
    is_probe: bool
    name: str
    """How Spark's plan shows it."""

    def function(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function for ``mapInArrow``."""

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _packs(batches, self.columns, self.is_probe)

        packed.__name__ = self.name
        return packed


def _packs(batches: Batches, columns: pa.Schema, is_probe: bool) -> Iterator[pa.RecordBatch]:
    for batch in gathered(batches):
        rows = batch.cast(columns)
        buckets, parts = dealt(rows.column(0), rows.remove_column(0))
        packs = binary_column([to_bytes(part) for part in parts])
        yield pa.RecordBatch.from_arrays([buckets, repeated(is_probe, pa.bool_(), len(parts)), packs], schema=_ARROW)


def unpacker(schema: pa.Schema, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that takes packs apart; ``name`` is how Spark's plan shows it."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pack in batch.column(0):
                yield from pa.ipc.open_stream(pack.as_buffer()).read_all().cast(schema).to_batches()

    unpacked.__name__ = name
    return unpacked
