"""What a connector offers whose long ranges cannot be cut at any position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Piece, SplitRange
from watermark_source.spark.connector.read_batch import ReadBatch


class RangeCutter(Protocol):
    """Cuts long ranges of logs whose positions are not rows."""

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        """Return all of a range, in order; one piece where it is not worth while.

        ``at_least``: so many, if there is that much to read.
        """
        ...


class PieceReader(Protocol):
    """A ``RangeReader`` of a source that cuts its ranges."""

    def read_piece(self, piece: Piece, batch: SnapshotBatch | None) -> Iterator[ReadBatch]:
        """Yield the rows of one piece; together the pieces of a range are what the readers of whole ranges yield.

        ``batch`` is ``None`` of a source that takes no snapshots.
        """
        ...
