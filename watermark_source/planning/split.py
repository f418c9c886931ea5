"""Split: the unit of reading and of every decision, and a range of positions in it."""

from __future__ import annotations

from typing import NamedTuple


class Split(NamedTuple):
    """One ordered log that is read on its own: a Kafka partition, a snapshot chunk, a binlog.

    ``log`` is the topic or table, ``number`` the one within it.
    """

    log: str
    number: int

    def __str__(self) -> str:
        return f"{self.log}-{self.number}"


class SplitRange(NamedTuple):
    """Positions ``start`` (first one read) to ``end`` (first one *not* read) of one split.

    A position is an integer that orders the split's log; its meaning is the connector's.
    """

    split: Split
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of positions, which is at least the number of rows."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.split}[{self.start},{self.end})"
