"""The observation: what the outside said before a plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.group import NOBODY, OtherMembers
from watermark_source.planning.split import Split
from watermark_source.planning.state import Bound
from watermark_source.planning.step_sizes import FirstLook
from watermark_source.planning.watermark import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTimes:
    """How far time is in the logs, as far as that is known without reading them."""

    reached: Mapping[Split, Millis] = field(default_factory=dict)
    """Of logs whose system dates the rows when it writes them: its time when the end was asked for. No row after the
    end is earlier. With ``watermark_lag`` the driver's time, at most that of the last look for splits, and no row after
    the end, or of a split that is found later, is earlier by more than that."""
    newest: Mapping[Split, Millis | None] = field(default_factory=dict)
    """Highest event time in the log, asked for *before* the ends; empty without a time index, and while nobody needs
    it."""
    settled: Set[Split] = frozenset()
    """Splits that had the same end before ``newest`` was asked for: no row of theirs is later than it."""
    looks: Mapping[Split, FirstLook] = field(default_factory=dict)
    """Of splits of an aligned source without a time index, of which no range has told how fast event time goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLogs:
    """Which splits there are, and from where to where they can be read."""

    asked_at: Millis
    """Just before the ends were asked for: what came after this moment need not show in them. On a clock that a
    correction of the wall clock does not move, which would be time that did not pass, or by which all splits were
    ``silent``."""
    ends: Mapping[Split, int]
    """End position of every split that exists now, but for the unknown ones."""
    ends_are_final: bool = False
    """``Trigger.AvailableNow``: the run reads up to these ends and no further."""
    unknown: Set[Split] = frozenset()
    """Splits that exist and whose end nobody tells for the moment: they stay as they are."""
    stale: Set[Split] = frozenset()
    """Splits whose end is one of a while ago: who leads them does not answer now."""
    silent: Set[Split] = frozenset()
    """Splits whose system did not answer at some time since the last plan; it may again."""
    uncommitted: Set[Split] = frozenset()
    """Splits at their end with rows behind it, whose transaction is open; of those that the plan would pass over
    otherwise (``passed_over``)."""
    earliest: Mapping[Split, int] = field(default_factory=dict)
    """First retained position, as far as it was asked for."""
    added: Mapping[Split, int] = field(default_factory=dict)
    """Start position of the splits that are new."""
    all_found: bool = True
    """Whether splits were looked for after the ends of the last rows were asked for: a split that is found later holds
    no row from before. While that is not known, the watermark advances no further than ``PlanHistory.combined``."""
    all_found_now: bool = True
    """Of ``looks_ahead``: whether splits were looked for after *these* ends were asked for, too. Rows behind the batch
    move the watermark at once then, and what the last plan led to otherwise."""
    times: LogTimes = field(default_factory=LogTimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSnapshots:
    """What comes next of snapshots; nothing in a source that takes none."""

    chunks: Mapping[str, tuple[Bound, ...]] = field(default_factory=dict)
    """Of snapshots that go on: where the chunks end that come next, all of which are in the logs' ``ends``."""
    found: Set[str] = frozenset()
    """Logs that are new: their snapshot begins with a batch that reads the log of changes to its end."""
    dropped: Set[str] = frozenset()
    """Logs to forget: those that are gone while their snapshot is under way, and those that are chosen no more."""
    waiting: Set[Split] = frozenset()
    """Splits that are read on only when all snapshots are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much Spark lets the batch read."""

    max_rows: int | None = None
    """At most so many positions in the batch."""
    one_batch: bool = False
    """``Trigger.Once``: everything up to the ends belongs to this batch, whatever the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistory:
    """What this process knows from its plans before: nothing of it is in an offset."""

    since_rows: Millis | None = None
    """Time since a batch of this process last read rows; ``None`` if none did."""
    asked_before: Millis | None = None
    """When the ends were asked for that the plan before was made of."""
    rest: Millis | None = None
    """For how long this process has had nothing to do; ``None`` if it has not come to rest since the last batch."""
    idle_timeouts: Mapping[Split, int] = field(default_factory=dict)
    """Where it is learned: how long splits must be quiet to be idle, of those with nothing left to read."""
    combined: Millis | None = None
    """The combined watermark of an earlier plan (``SplitWatermarks``), if splits were looked up since then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outside world as it was asked for one plan."""

    now: Millis
    """The driver's wall clock: the future begins here, and with processing-time watermarks it is event time."""
    logs: ObservedLogs
    snapshots: ObservedSnapshots = field(default_factory=ObservedSnapshots)
    seen: Mapping[Split, RangeSummary] = field(default_factory=dict)
    """What was seen in each split's last planned range."""
    others: OtherMembers = NOBODY
    """What is known of the alignment group's members elsewhere; nothing without a group, and of a group alone."""
    followed: Millis | None = None
    """How far they had come, for a source that goes on with them (``reached_by``), before the last look for splits that
    has ended: a split that is found later holds no row from before. ``None`` where that is not known, or not needed."""
    limits: BatchLimits = field(default_factory=BatchLimits)
    history: PlanHistory = field(default_factory=PlanHistory)
