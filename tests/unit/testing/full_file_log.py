"""The file log of the tests with all that the kit looks at: preview, row index, cutter, a secret, a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tests.spark.file_log import COLUMNS, OWN_OPTIONS, FileLog, FileLogDataSource, FileLogReader, FileLogSource
from watermark_source.contract.batch_read import BatchDefinition, WholeLogs
from watermark_source.contract.lineage import ExpectedLogs, Lineage, ReadUpTo
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Connector, EarliestOrLatest, EventTimePreview
from watermark_source.errors import DataLossError, UnreachableError
from watermark_source.option_table import Option, boolean, non_empty
from watermark_source.planning.lineage import History
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.planning.strategy import Abilities
from watermark_source.planning.watermark import Millis
from watermark_source.spark.data_source import EARLIEST
from watermark_source.spark.options import SourceOptions


@dataclass(frozen=True)
class FullLog(FileLog, EventTimePreview, Lineage):
    def ids(self) -> Mapping[str, str]:
        return ids_in(self.folder)

    def histories(self, splits: Mapping[Split, ReadUpTo]) -> Mapping[Split, History]:
        return {}

    def forget(self, logs: Set[str]) -> None: ...

    def prepare(self, splits: Set[Split]) -> None: ...

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        times = {each.split: self._times(each.split)[each.start : each.end] for each in ranges}
        return {split: Millis(int(found.max())) for split, found in times.items() if len(found)}

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        return self.reached(ranges)

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        return min(wanted.end, wanted.start + rows)

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        middle = (wanted.start + wanted.end) // 2
        halves = (wanted.start, middle), (middle, wanted.end)
        return [Piece(SplitRange(wanted.split, *each), wanted) for each in halves]


def ids_in(folder: str) -> Mapping[str, str]:
    """Return an id of each log: the number that the file system gives its first file."""
    first = {path.stem.rpartition("-")[0]: path for path in sorted(Path(folder).glob("*-*.jsonl"), reverse=True)}
    return {log: f"inode {path.stat().st_ino}" for log, path in first.items()}


@dataclass(frozen=True)
class FullReader(FileLogReader):
    token: str = field(default="", repr=False)
    is_cut: bool = False
    is_marked: bool = False
    logs: ExpectedLogs = field(default_factory=ExpectedLogs)

    def of_logs(self, expected: ExpectedLogs) -> FullReader:
        return replace(self, logs=expected)

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        if self.logs.ids.items() - ids_in(self.folder).items():
            raise DataLossError(f"{self.folder} has other logs than {self.logs.ids}")
        for batch in super().read(ranges):
            marks = batch.event_time.view("int64") if self.is_marked else None
            yield replace(batch, marks=marks, positions=None if self.is_cut else batch.positions)

    def read_piece(self, piece: Piece, batch: SnapshotBatch | None) -> Iterator[ReadBatch]:
        return self.read([piece.range])


@dataclass(frozen=True)
class FullSource(FileLogSource):
    server: str | None
    is_cut: bool

    def open(self) -> Connector:
        if self.server is not None:
            connect(self.server)
        log = FullLog(self.reader.folder)
        starts = EarliestOrLatest(log, self.earliest)
        made = replace(
            super().open(), discovery=log, bounds=log, starts=starts, time_index=log, preview=log, lineage=log
        )
        return replace(made, row_index=log, cutter=log) if self.is_cut else made


def connect(server: str) -> None:
    host, _, port = server.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError as error:
        raise UnreachableError(f"{server}: {error}") from None


class FullDataSource(FileLogDataSource):
    own_options: ClassVar[tuple[Option, ...]] = (
        *OWN_OPTIONS,
        Option(name="token", parse=non_empty, accepted="a token", example="x", doc="Of the server.", secret=True),
        Option(name="server", parse=non_empty, accepted="an address", example="localhost:80", doc="That is asked."),
        Option(name="marked", parse=boolean, default=False, accepted="a boolean", example="true", doc="Has marks."),
        Option(name="cut", parse=boolean, default=False, accepted="a boolean", example="true", doc="Is cut."),
    )

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        return Abilities(marks=values["marked"], row_positions=not values["cut"], rows_ahead=not values["cut"])

    def source(self, options: SourceOptions) -> FullSource:
        reader = FullReader(
            options["directory"], COLUMNS, "time", options["failOnDataLoss"], token=options["token"] or "",
            is_cut=options["cut"], is_marked=options["marked"],
        )  # fmt: skip
        return FullSource(reader, options["startingOffsets"] == EARLIEST, options["server"], options["cut"])

    def batch(self, options: SourceOptions) -> BatchDefinition:
        return WholeLogs(replace(self.source(options), is_cut=False))
