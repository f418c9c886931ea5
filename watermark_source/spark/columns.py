"""Marker rows: how watermarks and status changes travel with the data, in a nullable struct column ``marker``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType, TimestampType

from watermark_source.arrow_columns import column
from watermark_source.contract.stream import SourceDefinition
from watermark_source.planning.catch_up import is_done
from watermark_source.planning.policy import AfterCatchUp, GroupHold
from watermark_source.planning.snapshot_ranges import snapshot_split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.status_transitions import changed_status
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.column_names import DECLARED, EVENT_TIME, KEY, MARKER
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.plan_steps import Step
from watermark_source.status_model.hold_texts import IN_GENERAL
from watermark_source.words import NO_WORDS, Words

_THOUSAND_YEARS = 1_000 * 366 * 86_400_000
_MOST_MILLIS = (2**63 - 1) // 1_000 - _THOUSAND_YEARS
"""So that what Spark adds, a join's interval for example, is a timestamp too."""

MARKER_TYPE = StructType(
    [
        StructField("type", StringType()),
        StructField("log", StringType()),
        StructField("split", IntegerType()),
        StructField("watermark", TimestampType()),
        StructField("status", StringType()),
        StructField("use_processing_time", BooleanType()),
        StructField("reason", StringType()),
    ]
)
"""``type`` is ``watermark`` or ``status``. ``log`` and ``split`` are null for the whole source."""
SNAPSHOT_COMPLETE = "snapshot_complete"
"""The reason of a status of the whole source, once: what a query began with has been read, in batches before."""

CAUGHT_UP = "caught_up"
"""The reason of a status of the whole source, once: its logs have been read to the ends that they had at the start."""

_STATUS_NAME = {SplitStatus.ACTIVE: "active", SplitStatus.IDLE: "idle", SplitStatus.PAUSED: "paused"}
_REASONS: Final[Mapping[SplitStatus, str]] = {
    SplitStatus.ACTIVE: "has rows to read",
    SplitStatus.IDLE: "nothing to read, or nothing with an event time, for longer than idleTimeout",
    SplitStatus.PAUSED: "ahead of its alignment group by more than alignmentMaxDrift",
}
"""They follow from two offsets alone, on any replay, so they use no fact but the status."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker row; ``watermark`` in milliseconds."""

    type: str
    log: str | None
    split: int | None
    watermark: int | None
    status: str | None
    use_processing_time: bool
    reason: str | None


def markers_between(before: SourceState, after: SourceState) -> tuple[Marker, ...]:
    """Return the markers of the batch that leads from one state to the next: a pure function of the two offsets.

    Every batch carries the combined watermark, if there is one: a restarted Spark knows only the global watermark and
    needs each source's own again. ACTIVE precedes the watermark and IDLE follows it, so that none is sent while idle.
    Markers of snapshots precede both: their end is where a watermark may begin.
    """
    first = _of_snapshots(before, after)
    last: list[Marker] = []
    for split in sorted(changed_status(before.splits, after.splits)):
        state = after.splits[split]
        row = Marker(
            "status", split.log, split.number, state.watermark, _STATUS_NAME[state.status],
            after.use_processing_time, _REASONS[state.status],
        )  # fmt: skip
        (last if state.status is SplitStatus.IDLE else first).append(row)
    if after.watermark is not None:
        first.append(Marker("watermark", None, None, after.watermark, None, after.use_processing_time, None))
    return (*first, *last)


def _of_snapshots(before: SourceState, after: SourceState) -> list[Marker]:
    """Return the markers of snapshots, and of logs, that have been read to their ends."""
    was, now = before.snapshots, after.snapshots
    read = sorted((now.complete or frozenset()) - (was.complete or frozenset()))
    on_clock = after.use_processing_time
    found = [
        Marker("status", *snapshot_split(log), None, "finished", on_clock, "its snapshot is read to its end")
        for log in read
    ]
    at_first = before.watermark is None and not before.use_processing_time
    if at_first and was.frontiers and not now.frontiers:
        found.append(Marker("status", None, None, None, "active", on_clock, SNAPSHOT_COMPLETE))
    if is_done(after.catch_up) and not is_done(before.catch_up):
        found.append(Marker("status", None, None, None, "active", on_clock, CAUGHT_UP))
    return found


@lru_cache(maxsize=8)
def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema Spark compares the first batch with."""
    return to_arrow_schema(schema, timezone="UTC")


def marker_batch(markers: tuple[Marker, ...], schema: StructType) -> pa.RecordBatch:
    """Return the marker rows as one batch; every column but ``marker`` is null."""
    arrow = arrow_schema(schema)
    values: dict[str, list[Any]] = {
        "type": [m.type for m in markers],
        "log": [m.log for m in markers],
        "split": [m.split for m in markers],
        "watermark": [None if m.watermark is None else in_micros(m.watermark) for m in markers],
        "status": [m.status for m in markers],
        "use_processing_time": [m.use_processing_time for m in markers],
        "reason": [m.reason for m in markers],
    }
    fields = list(arrow.field(MARKER).type)
    marker = pa.StructArray.from_arrays([column(values[f.name], f.type) for f in fields], fields=fields)
    columns = [marker if field.name == MARKER else pa.nulls(len(markers), field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def in_micros(watermark: int) -> int:
    """Return a watermark as Spark's timestamps have it; the ends of time are 291 000 years off there."""
    return min(max(watermark, -_MOST_MILLIS), _MOST_MILLIS) * 1_000


@lru_cache(maxsize=4)
def _null_markers(marker_type: pa.DataType, capacity: int) -> pa.Array:
    return pa.nulls(capacity, marker_type)


def no_markers(rows: int, schema: StructType) -> pa.Array:
    """Return the ``marker`` column of data rows: nulls, cut from one array that is kept."""
    capacity = 1 << max(14, (rows - 1).bit_length())
    return _null_markers(arrow_schema(schema).field(MARKER).type, capacity)[:rows]


# What a source declares about its time, in the metadata of a column: how operators know it before a row has come.
#
# The source writes it to its ``marker`` column, ``follow_watermark`` carries it to the event-time column, and Spark
# keeps it there through ``select``, renames, filters and unions of equals; a column that is computed has none.


_SAID = ("dated_by", "clock", "undated_delete", "reads_first")
"""Those of a connector's words that ``follow_watermark`` and joins say."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """One source's time."""

    source: str
    characteristic: WatermarkCharacteristic
    processing_time: bool
    """Whether event time is the clock."""
    group: str | None = None
    """The alignment group in which it meets other sources; ``None``: it is in no group with others."""
    holds_group: bool = False
    """Whether the other members of the group wait until its snapshots are complete."""
    begins_with_snapshot: bool = False
    """Whether it begins with snapshots, or with its logs up to their ends, and has no watermark before."""
    reads_to_end_first: bool = False
    """Whether that is its logs, whose rows are changes of keys (``whenCaughtUp`` ``watermark``)."""
    deletion_time: str | None = None
    """The column with the time of a deletion, where the row that reports it has the deleted row's event time."""
    change_columns: tuple[str, ...] = ()
    """The column of the kind of change, then those that order changes; none where rows are not changes of a table."""
    default_times: tuple[str, ...] = ()
    """The columns with the times that its watermark is about, such as a record's timestamp; none where an option names
    these times, or where they are not those of rows."""
    named_times: tuple[str, ...] = ()
    """These columns where an option names these times."""
    becomes_clock: bool = False
    """Whether it changes from event times to the clock (``whenCaughtUp`` ``clock``)."""
    batch_clock: bool = False
    """Whether its watermark is the time of Spark's batches (``follow_clock``), and not one of a source."""
    words: Words = NO_WORDS
    """Those that operators say (``_SAID``); the others have their defaults."""

    @classmethod
    def of(
        cls, source: SourceDefinition, options: EngineOptions, characteristic: WatermarkCharacteristic
    ) -> SourceTime:
        """Return a source's time by the user's options and the connector's declaration."""
        group, reads_first = options.group, options.policy.after_catch_up is AfterCatchUp.WATERMARK
        begins = source.begins_with_snapshot or reads_first
        meets = group is not None and group.store is not None
        by_rows = options.policy.strategy.observed.is_event_times
        times = (EVENT_TIME, *source.time_columns) if by_rows else ()
        return cls(
            source=options.source_name,
            characteristic=characteristic,
            processing_time=options.policy.strategy.is_clock,
            group=group.name if group is not None and meets else None,
            holds_group=meets and begins and options.policy.alignment.hold is not GroupHold.NOTHING,
            begins_with_snapshot=begins,
            reads_to_end_first=reads_first,
            deletion_time=source.deletion_time_column,
            change_columns=tuple(source.change_columns),
            default_times=times if source.event_time is None else (),
            named_times=() if source.event_time is None else times,
            becomes_clock=options.policy.after_catch_up is AfterCatchUp.CLOCK,
            words=Words(**{name: getattr(source.words, name) for name in _SAID}),
        )

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Read a column's metadata; ``None`` where nothing is declared."""
        declared = metadata.get(KEY)
        if not isinstance(declared, Mapping):
            return None
        return cls(
            source=declared["source"],
            characteristic=WatermarkCharacteristic(declared["characteristic"]),
            processing_time=declared["processingTime"],
            group=declared.get("group"),
            holds_group=declared["holdsGroup"],
            begins_with_snapshot=declared["beginsWithSnapshot"],
            reads_to_end_first=declared.get("readsToEndFirst", False),
            deletion_time=declared.get("deletionTime"),
            change_columns=tuple(declared.get("changeColumns", ())),
            default_times=tuple(declared.get("defaultTimes", ())),
            named_times=tuple(declared.get("namedTimes", ())),
            becomes_clock=declared.get("becomesClock", False),
            batch_clock=declared.get("batchClock", False),
            words=Words(**declared.get("words", {})),
        )

    @property
    def times(self) -> tuple[str, ...]:
        """The columns with the times that its watermark is about."""
        return self.default_times or self.named_times

    @property
    def announces_processing_time(self) -> bool:
        """Whether it declares that a watermark will announce when time is the clock (FLIP-326)."""
        return self.characteristic is WatermarkCharacteristic.ANY_WATERMARK

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a column that declares this."""
        declared: dict[str, Any] = {
            "source": self.source,
            "characteristic": self.characteristic.value,
            "processingTime": self.processing_time,
            "holdsGroup": self.holds_group,
            "beginsWithSnapshot": self.begins_with_snapshot,
        }
        if self.group is not None:
            declared["group"] = self.group
        if self.reads_to_end_first:
            declared["readsToEndFirst"] = True
        if self.deletion_time is not None:
            declared["deletionTime"] = self.deletion_time
        if self.change_columns:
            declared["changeColumns"] = list(self.change_columns)
        if self.default_times:
            declared["defaultTimes"] = list(self.default_times)
        if self.named_times:
            declared["namedTimes"] = list(self.named_times)
        if self.becomes_clock:
            declared["becomesClock"] = True
        if self.batch_clock:
            declared["batchClock"] = True
        if words := {name: text for name in _SAID if (text := getattr(self.words, name)) != getattr(NO_WORDS, name)}:
            declared["words"] = words
        return {KEY: declared}

    def in_plan(self) -> str:
        """Return a text of this by which a plan shows it: Spark Connect shows no metadata."""
        # In a text of Spark's, a space, a parenthesis or a bracket would end it.
        return quote(json.dumps(self.metadata[KEY], separators=(",", ":")), safe='{}":,')

    @classmethod
    def of_plan(cls, plan: Step) -> Self | None:
        """Return what a projection of a plan declares; ``None`` of another operator."""
        numbers = [column.number for column in plan.output if column.name == DECLARED and column.number in plan.made]
        return cls.of_metadata({KEY: json.loads(unquote(plan.made[numbers[0]]))}) if numbers else None
