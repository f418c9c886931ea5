"""What of a range is gone, given where the log begins and ends now."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_aligned_kafka.errors import spark_conditions
from pyspark_aligned_kafka.errors.partition_names import place
from pyspark_aligned_kafka.reading.range_progress import Pending
from watermark_source.errors import DataLossError, labelled


class Resumption(NamedTuple):
    """Where reading goes on, and which offsets before that are gone."""

    position: int
    lost_from: int
    lost_to: int

    @property
    def lost(self) -> int:
        """Number of offsets gone; the rows may be fewer."""
        return self.lost_to - self.lost_from


def resumption(pending: Pending, earliest: int, latest: int) -> Resumption | None:
    """Return what is gone at the range's position, or ``None`` if the log still holds, or will hold, what is next.

    ``earliest`` and ``latest`` bound the log as its leader has them now: ``[earliest, latest)``. A log that ends at or
    before the position, with the range's end planned beyond, was truncated or made anew.
    """
    if pending.position < earliest:
        to = min(earliest, pending.range.end)
        return Resumption(to, pending.position, to)
    if latest <= pending.position:
        return Resumption(pending.range.end, pending.position, pending.range.end)
    return None


def loss_text(pending: Pending, gone: Resumption, earliest: int, latest: int) -> str:
    """Say what is gone."""
    why = (
        "they have been deleted by retention or by hand"
        if gone.position == min(earliest, pending.range.end) and pending.position < earliest
        else "the log was truncated, or the topic was deleted and made again"
    )
    return (
        f"{place(pending.split)}: offsets {gone.lost_from} to {gone.lost_to} "
        f"(exclusive) of the range {pending.range.start} to {pending.range.end} are gone; the log now begins at "
        f"{earliest} and ends at {latest}: {why}"
    )


def loss_error(text: str) -> DataLossError:
    """Return the error for ``failOnDataLoss`` true."""
    return DataLossError(
        labelled(spark_conditions.COULD_NOT_READ, f"{text}. To go on without them set failOnDataLoss to false")
    )
