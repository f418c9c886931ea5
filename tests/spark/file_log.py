"""The file log of examples/file_log with what tests need beside: a time index, and tasks that die.

Each split is a file of lines such as ``{"time": 1699999980000, "split": 0, "value": 1}``, appended to by the test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pyspark.sql.types import StructType

from examples.file_log import pyspark_file_log as example
from watermark_source.arrow_columns import integers
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Connector, EventTimeIndex, RangeReader, SourceDefinition
from watermark_source.option_table import Option, OptionTable, boolean, non_empty
from watermark_source.planning.policy import LossKind
from watermark_source.planning.split import IndexEntry, NewestTime, Split, SplitRange
from watermark_source.planning.watermark import Millis, WatermarkCharacteristic
from watermark_source.spark.data_source import EARLIEST, STREAM_OPTIONS
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.options import SourceOptions
from watermark_source.spark.source_time import SourceTime
from watermark_source.spark.stream_schema import stream_schema

COLUMNS = {"split": "long", "value": "long"}
OWN_OPTIONS = (
    Option(name="directory", parse=non_empty, accepted="a path", example="/data", doc="Where the files are."),
    Option(name="dieAt", parse=non_empty, accepted="a path", example="/x", doc="Which file makes a task die."),
    Option(name="snapshot", parse=boolean, default=False, accepted="a boolean", example="true", doc="Declares one."),
    Option(name="changes", parse=boolean, default=False, accepted="a boolean", example="true", doc="Declares them."),
    Option(name="undeclared", parse=boolean, default=False, accepted="a boolean", example="true", doc="Declares."),
)
TABLE = OptionTable((*OWN_OPTIONS, *STREAM_OPTIONS, *ENGINE_OPTIONS))


def append(directory: Path, split: int, rows: Sequence[tuple[int, int]], *, log: str = "log") -> None:
    """Append ``(event time ms, value)`` rows to a split."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f'{{"time": {time}, "split": {split}, "value": {value}}}\n' for time, value in rows]
    with (directory / f"{log}-{split}.jsonl").open("a") as file:
        file.write("".join(lines))


@dataclass(frozen=True)
class FileLogReader(example.FileLogReader):
    die_at: str | None = None
    """While this file exists, the next task that has yielded rows removes it and kills its own process."""

    @classmethod
    def of(cls, directory: str, *, fail_on_data_loss: bool = True, die_at: str | None = None) -> FileLogReader:
        return cls(directory, COLUMNS, "time", fail_on_data_loss, die_at)

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        for batch in super().read(ranges):
            yield batch
            if self.columns and self.die_at is not None and Path(self.die_at).exists():
                Path(self.die_at).unlink()
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FileLog(example.FileLog, EventTimeIndex):
    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        found: dict[Split, IndexEntry | None] = {}
        for split, limit in limits.items():
            times = self._times(split)
            later = np.flatnonzero(times > limit)
            found[split] = IndexEntry(int(later[0]), Millis(int(times[later[0]]))) if len(later) else None
        return found

    def newest(self, splits: Set[Split]) -> Mapping[Split, NewestTime | None]:
        times = {s: self._times(s) for s in splits}
        return {s: NewestTime(Millis(int(t.max())), int(t.argmax())) if len(t) else None for s, t in times.items()}

    def _times(self, split: Split) -> npt.NDArray[np.int64]:
        whole = SplitRange(split, 0, self.end_positions({split})[split])
        batches = example.FileLogReader(self.folder, {}, "time", fail_on_data_loss=True).read([whole])
        return np.concatenate([np.empty(0, np.int64), *(integers(b.event_time) for b in batches)]) // 1_000


@dataclass(frozen=True)
class FileLogSource(example.FileLogSource):
    begins_with_snapshot: bool = field(default=False, kw_only=True)
    change_columns: Sequence[str] = field(default=(), kw_only=True)

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        return {LossKind.LOG_SHORTER: "FILE_LOG_SHORTER"}

    @property
    def observing_reader(self) -> RangeReader:
        return replace(self.reader, columns={})

    def open(self) -> Connector:
        log = FileLog(self.reader.folder)
        return replace(super().open(), discovery=log, bounds=log, time_index=log)


def source_of(values: Mapping[str, Any]) -> FileLogSource:
    """Return the source of options as ``TABLE`` parses them."""
    reader = FileLogReader.of(values["directory"], fail_on_data_loss=values["failOnDataLoss"], die_at=values["dieAt"])
    return FileLogSource(
        reader, values["startingOffsets"] == EARLIEST, begins_with_snapshot=values["snapshot"],
        change_columns=("_change_type", "_commit_version", "_change_number") if values["changes"] else (),
    )  # fmt: skip


class FileLogDataSource(example.DefaultSource):
    own_options: ClassVar[tuple[Option, ...]] = OWN_OPTIONS  # type: ignore[assignment]

    def source(self, options: SourceOptions) -> FileLogSource:
        return source_of(options)

    def _schema(self, source: SourceDefinition, options: SourceOptions) -> StructType:
        characteristic = WatermarkCharacteristic.UNDEFINED if options["undeclared"] else self.characteristic
        return stream_schema(source.columns, options.engine, SourceTime.of(source, options.engine, characteristic))
