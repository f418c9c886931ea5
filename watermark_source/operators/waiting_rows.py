"""Rows of a bucket wait for the watermark: they come in any order, and leave in event-time order.

Knows nothing of Spark: where pieces are kept is a ``PieceStore``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from watermark_source.operators.sorted_rows import (
    RowLayout,
    arriving,
    cut,
    from_bytes,
    in_order,
    rows_before,
    runs,
)
from watermark_source.operators.waiting_pieces import Sizes, SortedRun, Waiting

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
