"""What a connector offers for batch reads: ranges that are fixed when the read is planned, and their reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Protocol

from pyspark.sql.datasource import Filter

from watermark_source.planning.late_bound_ranges import OpenRange
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.read_batch import ReadBatch


class BatchRangeReader(Protocol):
    """Reads ranges of a batch in a task, as ``RangeReader`` does those of a stream."""

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return what each split's log holds now; splits that are gone are left out."""
        ...

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order.

        Of the splits ``from_beginning`` the first rows may be gone without that being a loss: such a range begins
        wherever its log begins.
        """
        ...


class BatchDefinition(Protocol):
    """One batch read as the user configured it. Picklable; building it does not connect."""

    @property
    def range_reader(self) -> BatchRangeReader:
        """The executor side."""
        ...

    def late_ranges(self) -> Sequence[OpenRange]:
        """Return what to read: the user's starting and ending options, resolved now. Ranges of a split do not overlap.

        Called on the driver, once for each plan; connections do not outlive the call.
        """
        ...

    def narrowed(self, filters: Sequence[Filter]) -> BatchDefinition:
        """Return the same read, which may leave out rows that do not pass all of the filters. Does not connect."""
        ...
