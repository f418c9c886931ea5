"""Rows hash-partitioned into buckets: a task's batches put together, and cut by the bucket of each row.

Knows nothing of Spark. pyarrow's own ``array`` imports pandas, and is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_ROWS = 65_536
"""So many rows of a task are held together ..."""
_MOST_BYTES = 16 * 1_024 * 1_024
"""... or so many bytes: more make larger packs, and take more memory."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the same columns put together, none of them empty."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield as_one(held)
            held, rows, size = [], 0, 0
    if held:
        yield as_one(held)


def dealt(buckets: pa.Array, rows: pa.RecordBatch) -> tuple[pa.Array, list[pa.RecordBatch]]:
    """Return the buckets that occur, and of each its rows, as they came."""
    numbers = buckets.to_numpy()
    places = np.argsort(numbers, kind="stable")
    numbers = numbers[places]
    ordered = taken(rows, places)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    found = pa.Array.from_buffers(buckets.type, len(starts), [None, pa.py_buffer(numbers[starts])])
    return found, [ordered.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def as_one(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches, at least one, one after the other as one; raises ``ArrowInvalid`` if a text column has 2 GiB."""
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays([part.column(n) for part in parts]) for n in range(parts[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)


def taken(rows: pa.RecordBatch, places: npt.NDArray[np.intp]) -> pa.RecordBatch:
    """Return the rows at some places, in that order."""
    return rows.take(numbers_column(places.astype(np.int64)))


def numbers_column(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of numbers."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binary_column(values: Sequence[bytes]) -> pa.Array:
    """Return a column of bytes."""
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = [pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), [None, *data])
