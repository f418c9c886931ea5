"""A connector of its own: lines of JSON in a folder as a stream with a watermark per file, ``format("file-log")``.

The folder has files such as ``orders-0.jsonl``, which are only ever appended to. A file is a split, and the number of a
line its position. docs/writing-a-source.md explains this file from top to bottom.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from watermark_source.connector import (
    Abilities,
    AlignedDataSource,
    BatchDefinition,
    Connector,
    CorruptDataError,
    DataLossError,
    EarliestOrLatest,
    LogBounds,
    Option,
    RangeReader,
    ReadBatch,
    SourceDefinition,
    SourceOptions,
    Split,
    SplitDiscovery,
    SplitRange,
    UnknownSplitError,
    WholeLogs,
    Words,
    event_times,
    non_empty,
)

BATCH_LINES = 10_000
TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}


def columns_of(text: str) -> dict[str, str]:
    """Parse columns such as ``id long, name string``."""
    found = dict(each.split() for each in text.split(","))
    if unknown := set(found.values()) - TYPES.keys():
        raise ValueError(f"{min(unknown)} is none of {', '.join(TYPES)}")
    return found


def path_of(folder: str, split: Split) -> Path:
    return Path(folder) / f"{split.log}-{split.number}.jsonl"


def line_ends(path: Path) -> npt.NDArray[np.int64]:
    """Return where complete lines end. A log of any size would keep an index."""
    return np.flatnonzero(np.fromfile(path, dtype=np.uint8) == ord("\n")) + 1


@dataclass(frozen=True)
class FileLog(SplitDiscovery, LogBounds):
    """The driver side: which files exist, and how many lines they have."""

    folder: str

    def discover(self) -> Set[Split]:
        if not Path(self.folder).is_dir():
            raise UnknownSplitError(f"{self.folder} is not a folder; create it before a query reads it")
        names = (path.stem.rpartition("-") for path in Path(self.folder).glob("*-*.jsonl"))
        return {Split(log, int(number)) for log, _, number in names if number.isdecimal()}

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return {split: len(line_ends(path_of(self.folder, split))) for split in splits & self.discover()}

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return dict.fromkeys(splits & self.discover(), 0)


@dataclass(frozen=True)
class FileLogReader(RangeReader):
    """The executor side: ranges of lines to columns."""

    folder: str
    columns: Mapping[str, str]
    event_time: str
    fail_on_data_loss: bool

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        for wanted in ranges:
            path = path_of(self.folder, wanted.split)
            ends = line_ends(path) if path.exists() else np.empty(0, dtype=np.int64)
            end = min(wanted.end, len(ends))
            if end < wanted.end:
                self._report_loss(wanted, len(ends))
            for first in range(wanted.start, end, BATCH_LINES):
                last = min(first + BATCH_LINES, end)
                start = int(ends[first - 1]) if first else 0
                with path.open("rb") as file:
                    file.seek(start)
                    yield self._batch(SplitRange(wanted.split, first, last), file.read(int(ends[last - 1]) - start))

    def _batch(self, lines: SplitRange, text: bytes) -> ReadBatch:
        wanted = {**{name: TYPES[kind] for name, kind in self.columns.items()}, self.event_time: pa.int64()}
        parse = ParseOptions(explicit_schema=pa.schema(wanted.items()), unexpected_field_behavior="ignore")
        try:
            table = read_json(pa.BufferReader(text), ReadOptions(False, len(text) + 1), parse)
        except pa.ArrowInvalid as error:
            raise CorruptDataError(f"{lines} in {self.folder} is not JSON with these columns: {error}") from None
        if len(table) != lines.size:
            raise CorruptDataError(f"{lines} in {self.folder}: {len(table)} lines are JSON objects, not {lines.size}")
        columns = tuple(table.column(name).combine_chunks() for name in self.columns)
        times = event_times(table.column(self.event_time).combine_chunks())
        # pa.array would import pandas: 0.3 s in every process.
        positions = pa.Array.from_buffers(
            pa.int64(), lines.size, [None, pa.py_buffer(np.arange(lines.start, lines.end))]
        )
        return ReadBatch(lines.split, lines.size, columns, times, undated=times.null_count, positions=positions)

    def _report_loss(self, wanted: SplitRange, lines: int) -> None:
        lost = f"{wanted} of {self.folder} is missing: the file has {lines} lines"
        if self.fail_on_data_loss:
            raise DataLossError(f"{lost}. Set failOnDataLoss to false to skip missing lines")
        logging.getLogger(__name__).warning("failOnDataLoss=false: skipping missing lines, %s", lost)


@dataclass(frozen=True)
class FileLogSource(SourceDefinition):
    """What the engine opens on the driver and sends to tasks."""

    reader: FileLogReader
    earliest: bool
    name = "file-log"

    @property
    def columns(self) -> StructType:
        kinds = self.reader.columns.items()
        return StructType([StructField(name, from_arrow_type(TYPES[kind])) for name, kind in kinds])

    @property
    def range_reader(self) -> RangeReader:
        return self.reader

    @property
    def words(self) -> Words:
        return replace(super().words, split="file", event_time="eventTimeColumn")

    def open(self) -> Connector:
        log = FileLog(self.reader.folder)
        return Connector(discovery=log, starts=EarliestOrLatest(log, self.earliest), bounds=log)


class DefaultSource(AlignedDataSource):
    """``format("file-log")``."""

    format_name = FileLogSource.name
    own_options = (
        Option(name="folder", parse=non_empty, needed=True, accepted="must be a path", example="/data/orders",
               doc="Of the files."),
        Option(name="columns", parse=columns_of, default={"value": "string"}, doc="The members to make columns of.",
               accepted="must be names and types (string, long, double, boolean)", example="id long, name string"),
        Option(name="eventTimeColumn", parse=non_empty, default="time", accepted="must be the name of a member",
               example="time", doc="The member that is the event time, in milliseconds since 1970."),
    )  # fmt: skip

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        return Abilities(row_positions=True, rows_ahead=True)

    def source(self, options: SourceOptions) -> FileLogSource:
        reader = FileLogReader(
            options["folder"], options["columns"], options["eventTimeColumn"], options["failOnDataLoss"]
        )
        return FileLogSource(reader, options["startingOffsets"] == "earliest")

    def batch(self, options: SourceOptions) -> BatchDefinition:
        return WholeLogs(self.source(options))
