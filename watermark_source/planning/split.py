"""Split: the unit of reading and of every decision, and a range of positions in it."""

from __future__ import annotations

from collections.abc import Callable, Set
from random import Random
from typing import Final, NamedTuple, TypeAlias

SAMPLE: Final = 200
"""So many splits tell about all of them well enough to guess from."""


class Split(NamedTuple):
    """One ordered log that is read on its own: a Kafka partition, a snapshot chunk, a binlog.

    ``log`` is the topic or table, ``number`` the one within it.
    """

    log: str
    number: int

    def __str__(self) -> str:
        return f"{self.log}-{self.number}"


PositionText: TypeAlias = Callable[[Split, int], str]
"""How users of a system know a position in a split."""


def plain_position(split: Split, position: int) -> str:
    """Return the number itself: ``PositionText`` of logs whose users know their positions as numbers."""
    return str(position)


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
        return self.shown(plain_position)

    def shown(self, text: PositionText) -> str:
        """Return the range as users know it."""
        return f"{self.split}[{text(self.split, self.start)},{text(self.split, self.end)})"


class Piece(NamedTuple):
    """A part of a range that is read on its own, of a log that can be entered only where it is known to be whole."""

    range: SplitRange
    whole: SplitRange
    """Where reading begins and where it must end; what is not of ``range`` is somebody else's."""


def sample(splits: Set[Split], size: int) -> Set[Split]:
    """Return so many of the splits, or all if there are no more: always the same ones, of any log and number."""
    return splits if len(splits) <= size else frozenset(Random(size).sample(sorted(splits), size))  # noqa: S311
