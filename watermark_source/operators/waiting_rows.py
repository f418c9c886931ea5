"""Buffer: the rows of a bucket that wait for the watermark. They arrive in any order, and leave in event-time order.

A bucket keeps its rows as *pieces*: runs of rows sorted by event time, then by arrival. Pieces may overlap. An index
(``Waiting``) holds where each piece begins, so that a watermark reads only the pieces it has reached. Event times are
microseconds since 1970-01-01 UTC. Rows are Arrow columns, never Python objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from watermark_source.grouping import grouped

# Arrow batches by bucket: a task's batches are combined, and each is split by its rows' bucket.
#
# It imports no Spark. It builds arrays from buffers, because pyarrow's own ``array`` imports pandas.


_MOST_ROWS = 65_536
"""Rows of a combined batch."""
_MOST_BYTES = 16 * 1_024 * 1_024
"""Bytes of one: a larger one takes more memory."""


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of the same columns as larger ones; none of them is empty."""
    filled = (batch for batch in batches if batch.num_rows)
    sized = grouped(filled, lambda b: max(b.nbytes, b.num_rows * (_MOST_BYTES // _MOST_ROWS)), _MOST_BYTES)
    return map(concatenated, sized)


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
    # It copies one alone, too.
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def rows_at(rows: pa.RecordBatch, places: npt.NDArray[np.intp]) -> pa.RecordBatch:
    """Return the rows at the given places, in the order of the places."""
    return rows.take(integer_column(places.astype(np.int64)))


def integer_column(values: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of 64-bit integers."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


FIRST_WATERMARK = 1
"""Milliseconds: Spark reports a watermark of 0 before the first one."""
ARRIVAL = "__arrival"
"""The column that orders waiting rows of one event time."""
_NO_TIME = np.iinfo(np.int64).min
_HEAD = struct.Struct("<2q")
_PIECE = struct.Struct("<4q")
_NUMBER = StructType([StructField("number", LongType())])
_ROWS = StructType([StructField("rows", BinaryType())])

Int64s = npt.NDArray[np.int64]
Micros = int


def watermark_past(micros: int) -> int:
    """Return the first watermark, in whole milliseconds, that has passed an event time in microseconds."""
    return max(FIRST_WATERMARK, -(-micros // 1_000))


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of the rows, and the number of the event-time column."""

    columns: pa.Schema
    time: int

    @property
    def waiting(self) -> pa.Schema:
        """The columns of rows that wait."""
        return self.columns.append(pa.field(ARRIVAL, pa.int64()))

    def times(self, rows: pa.RecordBatch) -> Int64s:
        """Return event times in microseconds; rows without an event time sort before all others."""
        times = pc.fill_null(rows.column(self.time).view(pa.int64()), _NO_TIME)
        return times.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits on pieces, in the state and in memory."""

    piece: int = 256 * 1_024
    """Approximate bytes of a piece. A piece that the watermark has reached in part is read and rewritten."""
    most_small: int = 16
    """How many pieces of less than half that size may accumulate before they are merged."""
    wave: int = 16 * 1_024 * 1_024
    """Bytes of due pieces that are read into memory at once."""


class Place(NamedTuple):
    """The sort key of a waiting row."""

    time: int
    arrival: int


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A piece: a run of rows in the store, under a number."""

    number: int
    first: Place
    """Of its first row."""
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The index of a bucket's pieces. Pure arithmetic."""

    pieces: tuple[SortedRun, ...] = ()
    next_number: int = 0
    arrived: int = 0
    """Number of rows that have arrived so far, which is the arrival number of the next row."""

    @property
    def alarm(self) -> int | None:
        """The first watermark, in milliseconds, that releases a row; ``None`` if no row waits."""
        return min((watermark_past(piece.first.time) for piece in self.pieces), default=None)

    def waves(self, watermark: int, sizes: Sizes) -> Iterator[tuple[list[SortedRun], Place]]:
        """Return the pieces that the watermark has reached, in the order of their first rows, and where each wave ends.

        A wave is read together, and ends where the next one begins, the last one at the watermark. A row leaves with
        the first wave whose end is after it.
        """
        due = sorted((piece for piece in self.pieces if piece.first.time <= watermark), key=lambda piece: piece.first)
        waves = list(grouped(due, lambda piece: piece.size, sizes.wave))
        ends = [*(following[0].first for following in waves[1:]), Place(watermark + 1, 0)]
        return zip(waves, ends, strict=False)

    def with_replaced(
        self, old: Sequence[SortedRun], runs: Sequence[tuple[Place, int]]
    ) -> tuple[Waiting, tuple[SortedRun, ...]]:
        """Return the index with new runs in place of old pieces, and the new pieces with their numbers.

        ``runs``: the place of each one's first row, and its size.
        """
        numbers = {piece.number for piece in old}
        new = tuple(SortedRun(self.next_number + n, *run) for n, run in enumerate(runs))
        kept = tuple(piece for piece in self.pieces if piece.number not in numbers)
        return replace(self, pieces=kept + new, next_number=self.next_number + len(new)), new

    def encode(self) -> bytes:
        """Return the index as bytes."""
        pieces = (_PIECE.pack(p.number, *p.first, p.size) for p in self.pieces)
        return _HEAD.pack(self.next_number, self.arrived) + b"".join(pieces)

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        """Return the index that ``encode`` wrote."""
        next_number, arrived = _HEAD.unpack_from(data)
        rows = _PIECE.iter_unpack(data[_HEAD.size :])
        pieces = (SortedRun(number, Place(time, arrival), size) for number, time, arrival, size in rows)
        return cls(tuple(pieces), next_number, arrived)


@dataclass
class Buffer:
    """One bucket during one call. ``waiting`` is the current index, which the caller writes to the state."""

    layout: RowLayout
    store: MapState
    """See ``piece_state``."""
    waiting: Waiting = field(default_factory=Waiting)
    sizes: Sizes = field(default_factory=Sizes)

    def take_in(self, batches: Iterable[pa.RecordBatch], watermark: int) -> Iterator[pa.RecordBatch]:
        """Store the rows of Spark's batch that its watermark, in milliseconds, has not passed; yield the others."""
        # Nothing is late before the first watermark, not even a snapshot's rows of 1970.
        passed = watermark * 1_000 if watermark >= FIRST_WATERMARK else None
        for rows in gathered(batches):
            if (late := self.add(rows, passed)).num_rows:
                yield late
        self.merge_small()

    def add(self, rows: pa.RecordBatch, watermark: Micros | None) -> pa.RecordBatch:
        """Store the rows that the watermark has not passed; return the others, and those without an event time.

        Rows of one event time will leave in the order in which they were added.
        """
        times = self.layout.times(rows)
        late, on_time = partitioned(rows, times <= (_NO_TIME if watermark is None else watermark))
        if on_time.num_rows:
            first, end = self.waiting.arrived, self.waiting.arrived + on_time.num_rows
            columns = [*on_time.columns, integer_column(np.arange(first, end))]
            numbered = pa.RecordBatch.from_arrays(columns, schema=self.layout.waiting)
            self.waiting = replace(self.waiting, arrived=end)
            self._replace((), in_order([numbered], self.layout))
        return late

    def merge_small(self) -> None:
        """Merge small pieces if there are many of them: after many small batches, reading them would be slow."""
        small = [piece for piece in self.waiting.pieces if piece.size < self.sizes.piece // 2]
        if len(small) > self.sizes.most_small:
            self._replace(small, in_order(self._read(small), self.layout))

    def release(self, watermark: Micros) -> Iterator[pa.RecordBatch]:
        """Remove the rows up to and at the watermark, and yield them in event-time order."""
        remaining: list[pa.RecordBatch] = []
        old: list[SortedRun] = []
        for pieces, until in self.waiting.waves(watermark, self.sizes):
            ordered = in_order([*remaining, *self._read(pieces)], self.layout)
            leaving = rows_before(until, ordered, self.layout)
            old.extend(pieces)
            remaining = [ordered.slice(leaving)]
            if leaving:
                yield ordered.slice(0, leaving).select(list(range(len(self.layout.columns))))
        if old:
            self._replace(old, remaining[0])

    def _read(self, pieces: Sequence[SortedRun]) -> list[pa.RecordBatch]:
        stored: Iterator[Any] = (self.store.getValue((piece.number,)) for piece in pieces)
        return [from_bytes(bytes(data), self.layout.waiting) for (data,) in stored]

    def _replace(self, old: Sequence[SortedRun], ordered: pa.RecordBatch) -> None:
        """Write sorted rows in place of old pieces."""
        new = list(runs(ordered, self.layout, self.sizes.piece))
        self.waiting, pieces = self.waiting.with_replaced(old, [(first, len(data)) for first, data in new])
        for piece in old:
            self.store.removeKey((piece.number,))
        for piece, (_, data) in zip(pieces, new, strict=True):
            self.store.updateValue((piece.number,), (data,))


def piece_state(handle: StatefulProcessorHandle, name: str) -> MapState:
    """Return the state that holds the bytes of pieces by their numbers, for the key that Spark is processing."""
    return handle.getMapState(name, _NUMBER, _ROWS)


def partitioned(rows: pa.RecordBatch, is_first: npt.NDArray[np.bool_]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows where ``is_first`` is true, and the others."""
    if not is_first.any():
        return rows.slice(0, 0), rows
    if is_first.all():
        return rows, rows.slice(0, 0)
    return rows_at(rows, np.flatnonzero(is_first)), rows_at(rows, np.flatnonzero(~is_first))


def in_order(parts: Sequence[pa.RecordBatch], layout: RowLayout) -> pa.RecordBatch:
    """Return waiting rows sorted by event time, then by arrival."""
    rows = concatenated(parts)
    return rows_at(rows, np.lexsort((_arrivals(rows), layout.times(rows))))


def rows_before(place: Place, rows: pa.RecordBatch, layout: RowLayout) -> int:
    """Return how many sorted rows are before a place."""
    times = layout.times(rows)
    first, end = np.searchsorted(times, place.time), np.searchsorted(times, place.time, side="right")
    return int(first + np.searchsorted(_arrivals(rows)[first:end], place.arrival))


def runs(rows: pa.RecordBatch, layout: RowLayout, size: int) -> Iterator[tuple[Place, bytes]]:
    """Split sorted rows into runs of about ``size`` bytes, and yield the first row's place and the bytes of each."""
    times, arrivals = layout.times(rows), _arrivals(rows)
    length = max(1, size * rows.num_rows // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, length):
        part = rows.slice(start, length)
        yield Place(int(times[start]), int(arrivals[start])), to_bytes(part)


def to_bytes(rows: pa.RecordBatch) -> bytes:
    """Return rows as an Arrow record-batch message, without the schema, which all pieces share."""
    return rows.serialize().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that ``to_bytes`` wrote."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def _arrivals(rows: pa.RecordBatch) -> Int64s:
    return rows.column(rows.num_columns - 1).to_numpy()  # type: ignore[no-any-return]
