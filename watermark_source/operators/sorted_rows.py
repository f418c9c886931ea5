"""Rows in event-time order, as columns: sorted, cut where the watermark is, and to bytes and back.

Only Arrow and numpy: a row is never a Python object. Bytes are Arrow's record batch messages without their schema,
which is the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watermark_source.operators.bucketed_batches import as_one, numbers_column, taken
from watermark_source.operators.waiting_pieces import Place, Span

ARRIVAL = "__arrival"
"""The column that tells rows of one event time apart, in what waits."""
_NO_TIME = np.iinfo(np.int64).min

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of the rows, and which of them is event time."""

    columns: pa.Schema
    time: int

    @property
    def waiting(self) -> pa.Schema:
        """The columns of rows that wait."""
        return self.columns.append(pa.field(ARRIVAL, pa.int64()))

    def times(self, rows: pa.RecordBatch) -> Int64s:
        """Return event times in microseconds; rows without one come before all others."""
        found = pc.fill_null(rows.column(self.time).view(pa.int64()), _NO_TIME)
        return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def cut(rows: pa.RecordBatch, is_first: npt.NDArray[np.bool_]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows for which it is true, and the others."""
    if not is_first.any():
        return rows.slice(0, 0), rows
    if is_first.all():
        return rows, rows.slice(0, 0)
    return taken(rows, np.flatnonzero(is_first)), taken(rows, np.flatnonzero(~is_first))


def arriving(rows: pa.RecordBatch, layout: RowLayout, first: int) -> pa.RecordBatch:
    """Return rows that have come in this order, as rows that wait: the first is the ``first``-th of all."""
    arrival = numbers_column(np.arange(first, first + rows.num_rows))
    return pa.RecordBatch.from_arrays([*rows.columns, arrival], schema=layout.waiting)


def in_order(parts: Sequence[pa.RecordBatch], layout: RowLayout) -> pa.RecordBatch:
    """Return waiting rows in event-time order, and those of one time as they came."""
    rows = as_one(parts)
    return taken(rows, np.lexsort((_arrivals(rows), layout.times(rows))))


def rows_before(place: Place, rows: pa.RecordBatch, layout: RowLayout) -> int:
    """Return how many of some rows that are in order stand before a place."""
    times = layout.times(rows)
    first, end = np.searchsorted(times, place.time), np.searchsorted(times, place.time, side="right")
    return int(first + np.searchsorted(_arrivals(rows)[first:end], place.arrival))


def _arrivals(rows: pa.RecordBatch) -> Int64s:
    return rows.column(rows.num_columns - 1).to_numpy()  # type: ignore[no-any-return]


def runs(rows: pa.RecordBatch, layout: RowLayout, size: int) -> Iterator[tuple[Span, bytes]]:
    """Cut rows that are in order into runs of about so many bytes, as bytes."""
    times, arrivals = layout.times(rows), _arrivals(rows)
    length = max(1, size * rows.num_rows // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, length):
        part = rows.slice(start, length)
        data = to_bytes(part)
        yield Span(Place(int(times[start]), int(arrivals[start])), len(data)), data


def to_bytes(rows: pa.RecordBatch) -> bytes:
    """Return rows as bytes, without their schema."""
    return rows.serialize().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that ``to_bytes`` made bytes of."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)
