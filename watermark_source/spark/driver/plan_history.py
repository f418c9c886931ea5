"""What a process remembers of its plans, to report it: when rows arrived, and how long splits had each status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import Millis
from watermark_source.status_model.source_status import TimeInStatus, Unprocessed

# When rows arrived: the processing-time watermark, from the requests for the ends of the logs.


End: TypeAlias = tuple[int, Millis]
"""The end of a log, and when it was requested: rows at or behind it arrived later than that."""

_MOST_ENDS = 64
"""Limit on the ends that are kept of a split."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When rows arrived, as far as the requests of this process show it; milliseconds by ``Clock.elapsed``."""

    began: Millis | None = None
    """The first request."""
    requested_at: Millis | None = None
    """The last request."""
    ends: Mapping[Split, tuple[End, ...]] = field(default_factory=dict)
    """Of splits with rows behind their committed ones the ends there, lowest first, and before them the last one that
    is not; of splits without an answer their last ends."""
    answered: Mapping[Split, int] = field(default_factory=dict)
    """What the last request returned."""
    rows_at: Millis | None = None
    """The last request that found new rows."""
    rows_after: Millis | None = None
    """The request before that."""
    older: Set[Split] = frozenset()
    """Snapshots: when the rows of a table were written is not known."""

    def after(self, committed: Mapping[Split, int], logs: ObservedLogs, snapshots: Set[Split]) -> Arrivals:
        """Return it with another request.

        Args:
            committed: the first position of each split that is in no committed batch; 0 for a split without one.
            logs: what the request returned. Of splits without an answer, or with an end of before, the last one counts.
            snapshots: splits of snapshots.
        """
        # A split that is found later had no row before: otherwise it would have been found.
        first: tuple[End, ...] = () if self.began is None else ((0, self.began),)
        requested_at, unanswered = logs.asked_at, logs.unknown | logs.stale
        left_out = unanswered | snapshots
        answered = {s: end for s, end in logs.ends.items() if s not in left_out} if left_out else logs.ends
        kept = {s: before for s in unanswered if (before := self._before(s))}
        finds_rows = False
        # Of thousands of splits few have any.
        behind = [(s, end) for s, end in answered.items() if end > committed.get(s, 0)]
        for split, end in behind:
            before, position, last = self._before(split), committed.get(split, 0), (end, requested_at)
            finds_rows = finds_rows or (self.began is not None and end > (before[-1][0] if before else position))
            if len(before) == 1 and before[0][0] <= position:
                kept[split] = (before[0], last)
            else:
                kept[split] = (*_needed([each for each in before or first if each[0] < end], position), last)
        began = requested_at if self.began is None else self.began
        found = (requested_at, self.requested_at) if finds_rows else (self.rows_at, self.rows_after)
        return Arrivals(began, requested_at, kept, answered, *found, snapshots)

    def _before(self, split: Split) -> tuple[End, ...]:
        """Return the ends of a split up to the last request; none of one that was not known then."""
        if (kept := self.ends.get(split)) is not None:
            return kept
        end = self.answered.get(split)
        return () if end is None or self.requested_at is None else ((end, self.requested_at),)

    def oldest(self, positions: Mapping[Split, int]) -> Unprocessed | None:
        """Return what is unprocessed if each split is processed up to a position; ``None`` before the first request."""
        if self.began is None or self.requested_at is None:
            return None
        arrived, where, is_older = self.requested_at, None, False
        for split, ends in self.ends.items():
            position, (end, at) = positions.get(split, 0), ends[-1]
            if position < end:
                before = [requested_at for end, requested_at in ends if end <= position]
                at = before[-1] if before else self.began
                if not before and not is_older:
                    arrived, where, is_older = at, split, True
            # Of a split that was read to its end: rows may have come since it answered last.
            if at < arrived:
                arrived, where = at, split
        if self.older:
            arrived, where, is_older = self.began, min(self.older), True
        return Unprocessed(arrived, None if where is None else str(where), is_older)


def _needed(ends: list[End], position: int) -> list[End]:
    """Return the ends that show when rows from a position on arrived; of too many, every second one.

    Without an end the rows behind it have the time of the end before: an earlier one, which is a lower bound as well.
    """
    passed = sum(end <= position for end, _ in ends)
    needed = ends[max(0, passed - 1) :]
    return needed if len(needed) < _MOST_ENDS else [needed[0], *needed[1::2]]


# How long splits have been active, idle and paused, from the moments at which their status changed.


@dataclass(frozen=True, slots=True)
class StatusTimes:
    """The status of one split since the query was started; milliseconds by ``Clock.elapsed``."""

    status: SplitStatus
    since: Millis
    spent: Mapping[SplitStatus, int] = field(default_factory=dict)
    """In each status, before the present one began."""
    changes: int = 0

    def changed(self, status: SplitStatus, at: Millis) -> StatusTimes:
        """Return it with another status."""
        return StatusTimes(status, max(at, self.since), self._until(at), self.changes + 1)

    def as_of(self, now: Millis) -> TimeInStatus:
        """Return the time in each status."""
        spent = self._until(now)
        active, idle, paused = (spent.get(status, 0) for status in SplitStatus)
        return TimeInStatus(active, idle, paused, self.changes)

    def _until(self, now: Millis) -> dict[SplitStatus, int]:
        return {**self.spent, self.status: self.spent.get(self.status, 0) + max(0, now - self.since)}


@dataclass(frozen=True, slots=True)
class History:
    """What a process remembers of its plans to state it in reports; none of it is in an offset."""

    arrivals: Arrivals = Arrivals()
    committed: Mapping[Split, int] = field(default_factory=dict)
    """The first position of each split that was in no committed batch, before that of the last plan."""
    splits: Mapping[Split, SplitState] = field(default_factory=dict)
    """Those that ``committed`` is of."""
    times: Mapping[Split, StatusTimes] = field(default_factory=dict)
    newest: Millis | None = None
    """Highest event time of the rows read."""
    watermark: Millis | None = None
    watermark_changes: int = 0
    status_changes: int = 0

    @property
    def unprocessed(self) -> Unprocessed | None:
        """What was unprocessed at the last plan, before its batch."""
        return self.arrivals.oldest(self.committed)

    def after(self, before: SourceState, planned: Plan, now: Millis) -> History:
        """Return it with the plan that led from a state, all of whose rows are in committed batches.

        ``now`` is by ``Clock.elapsed``. A status that began with this plan began when its ends were requested, which is
        what the offset records; in a run whose ends are fixed, when the plan was made.
        """
        observed, state = planned.observation, planned.state
        logs = observed.logs
        committed = self.committed
        if before.splits is not self.splits or logs.added:
            # Of a split that is new nothing is read that lies before its beginning.
            committed = {**logs.added, **{split: at.position for split, at in before.splits.items()}}
        arrivals = self.arrivals.after(committed, logs, frozenset(map(snapshot_split, unfinished(state.snapshots))))
        moment = now if logs.ends_are_final else logs.asked_at
        times, changes = self._times_after(before, state, moment)
        first = self.arrivals.began is None
        sent = before.watermark if first else self.watermark
        highest = (self.newest, *(seen.highest for seen in observed.seen.values()))
        return History(
            arrivals,
            committed,
            before.splits,
            times,
            max((millis for millis in highest if millis is not None), default=None),
            state.watermark,
            self.watermark_changes + (state.watermark != sent),
            self.status_changes + changes,
        )

    def _times_after(
        self, before: SourceState, state: SourceState, moment: Millis
    ) -> tuple[Mapping[Split, StatusTimes], int]:
        """Return the times of all splits with the changes of a plan, and how many there are."""
        known, splits = self.times, state.splits
        if splits is before.splits and len(known) == len(splits):
            return known, 0
        changed = [s for s, at in splits.items() if (of := known.get(s)) is None or of.status is not at.status]
        if not changed and len(known) == len(splits):
            return known, 0
        times, changes = {split: of for split, of in known.items() if split in splits}, 0
        for split in changed:
            was = before.splits.get(split)
            of = times.get(split) or StatusTimes(SplitStatus.ACTIVE if was is None else was.status, moment)
            if of.status is not splits[split].status:
                of = of.changed(splits[split].status, moment)
                changes += 1
            times[split] = of
        return times, changes
