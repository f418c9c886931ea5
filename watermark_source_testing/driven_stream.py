"""A stream driven as Spark drives it, without Spark: offsets as JSON, reader and tasks through the pickle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Connector, RangeReader, SourceDefinition
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.batch_reader import AlignedBatchReader
from watermark_source.spark.column_names import MARKER
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source_testing.harness import Ability, Harness, NonConformanceError, Row, expect
from watermark_source_testing.support import behind_pickle, pickled

Offset = dict[str, Any]
_EMPTY_BATCHES = 2
"""After so many empty batches in a row the stream is at its end for now."""
_MOST_BATCHES = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows and markers that the tasks of a batch delivered."""

    start: Offset
    end: Offset
    rows: pa.Table
    markers: list[dict[str, Any]]

    @property
    def shown(self) -> list[str]:
        """Rows and markers as sorted texts, for comparisons."""
        return sorted(map(repr, [*self.rows.to_pylist(), *self.markers]))


def batch_of(reader: AlignedStreamReader, start: Offset, end: Offset, schema: StructType) -> Batch:
    """Plan the tasks of a batch and run them; the reader and the tasks go through the pickle."""
    tasks = behind_pickle(list(reader.partitions(start, end)))
    on_executor = behind_pickle(reader)
    found = [batch for task in tasks for batch in on_executor.read(task)]
    table = pa.Table.from_batches(found, schema=to_arrow_schema(schema, timezone="UTC"))
    markers = table.filter(table[MARKER].is_valid())
    return Batch(start, end, table.filter(table[MARKER].is_null()), markers[MARKER].to_pylist())


def reader_of(harness: Harness, options: Mapping[str, str]) -> tuple[StructType, AlignedStreamReader]:
    """Return a stream's schema and reader as Spark gets them; raises the error of a reader that cannot start."""
    source = harness.source(dict(options))
    schema = source.schema()
    if not isinstance(schema, StructType):
        raise NonConformanceError(f"schema() returned {schema!r}, not a StructType")
    reader = source.streamReader(schema)
    if not isinstance(reader, AlignedStreamReader):
        # Its first call raises the reason.
        reader.initialOffset()
        raise NonConformanceError(f"streamReader returned a {type(reader).__name__}, not an AlignedStreamReader")
    return schema, reader


class Stream:
    """One process's use of a source, from its start on."""

    def __init__(self, harness: Harness, options: Mapping[str, str] | None = None) -> None:
        self.schema, reader = reader_of(harness, harness.options if options is None else options)
        self.reader = behind_pickle(reader)
        limit = self.reader.getDefaultReadLimit()
        expect(isinstance(limit, ReadMaxRows), f"getDefaultReadLimit returned {limit!r}")
        self.limit: ReadLimit = limit

    def initial(self) -> Offset:
        """Return where a new query begins."""
        return _json(self.reader.initialOffset())

    def plan(self, start: Offset, *, rows: int | None = None) -> Offset:
        """Return the end of the next batch; ``start`` if there is none."""
        return _json(self.reader.latestOffset(start, self.limit if rows is None else ReadMaxRows(rows)))

    def plan_all(self, start: Offset) -> Offset:
        """Return the end of a batch of all existing rows, as with the trigger Once."""
        return _json(self.reader.latestOffset(start, ReadAllAvailable()))

    def read(self, start: Offset, end: Offset) -> Batch:
        """Run the tasks of a batch."""
        return batch_of(self.reader, start, end, self.schema)

    def batches(self, start: Offset, *, rows: int | None = None) -> list[Batch]:
        """Run batches until no new rows come."""
        found: list[Batch] = []
        empty = 0
        for _ in range(_MOST_BATCHES):
            end = self.plan(start, rows=rows)
            if end == start:
                return found
            found.append(self.read(start, end))
            empty = 0 if len(found[-1].rows) else empty + 1
            if empty == _EMPTY_BATCHES:
                return found
            start = end
        raise NonConformanceError(f"no end after {_MOST_BATCHES} batches: {start}")

    def close(self) -> None:
        """End the process's use."""
        self.reader.stop()


def declared_by(harness: Harness, **more: str) -> Abilities:
    """Return what the connector declares for watermark strategies."""
    source = harness.source({**harness.options, **more})
    return source.abilities(source.source_options(source.options))


def read_as_batch(harness: Harness) -> pa.Table:
    """Return the rows of a batch read, planned and read as Spark does."""
    source = harness.source(dict(harness.options))
    schema = source.schema()
    reader = source.reader(schema)
    expect(isinstance(reader, AlignedBatchReader), f"reader returned a {type(reader).__name__}, not AlignedBatchReader")
    reader = behind_pickle(reader)
    tasks = behind_pickle(list(reader.partitions()))
    found = [batch for task in tasks for batch in behind_pickle(reader).read(task)]
    return pa.Table.from_batches(found, schema=to_arrow_schema(schema, timezone="UTC"))


@contextmanager
def streaming(harness: Harness, **more: str) -> Iterator[Stream]:
    """Use a stream with the harness's options and more options, and close it."""
    stream = Stream(harness, {**harness.options, **more})
    try:
        yield stream
    finally:
        stream.close()


def end_of(batches: list[Batch], start: Offset) -> Offset:
    """Return where batches end."""
    return batches[-1].end if batches else start


def values_of(harness: Harness, *batches: Batch) -> list[int]:
    """Return the values of all rows of batches."""
    return [value for batch in batches for value in harness.values(batch.rows)]


def _json(offset: Mapping[str, Any]) -> Offset:
    try:
        again: Offset = json.loads(json.dumps(offset))
    except TypeError as error:
        raise NonConformanceError(f"an offset that is not JSON ({error}): {offset}") from None
    return again


# A connector's logs as a check reads them: without the planner, range by range.


_CUTS = 7


class Delivered(NamedTuple):
    """A row, in the order in which a reader delivered it."""

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
    written: Written = field(default_factory=dict)
    """What the check wrote before it opened the source."""

    @classmethod
    def with_rows(cls, harness: Harness, count: int = 20) -> OpenLogs:
        """Write numbered rows to every split, and open the source."""
        written = write(harness, count)
        return replace(cls.of(harness), written=written)

    @classmethod
    def of(cls, harness: Harness, **more: str) -> OpenLogs:
        """Open the source with the harness's options."""
        schema, reader = reader_of(harness, {**harness.options, **more})
        return cls(harness, reader.definition, reader.definition.open(), schema)

    @property
    def splits(self) -> frozenset[Split]:
        """The existing splits."""
        return frozenset(self.connector.discovery.discover())

    def ranges(self) -> list[SplitRange]:
        """Return the ranges that a new query would read, by split."""
        splits = self.splits
        starts = self.connector.starts.initial_positions(splits)
        ends = self.connector.bounds.end_positions(splits)
        return [SplitRange(split, starts[split], ends[split]) for split in sorted(splits)]

    def cuts(self, whole: SplitRange) -> list[SplitRange]:
        """Return a range in parts: cut at any position, or where ``end_within`` allows if positions are not rows."""
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
        """Return the rows of a reader's batch."""
        names = self.schema.names[: len(batch.columns)]
        table = pa.Table.from_arrays(list(batch.columns), names=names)
        times = [None if t is None else int(t) for t in batch.event_time.view(pa.int64()).to_pylist()]
        values = self.harness.values(table) if batch.rows else []
        return [Delivered(batch.split, v, t) for v, t in zip(values, times, strict=True)]


def by_split(rows: Sequence[Delivered]) -> Mapping[Split, list[int]]:
    """Return the values of rows by split, in the order of delivery."""
    found: dict[Split, list[int]] = {}
    for row in rows:
        found.setdefault(row.split, []).append(row.value)
    return found


def micros(batch: ReadBatch) -> npt.NDArray[np.int64]:
    """Return the event times of a batch as the engine reads them."""
    buffers = batch.event_time.buffers()
    return np.frombuffer(buffers[1], np.int64, count=len(batch.event_time), offset=8 * batch.event_time.offset)


# Rows that a check writes: numbered, and out of order in time.


START = 1_699_999_980_000
"""A whole minute, in milliseconds."""
_OF_A_SPLIT = 1_000_000
Written = Mapping[int, Sequence[Row]]


def splits_of(harness: Harness) -> range:
    """Return the numbers of the splits that a check writes to."""
    return range(2 if Ability.SEVERAL_SPLITS in harness.abilities else 1)


def numbered(split: int, count: int, *, first: int = 0) -> list[Row]:
    """Return rows of which each tenth is later than the ones after it."""
    numbers = range(first, first + count)
    return [Row(START + 1_000 * (n + (15 if n % 10 == 5 else 0)), split * _OF_A_SPLIT + n) for n in numbers]


def write(harness: Harness, count: int = 20, *, first: int = 0) -> Written:
    """Write numbered rows to every split, and return them."""
    written = {split: numbered(split, count, first=first) for split in splits_of(harness)}
    for split, rows in written.items():
        harness.write(split, rows)
    return written


def values(*written: Written) -> list[int]:
    """Return the values of rows, in order."""
    return sorted(row.value for each in written for rows in each.values() for row in rows)


# A batch read in another process, as after a restart: ``python -m watermark_source_testing.driven_stream``.


_SECONDS = 120


def read_elsewhere(stream: Stream, start: Offset, end: Offset) -> list[str]:
    """Return ``Batch.shown`` of a batch whose tasks another process plans and runs."""
    done = subprocess.run(  # noqa: S603 - this interpreter, on this file
        [sys.executable, "-m", __name__],
        input=pickled((stream.reader, start, end, stream.schema)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise NonConformanceError(f"in another process: {done.stderr.decode(errors='replace')[-1_000:]}")
    shown: list[str] = cloudpickle.loads(done.stdout)
    return shown


def main() -> None:
    """Read the batch that standard input describes."""
    reader: AlignedStreamReader
    reader, start, end, schema = cloudpickle.loads(sys.stdin.buffer.read())
    try:
        shown = batch_of(reader, start, end, schema).shown
    finally:
        reader.stop()
    sys.stdout.buffer.write(pickled(shown))
    sys.stdout.buffer.flush()
    # A client's threads may keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
