"""Confluent's wire format: a zero byte, the schema's id in four bytes, then the value; ids of a whole batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watermark_source.errors import EventTimeError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled

PREFIX = 5
"""Bytes before the value."""
NOT_FRAMED = -1
"""In place of an id: null, or bytes that do not begin as the format does."""


class Framed(NamedTuple):
    """The values of a batch: their bytes, where each begins (one more, the last one's end), and their schemas' ids."""

    data: npt.NDArray[np.uint8]
    edges: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int64]


@compiled("void(uint8[::1], int32[::1], boolean[::1], int64[::1])")
def _read_ids(array: Word, edges: Word, present: Word, ids: Word) -> None:
    data = address_of(array)
    for row in range(ids.shape[0]):
        at = np.int64(edges[row])
        ids[row] = NOT_FRAMED
        if present[row] and edges[row + 1] - at >= PREFIX and byte_at(data, at) == 0:
            found = np.int64(0)
            for i in range(1, PREFIX):
                found = found << 8 | byte_at(data, at + i)
            ids[row] = found


def framed(records: pa.RecordBatch, column: str) -> Framed:
    """Find the schemas of a column's values.

    Raises:
        EventTimeError: the batch has no such column of bytes.
    """
    values, content, edges = _bytes_of(records, column)
    ids = np.empty(len(values), np.int64)
    _read_ids(content, edges, _present(values), ids)
    return Framed(content, edges, ids)


def unframed(records: pa.RecordBatch, column: str) -> Framed:
    """Return a column's values that are nothing but values: id 0 for each, ``NOT_FRAMED`` for a null.

    Raises:
        EventTimeError: the batch has no such column of bytes.
    """
    values, content, edges = _bytes_of(records, column)
    return Framed(content, edges, np.where(_present(values), 0, NOT_FRAMED))


def _bytes_of(records: pa.RecordBatch, column: str) -> tuple[pa.Array, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    index = records.schema.get_field_index(column)
    if index < 0 or not pa.types.is_binary(records.schema.types[index]):
        raise EventTimeError(f"a batch of records with a binary column {column} is needed; seen {records.schema.names}")
    values = records.column(index)
    rows, (_, ends, data) = len(values), values.buffers()
    edges = np.frombuffer(ends, np.int32, rows + 1, 4 * values.offset) if rows else np.zeros(1, np.int32)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return values, content, edges


def _present(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.ascontiguousarray(values.is_valid().to_numpy(zero_copy_only=False))
