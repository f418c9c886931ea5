"""A log kept in plain files, read through the engine: its own small connector, to test the engine without a broker.

Each split is a file of 16-byte rows (event time in ms, value), appended to by the test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StructField, StructType

from watermark_source.eventtime.characteristic import WatermarkCharacteristic
from watermark_source.eventtime.watermark import Millis
from watermark_source.option_table import Option, OptionTable, boolean, non_empty, positive_integer
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.time_index import IndexEntry
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.connector.read_batch import ReadBatch
from watermark_source.spark.connector.stream import Connector, Ends
from watermark_source.spark.options.engine_option_table import ENGINE_OPTIONS
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.stream_reader import AlignedStreamReader, refuse_user_schema, stream_schema

ROW = np.dtype([("time", "<i8"), ("value", "<i8")])

TABLE = OptionTable(
    (
        Option(name="directory", parse=non_empty, accepted="a path", example="/data", doc="Where the files are."),
        Option(name="maxRowsPerTrigger", parse=positive_integer, accepted="a number", example="10", doc="Rows."),
        Option(name="failOnDataLoss", parse=boolean, default=True, accepted="a boolean", example="true", doc="Loss."),
        Option(name="dieAt", parse=non_empty, accepted="a path", example="/x", doc="Which file makes a task die."),
        Option(name="startAtEnd", parse=boolean, default=False, accepted="a boolean", example="true", doc="Start."),
        Option(name="undeclared", parse=boolean, default=False, accepted="a boolean", example="true", doc="Declares."),
        *ENGINE_OPTIONS,
    )
)


def append(directory: Path, split: int, rows: Sequence[tuple[int, int]], *, log: str = "log") -> None:
    """Append ``(event time ms, value)`` rows to a split."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{log}-{split}").open("ab") as file:
        file.write(np.array(rows, dtype=ROW).tobytes())


def _rows(directory: str, split: Split) -> np.ndarray:
    return np.fromfile(Path(directory) / str(split), dtype=ROW)


@dataclass(frozen=True)
class FileLogReader:
    directory: str
    with_values: bool = True
    die_at: str | None = None
    """While this file exists, the next task that has yielded rows removes it and kills its own process."""

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        for r in ranges:
            rows = _rows(self.directory, r.split)[r.start : r.end]
            for at in range(0, len(rows), 1_000):
                part = rows[at : at + 1_000]
                time = pa.array(part["time"] * 1_000).view(pa.timestamp("us", tz="UTC"))
                columns = (pa.array(np.full(len(part), r.split.number)), pa.array(part["value"].copy()))
                yield ReadBatch(r.split, len(part), columns if self.with_values else (), time)
                if self.with_values and self.die_at is not None and Path(self.die_at).exists():
                    Path(self.die_at).unlink()
                    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FileLog:
    """All of the driver side's protocols over one directory."""

    directory: str
    start_at_end: bool

    def discover(self) -> Set[Split]:
        names = (path.name.rsplit("-", 1) for path in Path(self.directory).iterdir())
        return {Split(log, int(number)) for log, number in names}

    def looked_since(self, moment: float, *, wait: float) -> bool:
        return True

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return {s: (Path(self.directory) / str(s)).stat().st_size // ROW.itemsize for s in splits & self.discover()}

    def current_ends(self, splits: Set[Split]) -> Ends:
        return Ends(self.end_positions(splits))

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return dict.fromkeys(splits, 0)

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return self.end_positions(splits) if self.start_at_end else dict.fromkeys(splits, 0)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        return dict.fromkeys(splits, 0)

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        found: dict[Split, IndexEntry | None] = {}
        for split, limit in limits.items():
            times = _rows(self.directory, split)["time"]
            later = np.flatnonzero(times > limit)
            found[split] = IndexEntry(int(later[0]), Millis(int(times[later[0]]))) if len(later) else None
        return found

    def newest(self, splits: Set[Split]) -> Mapping[Split, Millis | None]:
        times = {s: _rows(self.directory, s)["time"] for s in splits}
        return {s: Millis(int(t.max())) if len(t) else None for s, t in times.items()}


@dataclass(frozen=True)
class FileLogSource:
    reader: FileLogReader
    start_at_end: bool

    @property
    def name(self) -> str:
        return "file-log"

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        return {LossKind.LOG_SHORTER: "FILE_LOG_SHORTER"}

    def position_text(self, split: Split, position: int) -> str:
        return str(position)

    @property
    def range_reader(self) -> RangeReader:
        return self.reader

    @property
    def observing_reader(self) -> RangeReader:
        return replace(self.reader, with_values=False)

    def open(self) -> Connector:
        log = FileLog(self.reader.directory, self.start_at_end)
        return Connector(discovery=log, starts=log, bounds=log, time_index=log)

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        return None


class FileLogDataSource(DataSource):
    """``format("file-log")``."""

    @classmethod
    def name(cls) -> str:
        return "file-log"

    def _engine(self) -> tuple[dict[str, Any], EngineOptions]:
        values = TABLE.parse(self.options)
        return values, EngineOptions.of(values, format_name=self.name(), given=self.options)

    def schema(self) -> StructType:
        values, engine = self._engine()
        columns = StructType([StructField("split", LongType()), StructField("value", LongType())])
        declared = WatermarkCharacteristic.UNDEFINED if values["undeclared"] else WatermarkCharacteristic.ANY_WATERMARK
        return stream_schema(columns, engine, declared)

    def streamReader(self, schema: StructType) -> AlignedStreamReader:  # noqa: N802 - Spark's name
        values, engine = self._engine()
        refuse_user_schema(schema, self.schema(), self.name())
        return AlignedStreamReader(
            FileLogSource(FileLogReader(values["directory"], die_at=values["dieAt"]), values["startAtEnd"]),
            engine,
            schema,
            max_rows=values["maxRowsPerTrigger"],
            fail_on_data_loss=values["failOnDataLoss"],
        )
