"""Which pieces of rows wait for the watermark, which of them are due, and which are too small: arithmetic alone.

A *bucket* holds the waiting rows of some keys as pieces. A piece is a run of rows in event-time order, and of one time
in that of arrival; pieces may overlap. The index says of each where it begins, so that a watermark touches only the
pieces that it has reached. Times are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.operators.timer_watermark import watermark_past

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
