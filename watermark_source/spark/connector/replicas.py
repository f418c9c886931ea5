"""What a connector offers whose system has replicas, so that a query can go on with another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from watermark_source.eventtime.watermark import Millis
from watermark_source.spark.connector.range_reader import RangeReader


class Passage(NamedTuple):
    """How a copy is read that has other positions: up to one of its own, without what it is told to leave out."""

    position: int
    left_out: str


class Replicas(Protocol):
    """One of a system's replicas: logs of the same changes, each with positions of its own, in orders that may differ.

    ``done`` names a set of changes in words that every copy understands; ``None``: the copy had no such words.
    """

    @property
    def system(self) -> str:
        """Which copy this is."""
        ...

    @property
    def left_out_at_first(self) -> str | None:
        """What a new query leaves out, if it begins with that rather than at a position."""
        ...

    def done_before(self, position: int) -> str | None:
        """Return all that lies before a position: one of the ends that were asked for, or where the query was."""
        ...

    def confirm(self, position: int, done: str | None) -> None:
        """Raise ``OffsetError`` if something else than this lies before a position of this copy now."""
        ...

    def remember(self, position: int, done: str | None) -> None:
        """Take in that this lies before a position of this copy."""
        ...

    def resumed(self, position: int, done: str | None, end: int | None = None) -> int:
        """Return where to go on behind a position before which lies this: there, or where the log begins by now.

        That is behind the position only if nothing but this is gone; rows that were not read are for others to miss.
        ``end`` of the batch that begins there: a log that keeps both or neither need not be asked.
        """
        ...

    def begin(self, done: str | None) -> int:
        """Return a position before which there is nothing but this.

        Raises ``OffsetError`` if the copy lacks some of it, and ``DataLossError`` if it no longer has what comes next.
        """
        ...

    def shift_after(self, position: int) -> int:
        """Return what has to be added to all positions of this copy so that they are beyond one of another copy's."""
        ...

    def between(self, start: str | None, end: str | None) -> Passage:
        """Return how to read exactly what ``end`` has and ``start`` has not; raises as ``begin``."""
        ...


@dataclass(frozen=True, slots=True)
class Relocation:
    """How the ranges of a batch are read, which may have begun on another copy, or after another copy was read."""

    copy: str
    """Whose positions the ranges are of: any other must not be read."""
    shift: int = 0
    """What to add to this copy's positions where rows tell them."""
    floor: Millis | None = None
    """No event that the log's own clock dates is taken to be earlier than this: it was on time, but clocks of replicas
    differ, and a clock may be set back."""
    left_out: str | None = None
    """Read all up to the range's end but this; ``None``: by positions."""
    as_of: tuple[int, str] | None = None
    """Chunks are as of all of this, wherever it lies, and their rows are of a position; ``None``: as of the end."""


class RelocatedRangeReader(Protocol):
    """A ``RangeReader`` of a system with replicas."""

    def relocated(self, relocation: Relocation) -> RangeReader:
        """Return the reader for such a batch."""
        ...
