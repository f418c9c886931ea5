"""The facts about a query with an open window: its sources, splits and batches. Pure.

The facts are those of a running query's status, or those of a checkpoint's files, which know less; ``open_windows``
decides from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.source_status import (
    NO_ROWS,
    SHORTEST_SILENCE,
    RowTotals,
    SourceStatus,
    SplitView,
    Status,
    WriterView,
    silence_text,
)
from watermark_source.planning.announcement import NO_WRITER, gone_line, watermarks_command, writers_line
from watermark_source.planning.watermark import MAX, MIN, is_moment, watermark_text

_END = 2**62 // 1_000
"""Half of Spark's range of times, in milliseconds: a watermark beyond it is the end of time."""


class Hold(Enum):
    """What a split does for a window. The order is that of the sentence and of the table."""

    NEVER = auto()
    """It has never had a record."""
    NO_WATERMARK = auto()
    """None of its records had a usable event time."""
    NO_ANSWER = auto()
    PAUSED = auto()
    SILENT = auto()
    """It is behind, and has nothing to read."""
    OPEN = auto()
    """It is behind, and its next records are in a transaction that is open."""
    BOUND = auto()
    """Its records have passed the time, and its watermark is ``maxOutOfOrderness`` behind them."""
    BACKLOG = auto()
    """It is behind, and is being read."""
    READ = auto()
    """It is behind, and was read to its end just now."""
    PENDING = auto()
    """Its last records are in a batch, and not in its watermark yet."""
    PASSED = auto()
    LEFT_OUT = auto()
    """It is idle: the watermark does not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAt:
    """One split."""

    name: str
    watermark: int | None
    status: Status
    position: int
    lag: int | None
    """Records to read; ``None`` if that is not known."""
    never: bool
    """Whether it has never had a record."""
    why: str
    pending: int = 0
    """Positions in the last batch, which are not in ``watermark``."""
    is_counted: bool = True
    """Whether positions count records."""
    quiet: int | None = None
    """Milliseconds for which it had had nothing to read; ``None`` if it has rows, or that is unknown."""
    late: int = 0
    """Rows of this run that were late."""
    was_idle: bool = False
    """Whether it has been idle in this run."""
    has_open_transaction: bool = False
    """Whether the records behind its end are in an open transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAt:
    """One source of this project. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    format_name: str
    watermark: int | None
    """The combined watermark that it has sent."""
    at: int | None = None
    """When its status was made; ``None``: its offset is all that is known."""
    rows: RowTotals = NO_ROWS
    """Rows that this run has read."""
    splits: tuple[SplitAt, ...]
    more_splits: int = 0
    """Splits beside those."""
    on_clock: bool = False
    snapshots: tuple[str, ...] = ()
    """Tables whose snapshot is not complete."""
    writers: tuple[WriterView, ...] | None = None
    """Those that announce its watermark; ``None`` if none does."""
    unannounced: str | None = None
    first_reading: str | None = None
    idle_timeout: int | None = None
    out_of_orderness: int | None = None
    knows_options: bool = True
    """Whether an absent ``idle_timeout`` is an absent option. An offset does not hold the options."""
    held_by: str | None = None
    """The other source of the alignment group that its splits wait for."""
    is_held: bool = False
    """Whether its alignment group lets no source read yet."""
    trouble: str | None = None
    """Why the known state of the group may be old."""
    silent: tuple[str, ...] = ()
    """Other sources of the group that have missed their reports, as sentences."""

    @property
    def read_nothing(self) -> bool:
        """Whether no record has come since the query was started, although there were some before.

        Rows of a batch that still runs are not counted yet.
        """
        if (
            any(split.pending for split in self.splits)
            or self.at is None
            or self.rows.read
            or not self.splits
            or self.watermark is not None
        ):
            return False
        return any(split.position for split in self.splits) and all(split.lag == 0 for split in self.splits)


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """Spark's watermark and that of the sources, which differ."""

    spark: int | None
    """Spark's watermark, which is ahead of theirs; ``None``: it has none, and no window closes."""
    sources: int | None
    """The watermark of the sources; ``None``: they have none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAt:
    """A query at one moment."""

    sources: tuple[SourceAt, ...]
    foreign: tuple[str, ...] = ()
    """Sources of other projects, whose watermark is not known."""
    batch: int | None
    """The last batch that was committed or planned; ``None`` before the first."""
    applied: int | None
    """The watermark up to which operators have emitted windows in committed batches."""
    committed: int | None = None
    """The watermark that Spark has committed for its next batch."""
    planned: int | None = None
    """The watermark of a batch that is planned and not committed; ``None`` without one, or if it has none."""
    takes_highest: bool = False
    """Whether Spark takes the highest watermark of several sources instead of the lowest."""
    unfollowed: Unfollowed | None = None
    """Both watermarks if Spark's is not that of the sources; ``None`` if it is."""
    waits_for_rows: bool = False
    """Whether Spark makes no batch without rows (``noDataMicroBatches``)."""
    running: int | None = None
    """For how many milliseconds the batch under way has been running, if one is."""
    waits_for_trigger: bool = False
    """Whether the next batch begins at the interval of the trigger."""
    has_ended: bool = False
    """Whether the query does not run any more, or its run reads no more rows."""
    remarks: tuple[str, ...] = ()

    @property
    def sent(self) -> int | None:
        """The watermark of the sources of this project together; ``None`` while one that counts has none."""
        known = [source.watermark for source in self.sources]
        if self.takes_highest:
            return max((mark for mark in known if mark is not None), default=None)
        return None if not known or None in known else min(mark for mark in known if mark is not None)


def source_of_status(of: SourceStatus) -> SourceAt:
    """Return a source as its status reports it."""
    group = of.group
    return SourceAt(
        name=of.source_name,
        format_name=of.format_name,
        watermark=of.watermark,
        at=of.at,
        rows=of.rows,
        splits=tuple(map(_split_of_view, of.splits)),
        more_splits=of.splits_total - len(of.splits),
        on_clock=of.processing_time,
        snapshots=tuple(snapshot.log for snapshot in of.snapshots if not snapshot.done),
        writers=of.writers if of.writers or of.unannounced is not None else None,
        unannounced=of.unannounced,
        first_reading=of.first_reading,
        idle_timeout=of.idle_timeout,
        out_of_orderness=of.out_of_orderness,
        held_by=None if group is None else group.slowest,
        is_held=group is not None and group.hold,
        trouble=None if group is None else group.trouble,
        silent=() if group is None else tuple(silence_text(peer, group.name) for peer in group.silent),
    )


def _split_of_view(view: SplitView) -> SplitAt:
    return SplitAt(
        name=str(view.split),
        watermark=view.watermark,
        status=view.status,
        position=view.backlog.position,
        lag=view.lag,
        never=view.watermark is None and view.backlog.end == 0,
        why=view.why,
        pending=view.unobserved,
        is_counted=not view.backlog.uncounted,
        quiet=view.quiet,
        late=view.late_rows,
        was_idle=view.times is not None and view.times.idle > 0,
        has_open_transaction=view.has_open_transaction,
    )


def reached(watermark: int | None, end: int) -> bool:
    """Return whether a watermark has passed the end of a window."""
    return watermark is not None and watermark >= end


def hold_of(split: SplitAt, source: SourceAt, target: int) -> Hold:  # noqa: PLR0911  one line a case
    """Return what a split does for a window that ends at ``target``."""
    if split.status is Status.IDLE:
        return Hold.LEFT_OUT
    # A batch may carry the watermark of its own rows, which those of the splits do not include yet.
    if reached(split.watermark, target) or reached(source.watermark, target):
        return Hold.PASSED
    if split.status is Status.PAUSED:
        return Hold.PAUSED
    if split.status is Status.UNKNOWN:
        return Hold.NO_ANSWER
    if split.pending and not split.lag:
        return Hold.PENDING
    if split.never:
        return Hold.NEVER
    if split.has_open_transaction:
        return Hold.OPEN
    if split.watermark is None:
        return Hold.BACKLOG if split.lag else Hold.NO_WATERMARK
    if split.lag != 0:
        return Hold.BACKLOG
    if reached(split.watermark + (source.out_of_orderness or 0), target):
        return Hold.BOUND
    is_new = split.status is Status.ACTIVE and split.quiet is not None and split.quiet < SHORTEST_SILENCE
    return Hold.READ if is_new else Hold.SILENT


QUIET = {Hold.NEVER, Hold.NO_WATERMARK, Hold.SILENT, Hold.BOUND}
MOVING = {Hold.PASSED, Hold.BACKLOG, Hold.READ, Hold.PENDING, Hold.PAUSED, Hold.NO_ANSWER, Hold.OPEN}


def writer_hold(writer: WriterView, source: SourceAt, target: int) -> Hold:
    """Return how a writer that announces watermarks holds a time."""
    if writer.status in ("idle", "silent", "ended"):
        return Hold.LEFT_OUT
    return Hold.PASSED if reached(writer.watermark, target) or reached(source.watermark, target) else Hold.BACKLOG


def writer_clauses(source: SourceAt, target: int) -> Iterator[str]:
    """Yield what the writers that announce a source's watermark do for a time."""
    if source.unannounced is not None:
        yield source.unannounced
    for writer in source.writers or ():
        if writer_hold(writer, source, target) is Hold.PASSED:
            yield f"writer {writer.name} has"
        elif writer_hold(writer, source, target) is not Hold.LEFT_OUT:
            at = "" if writer.watermark is None else f" is at {time_text(writer.watermark)}:"
            yield f"writer {writer.name}{at or ':'} {writer.why}"
    if not source.writers and source.unannounced is None:
        yield "no writer has announced a watermark"


_STOPPED_AFTER: Final = 60_000
"""Milliseconds without an announcement after which a writer may have stopped."""


def writer_advice(source: SourceAt, target: int) -> Iterator[str]:
    """Yield what to do where writers hold a source's watermark below a time; nothing where none announces for it."""
    if source.writers is None or not (source.unannounced or NO_WRITER).endswith(NO_WRITER):
        return
    holding = [w for w in source.writers or () if writer_hold(w, source, target) is Hold.BACKLOG]
    if holding and not source.knows_options:
        shows = f"{watermarks_command('list')} prints what each writer announced last"
        yield f"{shows}; {gone_line([writer.name for writer in holding])}"
        return
    stopped = [w.name for w in holding if w.since is None or (source.at or w.since) - w.since > _STOPPED_AFTER]
    if holding and not stopped:
        names = names_text([w.name for w in holding])
        yield f"see why(query) in the job of {names}, which announced less than a minute ago"
        return
    yield writers_line(stopped)


def moves_without_quiet(source: SourceAt, target: int) -> bool:
    """Return whether the watermark passes a time once the splits with nothing to read are left out."""
    holds = {hold_of(split, source, target) for split in source.splits}
    left_out = (s for s in source.splits if s.status is Status.IDLE)
    return bool(holds & MOVING) or any(reached(s.watermark, target) for s in left_out)


def unfollowed(spark: int | None, sent: Sequence[int | None], *, takes_highest: bool) -> Unfollowed | None:
    """Return that Spark's watermark is not that of the sources; ``None`` if it is.

    Args:
        spark: the watermark that Spark has for a batch; ``None``: none.
        sent: the watermark of each source as of the batch before; ``None``: it had none.
        takes_highest: whether Spark takes the highest watermark of several sources instead of the lowest.
    """
    known = [watermark for watermark in sent if watermark is not None]
    highest = max(known, default=None)
    if not sent or (highest is not None and (not is_moment(highest) or highest <= 0)):
        return None
    if spark is None:
        if len(known) < len(sent):
            return None
        lowest = max(known) if takes_highest else min(known)
        return Unfollowed(None, lowest) if is_moment(lowest) and lowest > 0 else None
    return Unfollowed(spark, highest) if is_moment(spark) and (highest is None or spark > highest) else None


# Words.


def time_text(watermark: int | None) -> str:
    """Return a time as UTC, without milliseconds that are zero."""
    if watermark is None or not is_moment(watermark) or watermark > _END:
        return watermark_text(MAX if watermark is not None and watermark > _END else watermark)
    return f"{watermark_text(watermark).removesuffix('.000')} UTC"


def names_text(names: Sequence[str], most: int = 3) -> str:
    """Return names as a list; of many the first ``most``, and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {count_text(len(names) - most)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def subject_text(splits: Sequence[SplitAt]) -> str:
    """Return the names of splits, the furthest behind first."""
    worst = sorted(splits, key=lambda s: MIN if s.watermark is None else s.watermark)
    return names_text([split.name for split in worst])


def have_text(splits: Sequence[SplitAt]) -> str:
    """Return the verb behind ``subject_text``."""
    return "has" if len(splits) == 1 else "have"


def behind_text(splits: Sequence[SplitAt], base: int | None) -> str:
    """Return how far splits are behind a base, as a verb and what follows it."""
    marks = [s.watermark for s in splits if s.watermark is not None]
    verb = "is" if len(splits) == 1 else "are"
    if not marks:
        return f"{have_text(splits)} no watermark yet"
    if base is None or min(marks) >= base:
        return f"{verb} at {time_text(min(marks))}"
    up_to = "up to " if len(splits) > 1 else ""
    return f"{verb} {up_to}{format_duration(base - min(marks))} behind"
