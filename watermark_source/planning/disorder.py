"""Disorder: how far rows are behind the highest event time before them, counted on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from watermark_source.planning.watermark import MIN, Millis

BUCKETS: Final = 126
"""Bucket 0 is less than 512 microseconds, the last one 2^40 (12 days) and more; between them each doubling has four."""
_PARTS: Final = 4
_FIRST_EXPONENT: Final = 9

SEGMENT: Final = 65_536
"""Positions of a range after which running maxima restart, counted from the range's beginning. Tasks' shares of a range
end there, so the result does not depend on the number of tasks."""

Counts: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of bucket and rows, in bucket order, without empty buckets."""


class DisorderSegment(NamedTuple):
    """The counts of one segment of a range.

    A task does not know which rows lie before its share. So in a segment that does not begin where the range does, the
    rows of the first half only give the highest event time so far, and those of the second half are counted. The counts
    are exact if the first half reaches the highest event time of all rows before it: see ``exact``.
    """

    before: Millis | None
    """Highest event time before the counted rows within the segment; ``None`` if there is none."""
    highest: Millis | None
    """Highest event time in the segment."""
    counts: Counts


def exact(segments: Iterable[DisorderSegment], highest: Millis | None) -> Iterator[Counts]:
    """Yield the counts of a range's segments that are exact, ``highest`` being the highest event time before it."""
    for segment in segments:
        if highest is None or (segment.before is not None and segment.before >= highest):
            yield segment.counts
        if segment.highest is not None:
            highest = Millis(max(segment.highest, MIN if highest is None else highest))


def summed(counts: Iterable[Counts]) -> Counts:
    """Return the sum of counts."""
    total: dict[int, int] = {}
    for each in counts:
        for bucket, rows in each:
            total[bucket] = total.get(bucket, 0) + rows
    return tuple(sorted(total.items()))


def rows_of(counts: Counts) -> int:
    """Return how many rows were counted."""
    return sum(rows for _, rows in counts)


def bound_of(bucket: int) -> int | None:
    """Return the least ``maxOutOfOrderness`` in milliseconds that makes no row of a bucket late; ``None``: no such."""
    if bucket >= BUCKETS - 1:
        return None
    if not bucket:
        return 1
    doubling, part = divmod(bucket - 1, _PARTS)
    micros = (_PARTS + part + 1) << (_FIRST_EXPONENT + doubling - 2)
    return -(-micros // 1_000)


# What the percentile strategy has learned, as the offset keeps it.


MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Learned:
    """The disorder of a source: of all splits together, so that a quiet split need not learn by itself."""

    bound: int
    """Milliseconds: the bound in force."""
    recent: Counts = ()
    earlier: Counts = ()
    """Rows before ``recent``: at least half of the rows that the bound is learned from, once there were enough."""


# Range summaries: the event times of the rows of one range of a split.


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """The same range always has the same summary, however many tasks read it, so a replay gives the same plan."""

    highest: Millis | None = None
    """Highest event time not beyond the future cap; ``None`` if there was none."""
    marked: Millis | None = None
    """Highest watermark that a row carries, not beyond the future cap; ``None`` if none carries one."""
    segments: tuple[DisorderSegment, ...] = ()
    """Disorder of the rows, in position order; empty where the strategy does not observe it."""
    summaries: tuple[str, ...] = ()
    """What a user's class has summed up of its parts, as canonical JSON, in position order: see ``summarized_by``."""
    is_whole: bool = True
    """Whether all of the range was read: rows that are deleted or unreadable may have had any event time."""

    @property
    def is_undated(self) -> bool:
        """Return whether no row has an event time that counts, nor a watermark, nor a summary."""
        return self.is_whole and self.highest is None and self.marked is None and not self.summaries


NOTHING_SEEN: Final = RangeSummary()
