"""Many rows as one: rows of a stream that an operator in Python takes by the thousand, as Arrow, not one by one.

Spark hands rows to a ``StatefulProcessor`` cell by cell, and asks its state key by key. So rows are dealt into a fixed
number of buckets by their key, those of one bucket travel as one binary value (an Arrow stream), and the operator is
keyed by the bucket. What it returns is unpacked in the same way. All types stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, StructField, StructType

BUCKET, IS_PROBE, ROWS = "bucket", "is_probe", "rows"
PACKED = StructType(
    [
        StructField(BUCKET, IntegerType(), nullable=False),
        StructField(IS_PROBE, BooleanType(), nullable=False),
        StructField(ROWS, BinaryType(), nullable=False),
    ]
)
UNPACKED = StructType([StructField(ROWS, BinaryType())])
_MOST_ROWS, _MOST_BYTES = 100_000, 16 << 20
"""Of rows that are held to be dealt at once: more make larger packs, and take more memory."""
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


def of_bytes(packs: Iterable[bytes]) -> pa.Table:
    """Return the rows of one or more packs that have the same columns."""
    return pa.concat_tables([pa.ipc.open_stream(pack).read_all() for pack in packs])


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
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield _dealt(pa.Table.from_batches(held).cast(columns), is_probe)
            held, rows, size = [], 0, 0
    if held:
        yield _dealt(pa.Table.from_batches(held).cast(columns), is_probe)


def _dealt(table: pa.Table, is_probe: bool) -> pa.RecordBatch:
    """Return one row for each bucket that occurs."""
    buckets = table.column(0).to_numpy()
    order = np.argsort(buckets, kind="stable")
    sorted_buckets = buckets[order]
    rows = table.drop_columns(table.column_names[0]).take(pa.array(order)).combine_chunks()
    starts = np.flatnonzero(np.diff(sorted_buckets, prepend=sorted_buckets[0] - 1))
    ends = np.append(starts[1:], len(order))
    packs = [to_bytes(rows.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    columns = [
        pa.array(sorted_buckets[starts], pa.int32()),
        pa.array(np.full(len(starts), is_probe)),
        pa.array(packs, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def unpacker(schema: pa.Schema, name: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that takes packs apart; ``name`` is how Spark's plan shows it."""

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pack in batch.column(0):
                yield from pa.ipc.open_stream(pack.as_buffer()).read_all().cast(schema).to_batches()

    unpacked.__name__ = name
    return unpacked
