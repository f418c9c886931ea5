"""The public contract: everything that a connector imports. docs/writing-a-source.md builds one, docs/api.md lists it.

A name is imported from its own module when it is first used: Spark imports the module of every format to find one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watermark_source.supported_spark import imported

if TYPE_CHECKING:
    from watermark_source.contract.announcements import AnnouncementLog as AnnouncementLog
    from watermark_source.contract.announcements import AnnouncementsRead as AnnouncementsRead
    from watermark_source.contract.batch_read import BatchDefinition as BatchDefinition
    from watermark_source.contract.batch_read import BatchRangeReader as BatchRangeReader
    from watermark_source.contract.batch_read import WholeLogs as WholeLogs
    from watermark_source.contract.lineage import ExpectedLogs as ExpectedLogs
    from watermark_source.contract.lineage import Lineage as Lineage
    from watermark_source.contract.lineage import LineageRangeReader as LineageRangeReader
    from watermark_source.contract.lineage import ReadUpTo as ReadUpTo
    from watermark_source.contract.read_batch import ReadBatch as ReadBatch
    from watermark_source.contract.read_batch import event_times as event_times
    from watermark_source.contract.stream import Connector as Connector
    from watermark_source.contract.stream import CurrentEnds as CurrentEnds
    from watermark_source.contract.stream import EarliestOrLatest as EarliestOrLatest
    from watermark_source.contract.stream import Ends as Ends
    from watermark_source.contract.stream import EventTimeIndex as EventTimeIndex
    from watermark_source.contract.stream import EventTimePreview as EventTimePreview
    from watermark_source.contract.stream import LogBounds as LogBounds
    from watermark_source.contract.stream import OpenTransactions as OpenTransactions
    from watermark_source.contract.stream import Passage as Passage
    from watermark_source.contract.stream import PieceReader as PieceReader
    from watermark_source.contract.stream import ProgressSink as ProgressSink
    from watermark_source.contract.stream import RangeCutter as RangeCutter
    from watermark_source.contract.stream import RangeReader as RangeReader
    from watermark_source.contract.stream import RelocatedRangeReader as RelocatedRangeReader
    from watermark_source.contract.stream import Relocation as Relocation
    from watermark_source.contract.stream import Replicas as Replicas
    from watermark_source.contract.stream import SnapshotRangeReader as SnapshotRangeReader
    from watermark_source.contract.stream import Snapshots as Snapshots
    from watermark_source.contract.stream import SnapshotSize as SnapshotSize
    from watermark_source.contract.stream import SourceDefinition as SourceDefinition
    from watermark_source.contract.stream import SplitDiscovery as SplitDiscovery
    from watermark_source.contract.stream import StartPositions as StartPositions
    from watermark_source.errors import CorruptDataError as CorruptDataError
    from watermark_source.errors import DataLossError as DataLossError
    from watermark_source.errors import EventTimeError as EventTimeError
    from watermark_source.errors import MissingPackageError as MissingPackageError
    from watermark_source.errors import OffsetError as OffsetError
    from watermark_source.errors import OptionError as OptionError
    from watermark_source.errors import RefusedError as RefusedError
    from watermark_source.errors import ResponseTimeoutError as ResponseTimeoutError
    from watermark_source.errors import SchemaError as SchemaError
    from watermark_source.errors import SourceError as SourceError
    from watermark_source.errors import StartMismatchError as StartMismatchError
    from watermark_source.errors import UnknownSplitError as UnknownSplitError
    from watermark_source.errors import UnreachableError as UnreachableError
    from watermark_source.errors import UnskippableLossError as UnskippableLossError
    from watermark_source.errors import UnsupportedFormatError as UnsupportedFormatError
    from watermark_source.errors import UsageError as UsageError
    from watermark_source.errors import WatermarkSourceError as WatermarkSourceError
    from watermark_source.option_table import Option as Option
    from watermark_source.option_table import OptionTable as OptionTable
    from watermark_source.option_table import Renamed as Renamed
    from watermark_source.option_table import at_least_one as at_least_one
    from watermark_source.option_table import boolean as boolean
    from watermark_source.option_table import duration as duration
    from watermark_source.option_table import integer as integer
    from watermark_source.option_table import non_empty as non_empty
    from watermark_source.option_table import one_of as one_of
    from watermark_source.option_table import positive_integer as positive_integer
    from watermark_source.option_table import true_or_false as true_or_false
    from watermark_source.option_table import word as word
    from watermark_source.planning.announced import LoggedStatement as LoggedStatement
    from watermark_source.planning.announcement import Announcement as Announcement
    from watermark_source.planning.announcement import Removal as Removal
    from watermark_source.planning.policy import LossKind as LossKind
    from watermark_source.planning.policy import MinimumRows as MinimumRows
    from watermark_source.planning.policy import RowLimits as RowLimits
    from watermark_source.planning.ranges_per_task import OpenRange as OpenRange
    from watermark_source.planning.snapshot_ranges import Chunk as Chunk
    from watermark_source.planning.snapshot_ranges import SnapshotBatch as SnapshotBatch
    from watermark_source.planning.split import IndexEntry as IndexEntry
    from watermark_source.planning.split import NewestTime as NewestTime
    from watermark_source.planning.split import Piece as Piece
    from watermark_source.planning.split import RowIndex as RowIndex
    from watermark_source.planning.split import Split as Split
    from watermark_source.planning.split import SplitRange as SplitRange
    from watermark_source.planning.state import Bound as Bound
    from watermark_source.planning.state import Epoch as Epoch
    from watermark_source.planning.strategy import Abilities as Abilities
    from watermark_source.planning.watermark import Millis as Millis
    from watermark_source.planning.watermark import WatermarkCharacteristic as WatermarkCharacteristic
    from watermark_source.spark.data_source import EARLIEST as EARLIEST
    from watermark_source.spark.data_source import LATEST as LATEST
    from watermark_source.spark.data_source import STREAM_OPTIONS as STREAM_OPTIONS
    from watermark_source.spark.data_source import AlignedDataSource as AlignedDataSource
    from watermark_source.spark.option_rows import ENGINE_OPTIONS as ENGINE_OPTIONS
    from watermark_source.spark.option_rows import ONLY_IN_STREAMS as ONLY_IN_STREAMS
    from watermark_source.spark.option_rows import RENAMED as RENAMED
    from watermark_source.spark.options import SourceOptions as SourceOptions
    from watermark_source.words import Words as Words

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
        "UnreachableError UnskippableLossError UnsupportedFormatError UsageError WatermarkSourceError",
        "option_table": "Option OptionTable Renamed at_least_one boolean duration integer non_empty one_of "
        "positive_integer true_or_false word",
        "planning.announced": "LoggedStatement",
        "planning.announcement": "Announcement Removal",
        "planning.policy": "LossKind MinimumRows RowLimits",
        "planning.ranges_per_task": "OpenRange",
        "planning.snapshot_ranges": "Chunk SnapshotBatch",
        "planning.split": "IndexEntry NewestTime Piece RowIndex Split SplitRange",
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
    if name == "__all__":
        return sorted(_HOMES)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; docs/api.md lists the public names")
    found = globals()[name] = getattr(imported(f"watermark_source.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
