"""The public contract: everything that a connector imports. docs/writing-a-source.md builds one, docs/api.md lists it.

A name is imported from its own module when it is first used: Spark imports the module of every format to find one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watermark_source.supported_spark import imported

if TYPE_CHECKING:
    from watermark_source.contract.announcements import AnnouncementLog, AnnouncementsRead
    from watermark_source.contract.batch_read import BatchDefinition, BatchRangeReader, WholeLogs
    from watermark_source.contract.lineage import ExpectedLogs, Lineage, LineageRangeReader, ReadUpTo
    from watermark_source.contract.read_batch import ReadBatch, event_times
    from watermark_source.contract.stream import (
        Connector,
        CurrentEnds,
        EarliestOrLatest,
        Ends,
        EventTimeIndex,
        EventTimePreview,
        LogBounds,
        OpenTransactions,
        Passage,
        PieceReader,
        ProgressSink,
        RangeCutter,
        RangeReader,
        RelocatedRangeReader,
        Relocation,
        Replicas,
        SnapshotRangeReader,
        Snapshots,
        SnapshotSize,
        SourceDefinition,
        SplitDiscovery,
        StartPositions,
    )
    from watermark_source.errors import (
        CorruptDataError,
        DataLossError,
        EventTimeError,
        MissingPackageError,
        OffsetError,
        OptionError,
        RefusedError,
        ResponseTimeoutError,
        SchemaError,
        SourceError,
        StartMismatchError,
        UnknownSplitError,
        UnreachableError,
        UnsupportedFormatError,
        UsageError,
        WatermarkSourceError,
    )
    from watermark_source.option_table import (
        Option,
        OptionTable,
        Renamed,
        at_least_one,
        boolean,
        duration,
        integer,
        non_empty,
        one_of,
        positive_integer,
        true_or_false,
        word,
    )
    from watermark_source.planning.announced import LoggedStatement
    from watermark_source.planning.announcement import Announcement, Removal
    from watermark_source.planning.policy import LossKind, MinimumRows, RowLimits
    from watermark_source.planning.ranges_per_task import OpenRange
    from watermark_source.planning.snapshot_ranges import Chunk, SnapshotBatch
    from watermark_source.planning.split import IndexEntry, Piece, RowIndex, Split, SplitRange
    from watermark_source.planning.state import Bound, Epoch
    from watermark_source.planning.strategy import Abilities
    from watermark_source.planning.watermark import Millis, WatermarkCharacteristic
    from watermark_source.spark.data_source import EARLIEST, LATEST, STREAM_OPTIONS, AlignedDataSource
    from watermark_source.spark.option_rows import ENGINE_OPTIONS, ONLY_IN_STREAMS, RENAMED
    from watermark_source.spark.options import SourceOptions
    from watermark_source.words import Words

# fmt: off
__all__ = [
    "EARLIEST",
    "ENGINE_OPTIONS",
    "LATEST",
    "ONLY_IN_STREAMS",
    "RENAMED",
    "STREAM_OPTIONS",
    "Abilities",
    "AlignedDataSource",
    "Announcement",
    "AnnouncementLog",
    "AnnouncementsRead",
    "BatchDefinition",
    "BatchRangeReader",
    "Bound",
    "Chunk",
    "Connector",
    "CorruptDataError",
    "CurrentEnds",
    "DataLossError",
    "EarliestOrLatest",
    "Ends",
    "Epoch",
    "EventTimeError",
    "EventTimeIndex",
    "EventTimePreview",
    "ExpectedLogs",
    "IndexEntry",
    "Lineage",
    "LineageRangeReader",
    "LogBounds",
    "LoggedStatement",
    "LossKind",
    "Millis",
    "MinimumRows",
    "MissingPackageError",
    "OffsetError",
    "OpenRange",
    "OpenTransactions",
    "Option",
    "OptionError",
    "OptionTable",
    "Passage",
    "Piece",
    "PieceReader",
    "ProgressSink",
    "RangeCutter",
    "RangeReader",
    "ReadBatch",
    "ReadUpTo",
    "RefusedError",
    "RelocatedRangeReader",
    "Relocation",
    "Removal",
    "Renamed",
    "Replicas",
    "ResponseTimeoutError",
    "RowIndex",
    "RowLimits",
    "SchemaError",
    "SnapshotBatch",
    "SnapshotRangeReader",
    "SnapshotSize",
    "Snapshots",
    "SourceDefinition",
    "SourceError",
    "SourceOptions",
    "Split",
    "SplitDiscovery",
    "SplitRange",
    "StartMismatchError",
    "StartPositions",
    "UnknownSplitError",
    "UnreachableError",
    "UnsupportedFormatError",
    "UsageError",
    "WatermarkCharacteristic",
    "WatermarkSourceError",
    "WholeLogs",
    "Words",
    "at_least_one",
    "boolean",
    "duration",
    "event_times",
    "integer",
    "non_empty",
    "one_of",
    "positive_integer",
    "true_or_false",
    "word",
]
# fmt: on

_HOMES = {
    name: module
    for module, names in {
        "contract.announcements": "AnnouncementLog AnnouncementsRead",
        "contract.batch_read": "BatchDefinition BatchRangeReader WholeLogs",
        "contract.lineage": "ExpectedLogs Lineage LineageRangeReader ReadUpTo",
        "contract.read_batch": "ReadBatch event_times",
        "contract.stream": "Connector CurrentEnds EarliestOrLatest Ends "
        "EventTimeIndex EventTimePreview LogBounds OpenTransactions Passage PieceReader ProgressSink RangeCutter "
        "RangeReader RelocatedRangeReader Relocation Replicas SnapshotRangeReader Snapshots SnapshotSize "
        "SourceDefinition SplitDiscovery StartPositions",
        "errors": "CorruptDataError DataLossError EventTimeError MissingPackageError OffsetError OptionError "
        "RefusedError ResponseTimeoutError SchemaError SourceError StartMismatchError UnknownSplitError "
        "UnreachableError UnsupportedFormatError UsageError WatermarkSourceError",
        "option_table": "Option OptionTable Renamed at_least_one boolean duration integer non_empty one_of "
        "positive_integer true_or_false word",
        "planning.announced": "LoggedStatement",
        "planning.announcement": "Announcement Removal",
        "planning.policy": "LossKind MinimumRows RowLimits",
        "planning.ranges_per_task": "OpenRange",
        "planning.snapshot_ranges": "Chunk SnapshotBatch",
        "planning.split": "IndexEntry Piece RowIndex Split SplitRange",
        "planning.state": "Bound Epoch",
        "planning.strategy": "Abilities",
        "planning.watermark": "Millis WatermarkCharacteristic",
        "spark.data_source": "AlignedDataSource EARLIEST LATEST STREAM_OPTIONS",
        "spark.option_rows": "ENGINE_OPTIONS ONLY_IN_STREAMS RENAMED",
        "spark.options": "SourceOptions",
        "words": "Words",
    }.items()
    for name in names.split()
}
"""The module that each name is defined in."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; docs/api.md lists the public names")
    found = globals()[name] = getattr(imported(f"watermark_source.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
