"""The batch reader Spark calls: ranges cut into tasks by size, their outermost edges bound when a task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watermark_source.errors import InternalError
from watermark_source.planning.late_binding import LatePiece, LateRange, bind
from watermark_source.planning.split import SplitRange
from watermark_source.spark.connector.batch import BatchDefinition, BatchRangeReader
from watermark_source.spark.exchange.packs import pack
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.startup.collector import spare_imports
from watermark_source.spark.tasks.reading import data_batch


@dataclass
class BatchPack(InputPartition):
    """One task's work."""

    pieces: tuple[LatePiece, ...]


class AlignedBatchReader(DataSourceReader):
    """A batch read of one source. Picklable. There are no watermarks in it: nothing is observed, nothing reported."""

    def __init__(self, definition: BatchDefinition, options: EngineOptions, schema: StructType) -> None:
        self._definition = definition
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Look up what there is now and cut it; Spark asks once for each plan, and a plan may run several times."""
        laid = lay(
            self._definition.late_ranges(),
            at_least=self._options.min_partitions,
            at_most=self._options.max_records_per_partition,
        )
        # For no partition at all Spark makes one of its own.
        return [BatchPack(pieces) for pieces in laid] or [BatchPack(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one pack, in a task."""
        if not isinstance(partition, BatchPack):
            raise InternalError(f"not a pack of ours: {type(partition).__name__}")
        return read_pieces(self._definition.range_reader, partition.pieces, self._schema)


def lay(wholes: Sequence[LateRange], *, at_least: int | None, at_most: int | None) -> list[tuple[LatePiece, ...]]:
    """Lay ranges, one a split, into packs by the rules of ``packs.pack``; those without rows yet included."""
    by_split = {whole.range.split: whole for whole in wholes}
    laid = pack(sorted(whole.range for whole in wholes), at_least=at_least, at_most=at_most)
    return [tuple(LatePiece(part, by_split[part.split]) for part in parts) for parts in laid]


def read_pieces(reader: BatchRangeReader, pieces: Sequence[LatePiece], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Bind the pieces to what their logs hold now, and yield their rows."""
    spare_imports()
    ranges = _bound(reader, pieces)
    from_beginning = frozenset(piece.range.split for piece in pieces if piece.whole.late_start)
    for batch in reader.read(ranges, from_beginning=from_beginning):
        yield data_batch(batch, batch.event_time, schema)


def _bound(reader: BatchRangeReader, pieces: Sequence[LatePiece]) -> list[SplitRange]:
    late = frozenset(piece.range.split for piece in pieces if piece.is_late)
    logs = reader.log_ranges(late) if late else {}
    # A split that is gone is left as planned: what to do about it is for the reader to say.
    return [bind(p, logs[p.range.split]) if p.range.split in logs else p.range for p in pieces]
