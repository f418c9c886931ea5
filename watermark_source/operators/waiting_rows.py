"""Rows of a bucket wait for the watermark: they come in any order, and leave in event-time order.

Knows nothing of Spark: where pieces are kept is a ``PieceStore``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from watermark_source.operators.bucketed_batches import as_one, numbers_column, taken

# Where the pieces of the rows that wait are kept: a map of Spark's state, of the bucket that Spark is at.


_NUMBER = StructType([StructField("number", LongType())])
_ROWS = StructType([StructField("rows", BinaryType())])


class MapPieces:
    """A ``PieceStore`` in the state of this name: its keys are one number, its values one binary cell."""

    def __init__(self, handle: StatefulProcessorHandle, name: str) -> None:
        self._state = handle.getMapState(name, _NUMBER, _ROWS)

    def read(self, number: int) -> bytes:
        """Return a piece."""
        return bytes(self._state.getValue((number,))[0])  # type: ignore[index]

    def write(self, number: int, data: bytes) -> None:
        """Keep a piece."""
        self._state.updateValue((number,), (data,))

    def remove(self, number: int) -> None:
        """Forget a piece."""
        self._state.removeKey((number,))


# The watermark that an operator's timer waits for. Spark's are whole milliseconds, event times are microseconds.


FIRST_WATERMARK = 1
"""Milliseconds: Spark's watermark is 0 while there is none."""


def watermark_past(micros: int) -> int:
    """Return the first watermark that has passed an event time, in milliseconds."""
    return max(FIRST_WATERMARK, -(-micros // 1_000))


# Which pieces of rows wait for the watermark, which of them are due, and which are too small: arithmetic alone.
#
# A *bucket* holds the waiting rows of some keys as pieces. A piece is a run of rows in event-time order, and of one
# time in that of arrival; pieces may overlap. The index says of each where it begins, so that a watermark touches
# only the pieces that it has reached. Times are microseconds since 1970-01-01 UTC.


_HEAD = struct.Struct("<2q")
_PIECE = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How rows are cut into pieces, and how many pieces are in memory."""

    piece: int = 256 * 1_024
    """About the bytes of a piece: what is read and written again when the watermark is within it."""
    most_small: int = 16
    """So many pieces of less than half of that are left alone; one more, and they become one run."""
    wave: int = 16 * 1_024 * 1_024
    """Due pieces are taken into memory until they are so many bytes, and let go as far as no other piece begins."""


class Place(NamedTuple):
    """Where a row stands among all that wait."""

    time: int
    arrival: int


@dataclass(frozen=True, slots=True)
class Span:
    """A run of rows: its first row's place, and its size in bytes."""

    first: Place
    size: int


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A run of rows in the store, under a number."""

    number: int
    span: Span


@dataclass(frozen=True, slots=True)
class Wave:
    """Pieces that are read together, after which everything before a place can leave."""

    pieces: tuple[SortedRun, ...]
    until: Place


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a bucket."""

    pieces: tuple[SortedRun, ...] = ()
    next_number: int = 0
    arrived: int = 0
    """How many rows have come so far: the next one's place among rows of one time."""

    @property
    def earliest(self) -> int | None:
        """The first event time that waits; ``None``: nothing does."""
        return min((piece.span.first.time for piece in self.pieces), default=None)

    @property
    def alarm(self) -> int | None:
        """The first watermark that lets a row go, in milliseconds."""
        return None if self.earliest is None else watermark_past(self.earliest)

    def small(self, sizes: Sizes) -> tuple[SortedRun, ...]:
        """Return the pieces that ought to become one run, none while they are few."""
        found = tuple(piece for piece in self.pieces if piece.span.size < sizes.piece // 2)
        return found if len(found) > sizes.most_small else ()

    def waves(self, watermark: int, sizes: Sizes) -> Iterator[Wave]:
        """Yield the pieces that the watermark has reached, in the order in which they begin.

        A row leaves with the first wave whose ``until`` is behind it; the last one's is behind the watermark.
        """
        due = sorted(
            (piece for piece in self.pieces if piece.span.first.time <= watermark), key=lambda piece: piece.span.first
        )
        taken: list[SortedRun] = []
        size = 0
        for piece in due:
            if size >= sizes.wave:
                yield Wave(tuple(taken), piece.span.first)
                taken, size = [], 0
            taken.append(piece)
            size += piece.span.size
        if taken:
            yield Wave(tuple(taken), Place(watermark + 1, 0))

    def with_rows(self, count: int) -> Waiting:
        """Return the index after so many rows have come."""
        return replace(self, arrived=self.arrived + count)

    def exchanged(self, gone: Sequence[SortedRun], runs: Sequence[Span]) -> tuple[Waiting, tuple[SortedRun, ...]]:
        """Return the index with new runs in the place of pieces, and the numbers that the runs were given."""
        numbers = {piece.number for piece in gone}
        new = tuple(SortedRun(self.next_number + n, span) for n, span in enumerate(runs))
        kept = tuple(piece for piece in self.pieces if piece.number not in numbers)
        return replace(self, pieces=kept + new, next_number=self.next_number + len(new)), new

    def encode(self) -> bytes:
        """Return it as bytes."""
        pieces = (_PIECE.pack(p.number, *p.span.first, p.span.size) for p in self.pieces)
        return _HEAD.pack(self.next_number, self.arrived) + b"".join(pieces)

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        """Return what ``encode`` made bytes of."""
        next_number, arrived = _HEAD.unpack_from(data)
        found = _PIECE.iter_unpack(data[_HEAD.size :])
        pieces = (SortedRun(number, Span(Place(time, arrival), size)) for number, time, arrival, size in found)
        return cls(tuple(pieces), next_number, arrived)


# Rows in event-time order, as columns: sorted, cut where the watermark is, and to bytes and back.
#
# Only Arrow and numpy: a row is never a Python object. Bytes are Arrow's record batch messages without their schema,
# which is the same for all.


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


Micros = int


class PieceStore(Protocol):
    """Where the bytes of pieces are kept."""

    def read(self, number: int) -> bytes:
        """Return a piece."""

    def write(self, number: int, data: bytes) -> None:
        """Keep a piece."""

    def remove(self, number: int) -> None:
        """Forget a piece."""


@dataclass
class Buffer:
    """One bucket, for the time of one call: ``waiting`` is what its index has become."""

    layout: RowLayout
    store: PieceStore
    waiting: Waiting = field(default_factory=Waiting)
    sizes: Sizes = field(default_factory=Sizes)

    def take_in(self, rows: pa.RecordBatch, watermark: Micros | None) -> pa.RecordBatch:
        """Keep rows until the watermark has passed them; return those that it has passed before, or that have no time.

        Rows of one event time will leave in the order in which they were taken in.
        """
        times = self.layout.times(rows)
        late, in_time = cut(rows, times <= (np.iinfo(np.int64).min if watermark is None else watermark))
        if in_time.num_rows:
            numbered = arriving(in_time, self.layout, self.waiting.arrived)
            self.waiting = self.waiting.with_rows(in_time.num_rows)
            self._exchange((), in_order([numbered], self.layout))
        return late

    def merge_small(self) -> None:
        """Make one run of many small pieces: after many small batches, reading them would be slow."""
        if small := self.waiting.small(self.sizes):
            self._exchange(small, in_order(self._read(small), self.layout))

    def release(self, watermark: Micros) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to and at the watermark in event-time order; they wait no longer."""
        stays: list[pa.RecordBatch] = []
        gone: list[SortedRun] = []
        for wave in self.waiting.waves(watermark, self.sizes):
            ordered = in_order([*stays, *self._read(wave.pieces)], self.layout)
            leaving = rows_before(wave.until, ordered, self.layout)
            gone.extend(wave.pieces)
            stays = [ordered.slice(leaving)]
            if leaving:
                yield ordered.slice(0, leaving).select(list(range(len(self.layout.columns))))
        if gone:
            self._exchange(gone, stays[0])

    def _read(self, pieces: Sequence[SortedRun]) -> list[pa.RecordBatch]:
        return [from_bytes(self.store.read(piece.number), self.layout.waiting) for piece in pieces]

    def _exchange(self, gone: Sequence[SortedRun], ordered: pa.RecordBatch) -> None:
        """Put rows that are in order in the place of pieces."""
        new = list(runs(ordered, self.layout, self.sizes.piece))
        self.waiting, given = self.waiting.exchanged(gone, [span for span, _ in new])
        for piece in gone:
            self.store.remove(piece.number)
        for piece, (_, data) in zip(given, new, strict=True):
            self.store.write(piece.number, data)
