"""The batch reader Spark calls: ranges cut into tasks by size, their outermost edges bound when a task reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from watermark_source.contract.batch_read import BatchDefinition, BatchRangeReader
from watermark_source.contract.lineage import ExpectedLogs, of_logs
from watermark_source.errors import InternalError
from watermark_source.planning.ranges_per_task import OpenPiece, OpenRange, bind, into_tasks
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.executor.reading import data_batch
from watermark_source.spark.garbage_collector import spare_imports
from watermark_source.spark.options import EngineOptions
from watermark_source.spark_process import each_with_sentence, hides_own_frames, log_as_spark


@dataclass
class BatchPack(InputPartition):
    """The work of one task."""

    pieces: tuple[OpenPiece, ...]


class AlignedBatchReader(DataSourceReader):
    """A batch read of one source. Picklable. It has no watermarks, and its tasks report nothing."""

    def __init__(self, definition: BatchDefinition, options: EngineOptions, schema: StructType) -> None:
        self._definition = definition
        self._options = options
        self._schema = schema

    @hides_own_frames
    def partitions(self) -> Sequence[InputPartition]:
        """Look up the ranges and cut them into tasks. Called once for each plan, which may run several times."""
        laid = lay(
            self._definition.late_ranges(),
            at_least=self._options.min_partitions,
            at_most=self._options.max_records_per_partition,
        )
        # Without any partition Spark would make one of its own.
        return [BatchPack(pieces) for pieces in laid] or [BatchPack(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task, in a task."""
        if not isinstance(partition, BatchPack):
            raise InternalError(f"not a task of ours: {type(partition).__name__}")
        log_as_spark(self._options.source_name)
        return each_with_sentence(read_pieces(self._definition.range_reader, partition.pieces, self._schema))


class NarrowingBatchReader(AlignedBatchReader):
    """A batch read that leaves out positions that filters exclude.

    A class of its own: Spark refuses a reader that has ``pushFilters`` while push-down is switched off, and its message
    names the setting.
    """

    @hides_own_frames
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters to narrow the read, and return all of them: Spark evaluates them in any case."""
        self._definition = self._definition.narrowed(filters)
        return filters


def lay(wholes: Sequence[OpenRange], *, at_least: int | None, at_most: int | None) -> list[tuple[OpenPiece, ...]]:
    """Lay ranges into tasks by the rules of ``into_tasks``, including ranges without rows yet."""
    in_order = sorted(wholes, key=attrgetter("range"))
    laid = into_tasks([whole.range for whole in in_order], at_least=at_least, at_most=at_most)
    # Pieces come in the order of the ranges that they are cut from.
    sources = iter(in_order)
    tasks, whole = [], None
    for parts in laid:
        pieces = []
        for part in parts:
            whole = next(sources) if whole is None else whole
            pieces.append(OpenPiece(part, whole))
            whole = None if part.end == whole.range.end else whole
        tasks.append(tuple(pieces))
    return tasks


def read_pieces(reader: BatchRangeReader, pieces: Sequence[OpenPiece], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Bind the pieces to the current ends of their logs, and yield their rows."""
    spare_imports()
    ids = {piece.range.split.log: id_ for piece in pieces if (id_ := piece.whole.log_id) is not None}
    reader = of_logs(reader, ExpectedLogs(ids))
    from_beginning = frozenset(piece.range.split for piece in pieces if piece.whole.late_start)
    late = frozenset(piece.range.split for piece in pieces if piece.is_late)
    logs = reader.log_ranges(late) if late else {}
    # A range of a deleted split stays as planned: the reader decides about the loss.
    bound = [bind(p, logs[p.range.split]) if p.range.split in logs else p.range for p in pieces]
    for ranges in _rounds(bound):
        for batch in reader.read(ranges, from_beginning=from_beginning):
            yield data_batch(batch, batch.event_time, schema)


def _rounds(ranges: Sequence[SplitRange]) -> list[list[SplitRange]]:
    """Return the ranges in rounds, each with at most one range of a split: a reader takes one at a time."""
    of_splits: defaultdict[Split, list[SplitRange]] = defaultdict(list)
    for each in ranges:
        of_splits[each.split].append(each)
    return [[each for each in turn if each is not None] for turn in zip_longest(*of_splits.values())] or [[]]
