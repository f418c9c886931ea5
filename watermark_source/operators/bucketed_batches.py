"""Arrow batches by bucket: a task's batches are combined, and each is split by its rows' bucket.

It imports no Spark. It builds arrays from buffers, because pyarrow's own ``array`` imports pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_ROWS = 65_536
"""Rows at which a combined batch is complete."""
_MOST_BYTES = 16 * 1_024 * 1_024
"""Bytes at which a combined batch is complete: a larger one takes more memory."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine batches of the same columns into larger ones; none of them is empty."""
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        parts.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield concatenated(parts)
            parts, rows, size = [], 0, 0
    if parts:
        yield concatenated(parts)


def by_bucket(buckets: pa.Array, rows: pa.RecordBatch) -> tuple[pa.Array, list[pa.RecordBatch]]:
    """Return the distinct buckets, and the rows of each in their original order."""
    numbers = buckets.to_numpy()
    places = np.argsort(numbers, kind="stable")
    numbers = numbers[places]
    ordered = rows_at(rows, places)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    distinct = pa.Array.from_buffers(buckets.type, len(starts), [None, pa.py_buffer(numbers[starts])])
    return distinct, [ordered.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def concatenated(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate one or more batches; raises ``ArrowInvalid`` if a text column reaches 2 GiB."""
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays([part.column(n) for part in parts]) for n in range(parts[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=parts[0].schema)


def rows_at(rows: pa.RecordBatch, places: npt.NDArray[np.intp]) -> pa.RecordBatch:
    """Return the rows at the given places, in the order of the places."""
    return rows.take(integer_column(places.astype(np.int64)))


def integer_column(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of 64-bit integers."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binary_column(values: Sequence[bytes]) -> pa.Array:
    """Return a binary column."""
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = [pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), [None, *data])
