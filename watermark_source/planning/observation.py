"""The observation: logs, snapshots, tasks and group as they are when a plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from watermark_source.planning.announced import ObservedAnnouncements
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.group import NO_OTHERS, OtherMembers
from watermark_source.planning.lineage import Cut, History
from watermark_source.planning.split import NewestTime, Split
from watermark_source.planning.state import Bound
from watermark_source.planning.watermark import Millis


class FirstLook(NamedTuple):
    """Event times of a split's first rows, read before any of them was planned, where they cannot be looked up."""

    first: Millis
    """Event time of its first row."""
    rows: int
    """How many positions further on a second row was read,"""
    advanced: int
    """and by how much its event time was later, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTimes:
    """Event times of the logs, as far as they are known without reading rows."""

    reached: Mapping[Split, Millis] = field(default_factory=dict)
    """The system's time just before it returned the end, for logs whose system dates rows when it writes them: no row
    after the end is earlier. A strategy may replace it with the driver's time (``times_at_ends``), at most that of the
    last look-up of splits: no row after the end, or of a split found later, is earlier by more than ``write_delay``."""
    newest: Mapping[Split, NewestTime | None] = field(default_factory=dict)
    """Highest event time in the log, looked up *before* the ends; empty without a time index, and while no plan needs
    it."""
    settled: Set[Split] = frozenset()
    """Splits whose end did not change while ``newest`` was looked up: none of their rows is later."""
    looks: Mapping[Split, FirstLook] = field(default_factory=dict)
    """First rows of aligned splits without a time index, until a range has shown how fast their event time advances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLogs:
    """Which splits there are, and from where to where they can be read."""

    asked_at: Millis
    """Just before the ends were requested: rows written later need not show in them. By a clock that is not moved
    when the wall clock is corrected, which would otherwise count as quiet time, or as silence of all splits."""
    ends: Mapping[Split, int]
    """End position of every split that exists now, except the unknown ones."""
    ends_are_final: bool = False
    """``Trigger.AvailableNow``: the run reads up to these ends and no further."""
    unknown: Set[Split] = frozenset()
    """Splits that exist and whose system did not return an end: they stay as they are."""
    stale: Set[Split] = frozenset()
    """Splits whose end is an earlier one: their system does not answer now."""
    silent: Set[Split] = frozenset()
    """Splits whose system did not answer at some time since the last plan, even if it does now."""
    uncommitted: Set[Split] = frozenset()
    """Splits at their end that have, or may have, rows of an open transaction behind it; only those that the plan would
    pass over otherwise (``passed_over``)."""
    open_ends: Mapping[Split, int | None] = field(default_factory=dict)
    """``ends`` with rows of open transactions included, where a source begins to catch up; ``None``: no answer."""
    earliest: Mapping[Split, int] = field(default_factory=dict)
    """First retained position, as far as it was requested."""
    added: Mapping[Split, int] = field(default_factory=dict)
    """Start position of the splits that are new."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids that logs had before the ends were requested, where the system names any."""
    histories: Mapping[Split, History] = field(default_factory=dict)
    """Epochs of logs whose newest epoch is not the one of their split's state, back to that one or an earlier one."""
    cuts: Mapping[Split, Cut] = field(default_factory=dict)
    """Where logs lack rows that an earlier plan of this process has seen there."""
    all_found: bool = True
    """Whether splits were looked up after the ends of the last rows were requested: then a split found later has no
    earlier row. While that is not known, the watermark advances no further than ``PlanHistory.combined``."""
    all_found_now: bool = True
    """Where rows are read ahead: whether splits were looked up after *these* ends were requested, too. If so, rows
    behind the batch advance the watermark at once; otherwise it is that of the last plan."""
    times: LogTimes = field(default_factory=LogTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSnapshots:
    """What comes next of snapshots; empty in a source that takes none."""

    chunks: Mapping[str, tuple[Bound, ...]] = field(default_factory=dict)
    """Upper bounds of the next chunks of unfinished snapshots; the logs' ``ends`` count all of these chunks."""
    found: Set[str] = frozenset()
    """Logs that are new: their snapshot begins with a batch that reads the log of changes to its end."""
    dropped: Set[str] = frozenset()
    """Logs to forget: dropped while their snapshot is under way, or no longer selected by the user."""
    waiting: Set[Split] = frozenset()
    """Splits that are read only after all snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much Spark lets the batch read."""

    max_rows: int | None = None
    """Limit on the positions of the batch."""
    one_batch: bool = False
    """``Trigger.Once``: everything up to the ends belongs to this batch, regardless of limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistory:
    """What this process knows from its earlier plans; none of it is in an offset."""

    since_rows: Millis | None = None
    """Time since a batch of this process last read rows; ``None`` if none did."""
    asked_before: Millis | None = None
    """When the ends of the previous plan were requested."""
    rest: Millis | None = None
    """For how long this process has had nothing to do; ``None`` if it has not been at rest since the last batch."""
    since_batch_without_rows: Millis | None = None
    """Time since this process last planned a batch without rows; ``None`` if it planned none."""
    idle_timeouts: Mapping[Split, int] = field(default_factory=dict)
    """Where idle timeouts are learned: how long each split with nothing left to read must be quiet to be idle."""
    combined: Millis | None = None
    """The combined watermark of an earlier plan (``SplitWatermarks``), if splits were looked up since then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one plan is made from."""

    now: Millis
    """The driver's wall clock: the future begins here, and with processing-time watermarks it is event time. How long
    rows have been read counts from it; how long none has come, from ``ObservedLogs.asked_at``."""
    logs: ObservedLogs
    snapshots: ObservedSnapshots = field(default_factory=ObservedSnapshots)
    seen: Mapping[Split, RangeSummary] = field(default_factory=dict)
    """What was seen in each split's last planned range."""
    others: OtherMembers = NO_OTHERS
    """Members of the alignment group in other sources; empty without a group, and if there are none."""
    followed: Millis | None = None
    """How far they had advanced before the last completed look-up of splits, for a source that follows them
    (``reached_by``): a split found later has no earlier row. ``None`` where that is not known, or not needed."""
    announced: ObservedAnnouncements | None = None
    """``None`` unless the watermark is announced by the writers."""
    limits: BatchLimits = field(default_factory=BatchLimits)
    history: PlanHistory = field(default_factory=PlanHistory)
