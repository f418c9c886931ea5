"""What a connector runs in tasks: the reader of ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from watermark_source.planning.split import SplitRange
from watermark_source.spark.connector.read_batch import ReadBatch


class RangeReader(Protocol):
    """Reads ranges in a task. Picklable; connects on first use; keeps connections for the worker's next task."""

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order, about 10 000 rows a batch.

        Raises ``DataLossError`` if rows of a range are gone and ``failOnDataLoss`` is true; with false it logs what is
        skipped and goes on inside the range.
        """
        ...
