"""The file log of the tests with all that the kit looks at: preview, row index, cutter, a secret, a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tests.spark.file_log import COLUMNS, OWN_OPTIONS, FileLog, FileLogDataSource, FileLogReader, FileLogSource
from watermark_source.contract.batch_read import BatchDefinition, WholeLogs
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Connector, EarliestOrLatest, EventTimePreview
from watermark_source.errors import UnreachableError
from watermark_source.option_table import Option, boolean, non_empty
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.planning.strategy import Abilities
from watermark_source.planning.watermark import Millis
from watermark_source.spark.data_source import EARLIEST
from watermark_source.spark.options import SourceOptions


@dataclass(frozen=True)
class FullLog(FileLog, EventTimePreview):
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


@dataclass(frozen=True)
class FullReader(FileLogReader):
    token: str = field(default="", repr=False)
    is_cut: bool = False
    is_marked: bool = False

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
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
        made = replace(super().open(), discovery=log, bounds=log, starts=starts, time_index=log, preview=log)
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
