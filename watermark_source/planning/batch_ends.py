"""What a batch reads: how far each split goes, within its alignment group, the row budget and minimum rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.aligned_ends import aligned_ends
from watermark_source.planning.backlog import Backlog, Limit, backlog_of
from watermark_source.planning.budget import budgeted_ends
from watermark_source.planning.minimum_rows import MinimumRows, waits_for_more
from watermark_source.planning.observation import Observation
from watermark_source.planning.returning_splits import is_left_out
from watermark_source.planning.row_index import RowIndex
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.state_before_plan import KnownSplits
from watermark_source.planning.status_transitions import (
    TRANSITIONS,
    SplitEvent,
    next_since,
    quiet_while_read,
    rest_event,
    stays_quiet,
    unanswered,
)
from watermark_source.planning.time_index import TimeIndex


@dataclass(frozen=True, slots=True)
class BatchEnds:
    """The ranges of a batch."""

    splits: Mapping[Split, SplitState]
    """With their planned ends, and the status that these give them."""
    limit: Limit | None
    reached: Mapping[Split, Millis]
    """Watermarks of splits at their planned ends, as far as a time index tells them."""
    waits_for_more: bool
    newest_matters: bool
    holds_group: bool
    """Whether sources elsewhere in the group wait for a snapshot of this one."""

    @property
    def has_rows(self) -> bool:
        """Whether anything is read."""
        return any(t.position > t.observed for t in self.splits.values())


def choose(
    state: SourceState, known: KnownSplits, observation: Observation, index: TimeIndex | None, rows: RowIndex | None
) -> BatchEnds:
    """Choose what is read next: see the order of rules in ``planner``."""
    splits, policy, logs, upcoming = known.splits, known.policy, observation.logs, observation.snapshots
    going = {s: t for s, t in splits.items() if s not in upcoming.waiting}
    backlog = backlog_of(going, observation, policy, index, rows)
    # Of a table that is found later nobody gains by waiting for it.
    in_snapshot = bool(known.going_on) and state.watermark is None
    holds_group = in_snapshot and policy.alignment.holds_in_snapshot
    timeouts, asked_before = observation.history.idle_timeouts, observation.history.asked_before
    quiet = {
        s for s in known.undated if stays_quiet(splits[s], asked_before, policy.idleness.timeout_of(s, timeouts))
    } - logs.stale
    aligned = aligned_ends(splits, observation, backlog, quiet, holds_group=holds_group)
    splits = _with_steps(splits, aligned.steps, has_index=index is not None)
    allowed = aligned.ends
    waits = _waits_for_more(backlog, allowed, observation, policy.minimum_rows)
    left_out = {s for s in allowed if is_left_out(splits[s], state, policy.idleness)}
    budget = None if observation.limits.one_batch else observation.limits.max_rows
    ends = {s: splits[s].position for s in allowed} if waits else budgeted_ends(backlog, allowed, budget, left_out)
    # A snapshot that waits for its turn is not quiet: there are rows in its table. And that there are none in a log is
    # told by an end of now alone.
    silent = logs.unknown | upcoming.waiting | (known.snapshots | logs.stale) - allowed.keys()
    opened = known.opened - allowed.keys()

    def planned(split: Split, before: SplitState) -> SplitState:
        if split in opened:
            return before
        if split in silent:
            return unanswered(before)
        timeout = policy.idleness.timeout_of(split, timeouts)
        found = _advance(before, allowed.get(split), ends.get(split), logs.asked_at, timeout)
        if ends.get(split) != logs.ends.get(split) or split not in ends or split in known.snapshots | logs.stale:
            return found
        if split in quiet:
            status = TRANSITIONS[before.status, SplitEvent.QUIET]
            return found.planned_to(found.position, status, next_since(before, SplitEvent.QUIET, status, logs.asked_at))
        since = quiet_while_read(before, logs.asked_at, timeout, undated=split in known.undated)
        return found if since is None else replace(found, since=since)

    return BatchEnds(
        splits={s: planned(s, t) for s, t in splits.items()},
        limit=aligned.limit,
        # Of rows that wait for more nothing is read, but when the first of them are from is known.
        reached=backlog.beginnings() if waits else {s: w for s, w in aligned.reached.items() if ends[s] == allowed[s]},
        waits_for_more=waits,
        newest_matters=aligned.newest_matters,
        holds_group=holds_group,
    )


def _with_steps(
    splits: Mapping[Split, SplitState], steps: Mapping[Split, int], *, has_index: bool
) -> Mapping[Split, SplitState]:
    if not has_index and not steps:
        return splits
    # With an index only for as long as something of the future lies between what is read and what can be looked up.
    wanted = steps if has_index else {**{s: t.step for s, t in splits.items()}, **steps}
    return {s: t if t.step == (step := wanted.get(s)) else replace(t, step=step) for s, t in splits.items()}


def _waits_for_more(
    backlog: Backlog, allowed: Mapping[Split, int], observation: Observation, minimum: MinimumRows | None
) -> bool:
    if minimum is None:
        return False
    waiting = sum(end - backlog.splits[s].position for s, end in allowed.items())
    # A run that has its end, or is one batch, waits for nothing; nor do rows for whose times the whole group waits.
    aligned = backlog.max_drift is not None
    unknown = aligned and backlog.index is None and any(t.watermark is None for t in backlog.splits.values())
    bounded = observation.limits.one_batch or observation.logs.ends_are_final or unknown
    return waiting > 0 and not bounded and waits_for_more(minimum, waiting, observation.history.since_rows)


def _advance(
    state: SplitState, allowed: int | None, end: int | None, asked_at: Millis, idle_timeout: int | None
) -> SplitState:
    """Move a split to its planned end. ``allowed`` is where the group lets it go, ``None`` if it has no rows."""
    if allowed is None or end is None:
        event = rest_event(state, asked_at, idle_timeout)
    elif allowed == state.position:
        event = SplitEvent.PAUSED
    else:
        event = SplitEvent.WAITS if end == state.position else SplitEvent.READS
    status = TRANSITIONS[state.status, event]
    since = next_since(state, event, status, asked_at)
    if status is state.status and since == state.since and (end is None or end == state.position):
        return state
    return state.planned_to(state.position if end is None else end, status, since)
