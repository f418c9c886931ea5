"""Split: the unit of reading and of every decision, and a range of positions in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from watermark_source.planning.watermark import Millis

SAMPLE: Final = 200
"""How many splits are enough to estimate the rows of all of them."""


class Split(NamedTuple):
    """One ordered log that is read on its own: a Kafka partition, a snapshot chunk, a binlog.

    ``log`` is the topic or table, ``number`` the one within it.
    """

    log: str
    number: int

    def __str__(self) -> str:
        return f"{self.log}-{self.number}"


PositionText: TypeAlias = Callable[[Split, int], str]
"""A position in a split, as users of the system write it."""


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
    """Where reading begins and must end; another task delivers what is outside ``range``."""


def sample(splits: Set[Split], size: int) -> Set[Split]:
    """Return ``size`` of the splits, or all if there are no more: always the same ones, of any log and number."""
    return splits if len(splits) <= size else frozenset(Random(size).sample(sorted(splits), size))  # noqa: S311


# Look-ups in logs whose positions are not rows. The planner stays pure: the connector answers.


class RowIndex(Protocol):
    """Where ranges of such logs may end."""

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        """Return the last position at which a range may end and has at most so many rows.

        It is the range's own end if the whole of it has no more, and the first position at which a range may end if
        there are more rows even before that one, so that every range advances.
        """


# Look-ups in a log's time index. The planner stays pure: the connector answers.


class IndexEntry(NamedTuple):
    """A row found through a time index."""

    position: int
    event_time: Millis
    size: int = 1
    """Positions it takes; where positions are not rows, those of all rows that cannot be read apart from it."""

    @property
    def after(self) -> int:
        """First position after it."""
        return self.position + self.size


class NewestTime(NamedTuple):
    """The highest event time in a log."""

    event_time: Millis
    position: int | None = None
    """Of a row that has it, or of the last that cannot be read apart from it; ``None`` where the system dates rows when
    it writes them, and shows its own time: no row that is there is later, and none that comes is earlier."""

    def is_ahead_of(self, position: int) -> bool:
        """Return whether it is known that who reads on from a position comes to that time."""
        return self.position is None or self.position >= position


class TimeIndex(Protocol):
    """Event-time look-ups in logs whose system keeps a time index."""

    shows_rows_alone: bool = True
    """Whether what it shows is delivered: ``False`` where it shows control records, or rows of aborted transactions."""

    @property
    def at_a_glance(self) -> TimeIndex:
        """The same look-ups where no plan needs them: a system that does not answer at once is a ``SourceError``.

        By default this index, whose system may be waited for.
        """
        return self

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return each log's first row whose event time is *greater* than its limit; ``None`` if there is none.

        It is the first such row of the whole log: rows before it are all at or before the limit, rows after it may be
        too.
        """
