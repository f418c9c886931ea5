"""A connector's logs as a check reads them: without the planner, range by range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.connector.read_batch import ReadBatch
from watermark_source.spark.connector.stream import Connector, SourceDefinition
from watermark_source.testing.driven_stream import reader_of
from watermark_source.testing.harness import Harness

_CUTS = 7


class Delivered(NamedTuple):
    """A row as a reader delivered it, in whose order."""

    split: Split
    value: int
    event_time: int | None
    """Microseconds."""


@dataclass(frozen=True)
class OpenLogs:
    """The driver side of a source, opened, and its reader."""

    harness: Harness
    definition: SourceDefinition
    connector: Connector
    schema: StructType

    @classmethod
    def of(cls, harness: Harness, **more: str) -> OpenLogs:
        """Open the source that the harness's options make."""
        schema, reader = reader_of(harness, {**harness.options, **more})
        return cls(harness, reader.definition, reader.definition.open(), schema)

    @property
    def splits(self) -> frozenset[Split]:
        """Those there are."""
        return frozenset(self.connector.discovery.discover())

    def ranges(self) -> list[SplitRange]:
        """Return all that a new query would read, split by split."""
        splits = self.splits
        starts = self.connector.starts.initial_positions(splits)
        ends = self.connector.bounds.end_positions(splits)
        return [SplitRange(split, starts[split], ends[split]) for split in sorted(splits)]

    def cuts(self, whole: SplitRange) -> list[SplitRange]:
        """Return a range in parts: cut anywhere, or where one may end if positions are not rows."""
        at = [whole.start]
        index = self.connector.row_index
        if index is None:
            draw = np.random.default_rng(1)
            at += sorted(draw.integers(whole.start, whole.end + 1, _CUTS).tolist())
        else:
            while at[-1] < whole.end and len(at) < _CUTS:
                at.append(index.end_within(SplitRange(whole.split, at[-1], whole.end), 3))
        at.append(whole.end)
        return [SplitRange(whole.split, start, end) for start, end in pairwise(at)]

    def read(self, ranges: Sequence[SplitRange], reader: RangeReader | None = None) -> list[Delivered]:
        """Read ranges in one call, as one task does."""
        batches = list((reader or self.definition.range_reader).read(ranges))
        return [row for batch in batches for row in self.rows(batch)]

    def rows(self, batch: ReadBatch) -> list[Delivered]:
        """Return the rows of what a reader yields."""
        names = self.schema.names[: len(batch.columns)]
        table = pa.Table.from_arrays(list(batch.columns), names=names)
        times = [None if t is None else int(t) for t in batch.event_time.view(pa.int64()).to_pylist()]
        values = self.harness.values(table) if batch.rows else []
        return [Delivered(batch.split, v, t) for v, t in zip(values, times, strict=True)]


def by_split(rows: Sequence[Delivered]) -> Mapping[Split, list[int]]:
    """Return the values of rows, split by split, as they came."""
    found: dict[Split, list[int]] = {}
    for row in rows:
        found.setdefault(row.split, []).append(row.value)
    return found


def micros(batch: ReadBatch) -> npt.NDArray[np.int64]:
    """Return the event times of a batch as the engine reads them."""
    buffers = batch.event_time.buffers()
    return np.frombuffer(buffers[1], np.int64, count=len(batch.event_time), offset=8 * batch.event_time.offset)
