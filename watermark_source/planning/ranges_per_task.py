"""How the ranges of a batch are cut and put together, a Spark task each.

A split is the unit of decisions, a task the unit of work. A Spark task costs about 25 ms however little it reads, and
40 ms more where Spark talks to its Python processes over TCP, so small ranges share one; a big range is a task of its
own, or several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from watermark_source.errors import UnskippableLossError
from watermark_source.grouping import grouped
from watermark_source.planning.split import SplitRange

SMALL = 100_000
"""Positions up to which ranges are put together."""
BIG = 2_000_000
"""A range of more positions than this is cut, so that one long log still uses every core."""
SHARE = 4
"""A range of more than this part of a batch is cut too, unless it is small."""
SLACK = SMALL // 10
"""The fewest positions of a piece where a range would be cut for a small batch's sake."""


def into_tasks(
    ranges: Sequence[SplitRange], *, at_least: int | None = None, at_most: int | None = None, multiple_of: int = 1
) -> list[tuple[SplitRange, ...]]:
    """Lay ranges into tasks, keeping their order.

    Args:
        ranges: what the batch reads.
        at_least: make at least this many tasks if there are enough positions.
        at_most: put no more positions than this into one.
        multiple_of: cut ranges only at multiples of this many positions.
    """
    total = sum(r.size for r in ranges)
    if at_least is None and at_most is None and total <= SHARE * (SMALL + SLACK):
        return _as_few_as_hold(ranges, total, multiple_of)
    big, small = max(SMALL, min(BIG, -(-total // SHARE))), SMALL
    if at_least is not None:
        # Rounded down: tasks no bigger than this are never fewer than asked for.
        fair = max(1, total // at_least)
        big, small = min(big, fair), min(small, fair)
    if at_most is not None:
        big, small = min(big, at_most), min(small, at_most)
    pieces = (piece for r in ranges for piece in _cut(r, big, multiple_of))
    return list(map(tuple, grouped(pieces, attrgetter("size"), small)))


def _as_few_as_hold(ranges: Sequence[SplitRange], total: int, unit: int) -> list[tuple[SplitRange, ...]]:
    """Lay a small batch into equal tasks: of few rows a task costs more than reading them."""
    if not ranges:
        return []
    size = -(-total // max(1, -(-total // (SMALL + SLACK))))
    size = -(-size // unit) * unit
    tasks: list[list[SplitRange]] = [[]]
    room = size
    for whole in ranges:
        rest = whole
        while rest.size > room + SLACK:
            if room > SLACK and (cut := room // unit * unit):
                tasks[-1].append(rest._replace(end=rest.start + cut))
                rest = rest._replace(start=rest.start + cut)
            tasks.append([])
            room = size
        tasks[-1].append(rest)
        room -= rest.size
    return [tuple(task) for task in tasks]


def _cut(whole: SplitRange, big: int, unit: int) -> list[SplitRange]:
    # An empty range is one piece: a log without rows may have some when it is read.
    pieces = max(1, -(-whole.size // max(big // unit * unit, unit)))
    if pieces == 1:
        return [whole]
    units = -(-whole.size // unit)
    edges = [min(whole.start + units * i // pieces * unit, whole.end) for i in range(pieces + 1)]
    return [SplitRange(whole.split, a, b) for a, b in pairwise(edges)]


# Late binding: a batch from a log's beginning, or to its end, refers to the log when a task reads it.
#
# The driver cuts the log as of planning. If its beginning or end moves until then, the outermost edges move too.


class OpenRange(NamedTuple):
    """What a batch reads of one split. A late edge is where it was when the batch was planned."""

    range: SplitRange
    late_start: bool
    """Begins wherever the log begins when it is read; records deleted before that do not count as lost."""
    late_end: bool
    """Ends wherever the log ends when it is read."""
    first: int = 0
    """Nothing before this position was wanted of the log that was planned with."""
    at_least: int = 0
    """Nothing before this position is wanted, even if the log is another one by then."""
    below: int | None = None
    """Nor from this one on."""
    log_id: str | None = None
    """The id of the log that was planned with; ``None`` where the system names none."""

    def within(self, at_least: int, below: int | None, first: int = 0) -> OpenRange | None:
        """Return what of it is wanted, by the fields of these names; ``None`` if nothing is, nor will be."""
        split, start, end = self.range
        stop = end if below is None else min(end, below)
        begin = max(start, first, at_least)
        if (below is not None and below <= begin) or (begin >= stop and not self.late_end):
            return None
        wanted = SplitRange(split, min(begin, stop), stop)
        return self._replace(range=wanted, first=first, at_least=at_least, below=below)


class OpenPiece(NamedTuple):
    """What one task reads of ``whole``: all of it, or what was cut from it."""

    range: SplitRange
    whole: OpenRange

    @property
    def is_late(self) -> bool:
        """Whether it has to be bound before it is read."""
        return self.whole.late_start or self.whole.late_end


def bind(piece: OpenPiece, log: SplitRange) -> SplitRange:
    """Return the range of the piece to read, given the log's present positions; it may be empty.

    The first piece begins with the log and the last one ends with it, the cuts between stay where they are; so the
    pieces of a split never overlap, and leave nothing out.

    Raises:
        UnskippableLossError: the log ends before a start that is not late. Spark's own source fails here as well.
    """
    (split, start, end), whole = piece.range, piece.whole
    is_first, is_last = start == whole.range.start, end == whole.range.end
    if whole.late_start:
        start = log.start if is_first else max(start, log.start)
    if whole.late_end:
        end = log.end if is_last else min(end, log.end)
        if end < start and is_first and not whole.late_start:
            raise UnskippableLossError(
                f"{split} is read from position {start} on, and ends at {log.end} now: "
                "its log was created again or truncated. Begin within it, for example at its first position"
            )
    if is_first:
        # A log that is shorter than it was is another one.
        is_another = whole.late_end and log.end < whole.range.end
        start = max(start, whole.at_least, 0 if is_another else whole.first)
    if whole.below is not None:
        end = min(end, whole.below)
    return SplitRange(split, start, max(start, end))
