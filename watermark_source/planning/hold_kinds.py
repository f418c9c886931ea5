"""Why a member is where it is: every kind of reason with its properties, and the rule that finds it. Pure.

What else a new kind needs is in CONTRIBUTING.md, "Your first change".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from watermark_source.planning.announced import WriterAt, WriterStatus
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.strategy import Bounded, TasksObserve, WatermarkStrategy

SHORTEST_SILENCE: Final = 1_000
"""Milliseconds without rows up to which a split was read to its end just now, and is not silent."""
_WRITERS_PAUSE = 5_000
"""Milliseconds without an announcement up to which a writer announces, and is not silent."""


class Motion(Enum):
    """What becomes of a member that is not further, without anyone's help.

    By it ``holds`` sorts, warnings tell one reason from another, and the page and ``why_open`` judge a query.
    """

    COMES = auto()
    """Its rows come, or are about to count: it advances by itself."""
    WAITS = auto()
    """It advances once others do."""
    STUCK = auto()
    """It advances once a system or a producer does, and nothing leaves it out meanwhile: ``ObservedLogs`` has it as
    ``unknown``, ``stale`` or ``uncommitted``, so that it does not become idle."""
    LACKS_ROWS = auto()
    """It advances by rows that it does not have: others continue without it, once it is left out."""
    APART = auto()
    """Nothing waits for it."""


class HoldKind(Enum):
    """Why a member is not further. The value is its code in reports.

    A sentence about several members names them in this order.
    """

    motion: Motion
    meaning: str
    """In the documentation."""

    def __new__(cls, code: str, motion: Motion, meaning: str) -> HoldKind:
        """Return the member of a row: its code, motion and meaning."""
        kind = object.__new__(cls)
        kind._value_, kind.motion, kind.meaning = code, motion, meaning
        return kind

    BACKLOG = "backlog", Motion.COMES, "it has rows, and they are being read"
    READ = "read", Motion.COMES, "it was read to its end just now"
    PENDING = "pending", Motion.COMES, "its last rows are in a batch, and not in its watermark yet"
    PAUSED = "paused", Motion.WAITS, "it has rows, and its alignment group lets it not be read"
    OPEN_TRANSACTION = "openTransaction", Motion.STUCK, "its next rows are in a transaction that is open"
    SILENT = "silent", Motion.LACKS_ROWS, "all is read, and nothing has come for a while"
    BOUND = "bound", Motion.LACKS_ROWS, "its rows have passed a time; its watermark is `maxOutOfOrderness` behind them"
    UNDATED = "undated", Motion.LACKS_ROWS, "none of the rows that this run has read of it had an event time"
    FUTURE = "future", Motion.LACKS_ROWS, "as `undated`, or too far in the future to count (`maxFutureSkew`)"
    NO_MARKS = "noMarks", Motion.LACKS_ROWS, "none of the rows that this run has read of it carried a watermark"
    NEVER = "never", Motion.LACKS_ROWS, "no row or announcement of it has been seen"
    NO_ANSWER = "noAnswer", Motion.STUCK, "its log does not answer, or what a writer announced cannot be read"
    SNAPSHOT = "snapshot", Motion.COMES, "it is a snapshot, which is read first"
    LEFT_OUT = "leftOut", Motion.APART, "it is idle, or has come back behind the watermark (`idleReturn=pass`)"

    @property
    def is_at_rest(self) -> bool:
        """Whether no rows that are being read end it."""
        return self.motion in (Motion.STUCK, Motion.LACKS_ROWS)

    @property
    def is_silence(self) -> bool:
        """Whether any next row or announcement ends it, and a timeout leaves the member out as it is."""
        return self in (HoldKind.SILENT, HoldKind.NEVER)

    @property
    def is_caught_up(self) -> bool:
        """Whether all is read, and the watermark is that of its newest rows."""
        return self in (HoldKind.READ, HoldKind.SILENT)

    @property
    def is_being_read(self) -> bool:
        """Whether it ends once the batches that run have read its rows, so that slow batches do not explain it away."""
        return self is HoldKind.BACKLOG

    @property
    def can_be_read(self) -> bool:
        """Whether a batch may read its next rows: it waits for no other member, and its log answers."""
        return self.motion not in (Motion.WAITS, Motion.APART) and self is not HoldKind.NO_ANSWER

    @property
    def holds_alone(self) -> bool:
        """Whether it stops a source of which no other split is ahead, too."""
        return self.motion is Motion.STUCK


class AlignmentWait(NamedTuple):
    """The member that a paused split waits for."""

    slowest: str
    """The slowest member of the alignment group."""
    max_drift: int | None
    """Milliseconds; ``None`` while the member lets no other member read."""
    ahead: int | None = None
    """How far the split's watermark is ahead of that member, milliseconds."""
    drift_of: str | None = None
    """The other source whose ``alignmentMaxDrift`` is in force; ``None`` if it is that of this source."""


class Behind(NamedTuple):
    """How far an active split is behind the combined watermark."""

    millis: int
    was_idle: bool
    """Whether it has been idle since its rows fell behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """The facts about a split at a plan: they decide the kind, and sentences state them."""

    at: SplitState
    """As the plan leaves it."""
    lag: int | None = None
    """Its positions that are left after the plan; ``None`` if its log did not answer. Those of the batch that was
    planned are not among them: they are between ``at.observed`` and ``at.position``."""
    rows: RowTotals = NO_ROWS
    """Rows that this run has read of it."""
    strategy: WatermarkStrategy = field(default_factory=Bounded)
    quiet: int | None = None
    """Milliseconds for which it has had nothing to read; ``None``: it had rows, or that is unknown."""
    is_left_out: bool = False
    """Whether the watermark does not wait for it although it is not idle."""
    has_open_transaction: bool = False
    """Whether its next rows are in an open transaction."""
    is_final: bool = False
    """Whether it was read to the end of a run that has one."""
    holds: bool = False
    """Whether it holds the watermark."""
    wait: AlignmentWait | None = None
    behind: Behind | None = None
    """``None`` if it is not behind the combined watermark."""
    hidden_ahead: bool = False
    """Whether rows after its position cannot be read ahead (``watermarkStrategy`` ``lookahead``)."""
    waits_for_budget: bool = False
    """Whether it has rows, and other splits used up the batch's row budget."""
    waits_for_more: bool = False
    """Whether it has rows, but too few for a batch."""
    resumed: bool = False
    """Whether an earlier run of the query may have read rows of it, which ``rows`` does not count."""


NOTHING_KNOWN: Final = SplitFacts(at=SplitState(0, 0))


def split_kind(of: SplitFacts) -> HoldKind:  # noqa: PLR0911  one line a case
    """Return why a split is not further.

    The first case that applies is the reason: what more rows do not cure comes before the rows that are left.
    """
    at = of.at
    if at.status is SplitStatus.IDLE or of.is_left_out:
        return HoldKind.LEFT_OUT
    if at.status is SplitStatus.PAUSED:
        return HoldKind.PAUSED
    if of.lag is None:
        return HoldKind.NO_ANSWER
    without_use = _without_use(of) if of.lag == 0 or at.watermark is None else None
    if without_use is not None:
        return without_use
    if of.lag:
        return HoldKind.BACKLOG
    if of.has_open_transaction:
        return HoldKind.OPEN_TRANSACTION
    if at.position > at.observed:
        return HoldKind.PENDING
    if at.watermark is None and not of.rows.read:
        return HoldKind.NEVER
    just_now = of.quiet is None or of.quiet < SHORTEST_SILENCE
    return HoldKind.READ if just_now and not of.is_final else HoldKind.SILENT


def _without_use(of: SplitFacts) -> HoldKind | None:
    """Return why none of the rows that this run has read could move the watermark; ``None`` if one could."""
    rows, strategy = of.rows, of.strategy
    if not rows.read or not strategy.has_split_watermarks:
        return None
    if strategy.tasks_observe is TasksObserve.MARKS:
        # Rows with a watermark are not counted: once there is one, those read since may have had some.
        return HoldKind.NO_MARKS if of.at.watermark is None else None
    if rows.undated == rows.read:
        return HoldKind.UNDATED
    return HoldKind.FUTURE if rows.future and rows.undated + rows.future == rows.read else None


def writer_kind(of: WriterAt, silent: int) -> HoldKind:
    """Return why a writer that announces watermarks is not further; ``silent``: milliseconds without one."""
    if of.status in (WriterStatus.IDLE, WriterStatus.SILENT, WriterStatus.ENDED):
        return HoldKind.LEFT_OUT
    if of.writer.unreadable is not None:
        return HoldKind.NO_ANSWER
    if of.next is not None:
        return HoldKind.FUTURE if of.is_future else HoldKind.BACKLOG
    if of.at is None or of.at.watermark is None:
        return HoldKind.NEVER
    return HoldKind.READ if silent < _WRITERS_PAUSE else HoldKind.SILENT
