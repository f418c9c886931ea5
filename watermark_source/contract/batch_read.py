"""Batch reads: what a connector implements for ``spark.read``, and a batch of whole logs that needs no code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import Filter

from watermark_source.contract.lineage import ExpectedLogs, of_logs
from watermark_source.contract.stream import RangeReader, SourceDefinition
from watermark_source.errors import UsageError
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import Split, SplitRange

if TYPE_CHECKING:
    from watermark_source.contract.read_batch import ReadBatch


class BatchRangeReader(Protocol):
    """Reads ranges of a batch in a task, as ``RangeReader`` does those of a stream. Picklable."""

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return the positions that each split's log holds now; splits that no longer exist are left out.

        So are those of another log than ``of_logs`` has named. Called only for ranges with a late edge
        (``OpenRange.late_start``, ``late_end``).
        """

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order.

        For the splits in ``from_beginning``, expired first rows are no loss: such a range begins where its log begins.
        """


class BatchDefinition(Protocol):
    """One batch read as the user configured it. Picklable; building it does not connect."""

    @property
    def range_reader(self) -> BatchRangeReader:
        """The executor side."""

    def late_ranges(self) -> Sequence[OpenRange]:
        """Return the ranges to read: the user's starting and ending options, resolved now. Ranges do not overlap.

        With a ``log_id`` the reader is a ``LineageRangeReader``: what another log of that name holds is a loss.
        Called on the driver, once for each plan. Connections are closed before it returns.
        """

    @property
    def takes_filters(self) -> bool:
        """Whether Spark should pass the query's filters to ``narrowed``; false by default."""
        return False

    def narrowed(self, filters: Sequence[Filter]) -> BatchDefinition:
        """Return the same read without rows that fail one of the filters; by default with all rows.

        Does not connect. Spark evaluates the filters in any case.
        """
        return self


@dataclass(frozen=True)
class WholeLogs(BatchDefinition):
    """The batch read of a source whose positions are rows: every log from its first row to its end at planning time.

    What ``AlignedDataSource.batch`` of such a format returns: ``return WholeLogs(self.source(options))``.
    """

    source: SourceDefinition

    @property
    def range_reader(self) -> BatchRangeReader:
        """The stream's reader."""
        return _AsBatch(self.source.range_reader)

    def late_ranges(self) -> Sequence[OpenRange]:
        """Return the logs' ranges as they are now, with fixed edges.

        Raises:
            UsageError: the source's ranges cannot be cut at any position, or it reads snapshots.
        """
        connector = self.source.open()
        if not connector.positions_are_rows or connector.snapshots is not None:
            raise UsageError(
                f'format("{self.source.name}") has no batch read: WholeLogs takes a connector without row_index and '
                "snapshots, whose positions are rows. Return a BatchDefinition of its own from batch()"
            )
        splits = connector.discovery.discover()
        ends = connector.bounds.end_positions(splits)
        starts = connector.bounds.earliest_positions(splits)
        ids = connector.discovery.ids()
        ranges = [SplitRange(split, starts[split], ends[split]) for split in sorted(starts.keys() & ends.keys())]
        return [
            OpenRange(each, late_start=False, late_end=False, log_id=ids.get(each.split.log))
            for each in ranges
            if each.size
        ]


@dataclass(frozen=True)
class _AsBatch(BatchRangeReader):
    reader: RangeReader

    def of_logs(self, expected: ExpectedLogs) -> _AsBatch:
        return _AsBatch(of_logs(self.reader, expected))

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        return {}

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split]) -> Iterator[ReadBatch]:
        return self.reader.read(ranges)
