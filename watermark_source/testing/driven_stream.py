"""A stream driven as Spark drives it, without Spark: offsets as JSON, reader and tasks through the pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from watermark_source.spark.columns.column_names import MARKER
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.testing.check import NonConformanceError, expect
from watermark_source.testing.harness import Harness
from watermark_source.testing.pickled import behind_pickle

Offset = dict[str, Any]
_EMPTY_BATCHES = 2
"""So many one after the other, and the stream has come to its end for now."""
_MOST_BATCHES = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tasks of a batch delivered."""

    start: Offset
    end: Offset
    rows: pa.Table
    markers: list[dict[str, Any]]

    @property
    def shown(self) -> list[str]:
        """All of it in an order of its own, to be compared."""
        return sorted(map(repr, [*self.rows.to_pylist(), *self.markers]))


def batch_of(reader: AlignedStreamReader, start: Offset, end: Offset, schema: StructType) -> Batch:
    """Plan the tasks of a batch and run them, with all that goes to them through the pickle."""
    tasks = behind_pickle(list(reader.partitions(start, end)))
    on_executor = behind_pickle(reader)
    found = [batch for task in tasks for batch in on_executor.read(task)]
    table = pa.Table.from_batches(found, schema=to_arrow_schema(schema, timezone="UTC"))
    markers = table.filter(table[MARKER].is_valid())
    return Batch(start, end, table.filter(table[MARKER].is_null()), markers[MARKER].to_pylist())


def reader_of(harness: Harness, options: Mapping[str, str]) -> tuple[StructType, AlignedStreamReader]:
    """Return a stream's schema and reader as Spark gets them; raises why there is none."""
    source = harness.source(dict(options))
    schema = source.schema()
    if not isinstance(schema, StructType):
        raise NonConformanceError(f"schema() returned {schema!r}, not a StructType")
    reader = source.streamReader(schema)
    if not isinstance(reader, AlignedStreamReader):
        # Its first call says why.
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
        """Return the end of a batch of all there is, as the trigger Once has it."""
        return _json(self.reader.latestOffset(start, ReadAllAvailable()))

    def read(self, start: Offset, end: Offset) -> Batch:
        """Run the tasks of a batch."""
        return batch_of(self.reader, start, end, self.schema)

    def batches(self, start: Offset, *, rows: int | None = None) -> list[Batch]:
        """Go on until there is nothing new."""
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
        raise NonConformanceError(f"{_MOST_BATCHES} batches, and no end: {start}")

    def close(self) -> None:
        """End the process's use."""
        self.reader.stop()


@contextmanager
def streaming(harness: Harness, **more: str) -> Iterator[Stream]:
    """Use a stream of the harness's options and some more, and close it."""
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
        raise NonConformanceError(f"an offset that is no JSON ({error}): {offset}") from None
    return again
