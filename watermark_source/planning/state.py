"""The state of a source and its splits at the end of a planned batch; exactly this is written into the offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, TypeAlias

from watermark_source.planning.announced import AnnouncedFrom
from watermark_source.planning.disorder import NOTHING_SEEN, Learned, RangeSummary
from watermark_source.planning.policy import Idleness
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

Bound: TypeAlias = tuple[int | str, ...] | None
"""A key between two chunks of a snapshot, by the values of its columns; ``None`` stands for no limit."""


class Epoch(NamedTuple):
    """The rows that one leader wrote into a log, in a system whose logs have leaders."""

    number: int
    """Grows from leader to leader."""
    start: int
    """Position of its first row, as of when it was looked up."""


class SplitStatus(Enum):
    """Watermark status of a split. The value is its letter in the offset."""

    ACTIVE = "a"
    """Counts in the combined watermark."""
    IDLE = "i"
    """No rows, or none with an event time, for longer than the idle timeout: the watermark does not wait for it."""
    PAUSED = "p"
    """Has rows, and is too far ahead of its alignment group to read them now. Counts in the combined watermark."""


class Returning(Enum):
    """Progress of a split that was idle and has rows again. The value is its number in the offset."""

    READ = 1
    """Rows of it have been read since, so it is known how far behind it is."""
    AWAITED = 2
    """Its rows are still to be read: outside the budget or the alignment limit, or in an open transaction."""


@dataclass(frozen=True, slots=True)
class SplitState:
    """One split: where reading continues, and its event time up to ``observed``."""

    position: int
    """First position not yet part of a planned batch."""
    observed: int
    """First position whose rows are not yet in ``watermark``: the last planned range is ``[observed, position)``."""
    watermark: Millis | None = None
    """The watermark by the rows before ``observed``; ``None`` until the first row."""
    status: SplitStatus = SplitStatus.ACTIVE
    since: Millis | None = None
    """IDLE, PAUSED: when that began. ACTIVE: since when there has been nothing to read, or nothing with an event time;
    ``None`` if there has been. The planned range is not included."""
    highest: Millis | None = None
    """Highest event time of the rows before ``observed``, where the bound is learned: the watermark may be further
    behind than the bound in force."""
    step: int | None = None
    """Rows planned at a time, as learned from its ranges so far; ``None`` where event times are looked up."""
    returning: Returning | None = None
    """Set after idleness until the split has caught up with the combined watermark; used only with
    ``passes_returning``."""
    kept: str | None = None
    """What the strategy remembers of the rows before ``observed`` (``Advance.kept``)."""
    epoch: Epoch | None = None
    """That of the last row before ``position``; ``None`` if it is not known, or there is no row: see ``lineage.py``."""

    def observed_to_its_end(self, watermark: Millis | None, highest: Millis | None, kept: str | None) -> SplitState:
        """Return it with its last range in its watermark. For thousands of splits ``replace`` is slow."""
        return SplitState(
            position=self.position, observed=self.position, watermark=watermark, status=self.status, since=self.since,
            highest=highest, step=self.step, returning=self.returning, kept=kept, epoch=self.epoch,
        )  # fmt: skip

    def planned_to(self, position: int, status: SplitStatus, since: Millis | None) -> SplitState:
        """Return it as a plan leaves it."""
        return SplitState(
            position=position, observed=self.observed, watermark=self.watermark, status=status, since=since,
            highest=self.highest, step=self.step, returning=self.returning, kept=self.kept, epoch=self.epoch,
        )  # fmt: skip


class Origin(NamedTuple):
    """The replica that positions belong to, in a system that has several: logs of the same changes, each with its own
    positions."""

    copy: str | None
    """Which replica; ``None`` for a new query that begins with what it leaves out, not at a position."""
    shift: int = 0
    """Added to the replica's own positions, so that they grow from one replica to the next."""
    done: str | None = None
    """All changes before the positions, in terms of every replica (GTIDs); ``None`` if there are none."""


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """How far the snapshots of a source's logs are read; empty in a source that takes none."""

    frontiers: Mapping[str, tuple[Bound, ...]] = field(default_factory=dict)
    """Logs whose snapshot is under way: the upper bound of the chunks before the last plan, then of each chunk of that
    plan. Empty before the first; a snapshot ends with the chunk without upper bound, and leaves here one plan later."""
    complete: frozenset[str] | None = None
    """Logs whose snapshot was read to its end before the last plan; ``None`` in a source that takes no snapshots. The
    snapshots of logs that are neither here nor in ``frontiers`` are still to come."""
    forgotten: Mapping[str, int] = field(default_factory=dict)
    """Logs that were dropped from here, and how often: earlier snapshots of them do not count any more."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How far a source has caught up."""

    ends: Mapping[Split, int]
    """The ends that have not been reached, of splits that existed at the start."""
    again: bool = False
    """Whether these are the ends found when those of the start had been reached."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """A source in its alignment group."""

    member: str | None = None
    """Its name in the group; ``None`` before its first batch in it, and without a group."""
    limit: Millis | None = None
    """No split was planned beyond this watermark. ``None`` without a limit."""
    held: int = 0
    """How many batches of runs with an end read nothing because the group held all splits."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """A whole source at the end of a planned batch."""

    splits: Mapping[Split, SplitState] = field(default_factory=dict)
    watermark: Millis | None = None
    """The combined watermark that goes out with the batch; it never regresses."""
    use_processing_time: bool = False
    """Whether event time is the clock (FLIP-326); ``watermark`` is then one millisecond before the batch's clock."""
    future_cap: Millis | None = None
    """Events later than this do not move the watermark (``maxFutureSkew`` after the batch was planned)."""
    snapshots: SnapshotState = field(default_factory=SnapshotState)
    group: GroupState = field(default_factory=GroupState)
    origin: Origin | None = None
    """The replica of its positions; ``None`` if the system has one, or for the replica that is read."""
    ended: bool = False
    """Whether the end of time has been sent as the watermark and applied: no more rows are read."""
    learned: Learned | None = None
    """The disorder of the rows, where the bound is learned from it."""
    announced: AnnouncedFrom | None = None
    """Where the log of announcements is read again; ``None`` unless the watermark was announced by the writers."""
    kept_by: str | None = None
    """The strategy that keeps ``SplitState.kept`` (``WatermarkStrategy.keeps_as``); ``None`` with one that keeps
    nothing."""
    catch_up: CatchUp | None = None
    """How far the logs are read to the ends that they had at the start; ``None`` where no option needs it."""
    event_time: str | None = None
    """The event time that the watermark is based on, in the user's words; ``None`` for the default. Plans ignore it."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the splits' logs, where the system names any: one that was created again has another."""
    run: int = 0
    """Counts the processes that planned for this checkpoint, so that each one's first batch carries the watermark."""


# Splits that come back from idleness behind the combined watermark, and whether it waits for them (``idleReturn``).


def is_left_out(state: SplitState, before: SourceState, idleness: Idleness) -> bool:
    """Return whether the combined watermark does not wait for a split although it is not idle: see ``combined``.

    Being behind is not enough: the combined watermark may be that of a batch's own rows (``with_own_rows``), which
    give less by a bound that became larger since.
    """
    if not idleness.passes_returning or before.watermark is None or state.watermark is None:
        return False
    return state.returning is Returning.READ and state.watermark < before.watermark


def returned(state: SplitState, seen: RangeSummary) -> SplitState:
    """Return a split whose last range was read, and is in its watermark; ``seen`` is what tasks observed in it.

    A range may have no rows, only the end of an aborted transaction.
    """
    if state.returning is not Returning.AWAITED or replace(seen, is_whole=True) == NOTHING_SEEN:
        return state
    return replace(state, returning=Returning.READ)


def marked_returning(
    before: SourceState, planned: Mapping[Split, SplitState], idleness: Idleness
) -> dict[Split, SplitState]:
    """Return the planned splits that return from idleness, or have caught up, with their new ``returning``."""
    changed: dict[Split, SplitState] = {}
    for split, at in planned.items():
        if at.returning is None and not idleness.passes_returning:
            continue
        returning = returning_now(split, at, before) if idleness.passes_returning else None
        if returning is not at.returning:
            changed[split] = replace(at, returning=returning)
    return changed


def returning_now(split: Split, at: SplitState, before: SourceState) -> Returning | None:
    """Return the progress of a planned split after idleness: ``None`` if it is idle, was not, or has caught up."""
    was = before.splits.get(split)
    if was is None or at.status is SplitStatus.IDLE:
        return None
    if was.status is SplitStatus.IDLE:
        return Returning.AWAITED
    caught_up = at.watermark is not None and (before.watermark is None or at.watermark >= before.watermark)
    return None if caught_up else at.returning
