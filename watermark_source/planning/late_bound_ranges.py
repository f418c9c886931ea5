"""Late binding: a batch from a log's beginning, or to its end, means the log as a task finds it.

The driver cuts what is there when it plans. Where the log has moved since, the outermost edges move with it.
"""

from __future__ import annotations

from typing import NamedTuple

from watermark_source.errors import DataLossError
from watermark_source.planning.split import SplitRange


class OpenRange(NamedTuple):
    """What a batch reads of one split. A late edge is where it was when the batch was planned."""

    range: SplitRange
    late_start: bool
    """Begins wherever the log begins when it is read; what is gone before that is no loss."""
    late_end: bool
    """Ends wherever the log ends when it is read."""
    first: int = 0
    """Nothing before this position was wanted of the log that was planned with."""
    at_least: int = 0
    """Nothing before this position is wanted, whatever becomes of the log."""
    below: int | None = None
    """Nor from this one on."""

    def within(self, at_least: int, below: int | None, first: int = 0) -> OpenRange | None:
        """Return what of it is wanted, by the fields of these names; ``None`` if nothing is, nor will be."""
        split, start, end = self.range
        stop = end if below is None else min(end, below)
        begin = max(start, first, at_least)
        if (below is not None and below <= begin) or (begin >= stop and not self.late_end):
            return None
        return OpenRange(
            SplitRange(split, min(begin, stop), stop), self.late_start, self.late_end, first, at_least, below
        )


class OpenPiece(NamedTuple):
    """What one task reads of ``whole``: all of it, or what was cut from it."""

    range: SplitRange
    whole: OpenRange

    @property
    def is_late(self) -> bool:
        """Whether it has to be bound before it is read."""
        return self.whole.late_start or self.whole.late_end


def bind(piece: OpenPiece, log: SplitRange) -> SplitRange:
    """Return what to read of the piece, given what its log holds now; it is empty if that is nothing.

    The first piece begins with the log and the last one ends with it, the cuts between stay where they are; so the
    pieces of a split never overlap, and leave nothing out.

    Raises:
        DataLossError: the log ends before a start that is not late. Spark's own source fails here as well, whatever
            ``failOnDataLoss`` says.
    """
    (split, start, end), whole = piece.range, piece.whole
    is_first, is_last = start == whole.range.start, end == whole.range.end
    if whole.late_start:
        start = log.start if is_first else max(start, log.start)
    if whole.late_end:
        end = log.end if is_last else min(end, log.end)
        if end < start and is_first and not whole.late_start:
            raise DataLossError(
                f"{split} is read from position {start} on, and ends at {log.end} now: "
                "the topic or table was re-created or truncated. "
                'Begin within it, for example startingOffsets = "earliest"'
            )
    if is_first:
        # A log that is shorter than it was is another one.
        is_another = whole.late_end and log.end < whole.range.end
        start = max(start, whole.at_least, 0 if is_another else whole.first)
    if whole.below is not None:
        end = min(end, whole.below)
    return SplitRange(split, start, max(start, end))
