"""The planner: from what is known and observed to what the next batch reads and says. Pure; nothing else decides.

Order of rules: fold what the last batch saw -> loss checks -> the time of logs at rest -> future cap -> alignment limit
-> planned ends -> minimum rows -> row budget -> status -> combined watermark -> is there anything to send?
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.errors import OffsetError
from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.budget import budgeted_ends
from watermark_source.planning.combined import at_dated_ends, combined, is_left_out, marked_returning
from watermark_source.planning.ends import Backlog, Limit, aligned_ends, backlog_of
from watermark_source.planning.final_watermark import closed, has_said_the_last, is_at_its_end
from watermark_source.planning.learning import in_force, learned_after
from watermark_source.planning.look_ahead import LookAhead, Unread, left_by, look_ahead
from watermark_source.planning.loss import Loss, check_loss, refuse
from watermark_source.planning.membership import membership
from watermark_source.planning.minimum_rows import MinimumRows, waits_for_more
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy, WatermarkStrategy
from watermark_source.planning.row_index import RowIndex
from watermark_source.planning.snapshot import finished, snapshot_split, snapshots_after, unfinished
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_status import (
    TRANSITIONS,
    SplitEvent,
    changed_status,
    next_since,
    rest_event,
    unanswered,
    uncommitted,
)
from watermark_source.planning.split_watermark import advanced, future_cap
from watermark_source.planning.state import GroupState, SourceState, SplitState, SplitStatus
from watermark_source.planning.steps import with_step
from watermark_source.planning.time_index import TimeIndex
from watermark_source.planning.watermark_without_rows import at_rest, by_clock, clock_of, tick_is_due, with_others


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch."""

    state: SourceState
    """Goes into the offset when the batch is sent; is kept in memory when it is not."""
    is_batch: bool
    """Whether there is anything to send: rows, a higher watermark, a status change, a clock tick."""
    has_rows: bool
    waits_for_more: bool
    """Whether there are rows that wait for more to come."""
    limit: Limit | None
    """The alignment limit and who sets it."""
    losses: tuple[Loss, ...]
    """What was lost and is skipped; not empty only without ``OnLoss.fails``."""
    newest_matters: bool
    """Whether the newest event times, where the observation leaves them out, could change what is read."""
    member: GroupMember
    """What the rest of the alignment group is told."""
    counting: Mapping[Split, SplitState] = field(default_factory=dict)
    """The splits with the watermarks that make the combined one."""
    unread: Mapping[Split, Unread] = field(default_factory=dict)
    """What is known of what follows the batch: nothing but with ``looks_ahead``."""
    leads_to: Millis | None = None
    """With ``looks_ahead``: the combined watermark once all splits are known that there were."""


def plan(
    state: SourceState,
    observation: Observation,
    policy: PlanPolicy,
    index: TimeIndex | None,
    *,
    rows: RowIndex | None = None,
    ahead: LookAhead | None = None,
    announce: bool = False,
) -> Plan:
    """Plan the next batch.

    Args:
        state: as of the last planned batch.
        observation: what the outside said; ``seen`` must have every split with a range not yet observed.
        policy: the user's decisions.
        index: event-time look-ups; without one, alignment and budget go by what has been read so far.
        rows: look-ups of rows in a log whose positions are not rows.
        ahead: what tells of the rows behind the batch; needed where the strategy looks ahead.
        announce: the first plan of a process: the watermark is sent even if it is unchanged.

    Raises:
        DataLossError: rows are gone and ``policy.on_loss.fails`` is set.
        OffsetError: the state is on processing time and the policy is not: that flag never goes back (FLIP-326).
    """
    if has_said_the_last(state):
        return _closing(state, announce=announce)
    planned = _plan(state, observation, policy, index, rows=rows, ahead=ahead, announce=announce)
    if observation.snapshots.found and _reads_less_than_there_is(planned.state, observation.logs.ends):
        # What is new was there at the log's end, but perhaps not where this batch ends: it begins with one that ends
        # there.
        planned = _plan(state, _without_found(observation), policy, index, rows=rows, ahead=ahead, announce=announce)
    return planned


def _closing(state: SourceState, *, announce: bool) -> Plan:
    return Plan(
        state=closed(state, announce=announce and not state.ended),
        is_batch=not state.ended,
        has_rows=False,
        waits_for_more=False,
        limit=None,
        losses=(),
        newest_matters=False,
        member=GroupMember(MemberStatus.FINISHED),
    )


def _reads_less_than_there_is(planned: SourceState, ends: Mapping[Split, int]) -> bool:
    logs = ((s, t) for s, t in planned.splits.items() if s.log not in planned.snapshots.frontiers)
    return any(t.position < ends.get(s, MAX) for s, t in logs)


def _without_found(observation: Observation) -> Observation:
    logs, snapshots = observation.logs, observation.snapshots
    found = set(map(snapshot_split, snapshots.found))
    return replace(
        observation,
        logs=replace(logs, ends={s: end for s, end in logs.ends.items() if s not in found}),
        snapshots=replace(
            snapshots,
            found=frozenset(),
            chunks={log: bounds for log, bounds in snapshots.chunks.items() if log not in snapshots.found},
        ),
    )


def _plan(
    state: SourceState,
    observation: Observation,
    policy: PlanPolicy,
    index: TimeIndex | None,
    *,
    rows: RowIndex | None,
    ahead: LookAhead | None,
    announce: bool,
) -> Plan:
    _refuse_another_clock(state, policy.strategy)
    logs, upcoming = observation.logs, observation.snapshots
    going_on = {**unfinished(state.snapshots), **dict.fromkeys(upcoming.found)}
    # That flag never goes back, though a table that is found later has a snapshot too.
    on_clock = state.use_processing_time or (policy.strategy.use_processing_time and not going_on)
    begun = {log: lower for log, lower in going_on.items() if log not in upcoming.dropped}
    done = finished(state.snapshots) | set(map(snapshot_split, upcoming.dropped))
    learned = learned_after(state, observation.seen, policy.strategy.percentile)
    policy = replace(policy, strategy=in_force(policy.strategy, learned))
    strategy = policy.strategy
    drift = policy.alignment.max_drift if rows is None else None
    kept = _with_last_ranges(state, done, observation.seen, strategy, drift, looks_up=index is not None)
    splits, losses = check_loss(kept, logs, policy.on_loss.position_text)
    splits |= {s: unanswered(t) for s, t in splits.items() if s in logs.silent}
    refuse(losses, policy.on_loss)
    splits = {**splits, **at_rest(splits, state.watermark, observation, strategy)}
    # Before the limit is found: the group waits for them as for any active split.
    opened = logs.uncommitted - logs.unknown - upcoming.waiting
    splits |= {s: uncommitted(t) for s, t in splits.items() if s in opened}

    going = {s: t for s, t in splits.items() if s not in upcoming.waiting}
    backlog = backlog_of(going, observation, policy, index, rows)
    # Of a table that is found later nobody gains by waiting for it.
    in_snapshot = bool(going_on) and state.watermark is None
    holds_group = in_snapshot and policy.alignment.holds_in_snapshot
    aligned = aligned_ends(splits, observation, backlog, holds_group=holds_group)
    limit, allowed, newest_matters, reached, _ = aligned
    if index is not None:
        # Only for as long as something of the future lies between what is read and what can be looked up.
        splits = {
            s: t if t.step == (step := aligned.steps.get(s)) else replace(t, step=step) for s, t in splits.items()
        }
    waits = _waits_for_more(backlog, allowed, observation, policy.minimum_rows)
    left_out = {s for s in allowed if is_left_out(s, splits[s], state, policy.idleness)}
    budget = None if observation.limits.one_batch else observation.limits.max_rows
    ends = {s: splits[s].position for s in allowed} if waits else budgeted_ends(backlog, allowed, budget, left_out)

    # A snapshot that waits for its turn is not quiet: there are rows in its table.
    snapshots = set(map(snapshot_split, begun))
    # Of rows that wait for more nothing is read, but when the first of them are from is known.
    told = backlog.beginnings() if waits else {s: w for s, w in reached.items() if ends[s] == allowed[s]}
    silent = logs.unknown | upcoming.waiting | snapshots - allowed.keys()
    opened -= allowed.keys()
    planned = {
        s: t
        if s in opened
        else unanswered(t)
        if s in silent
        else _advance(
            t,
            allowed.get(s),
            ends.get(s),
            logs.asked_at,
            policy.idleness.timeout_of(s, observation.history.idle_timeouts),
        )
        for s, t in splits.items()
    }
    has_rows = any(t.position > t.observed for t in planned.values())
    if has_rows and strategy.watermark_lag is not None:
        # A batch goes out in any case: splits at rest need not wait until the whole source is.
        planned |= by_clock(planned, observation, strategy, MIN)
    planned |= marked_returning(state, planned, policy.idleness)
    cap = future_cap(observation.now, strategy)
    unread = {} if ahead is None else look_ahead(ahead, planned, state.watermark, logs, cap)
    shown = planned if ahead is None else left_by(planned, unread, state.watermark, logs, strategy)
    # Once there is a watermark, what a snapshot holds is late whatever is done: nobody gains by waiting for it.
    waited_for = shown if state.watermark is None else {s: t for s, t in shown.items() if s not in snapshots}
    counting = waited_for if begun else at_dated_ends(waited_for, observation, strategy)
    watermark = _watermark(state, counting, observation, policy, on_clock=on_clock, looks_ahead=ahead is not None)
    if policy.final_watermark and not (has_rows or losses or going_on) and is_at_its_end(planned, logs):
        watermark = MAX
    moved = (
        tick_is_due(state, observation, strategy.watermark_interval, has_rows=has_rows)
        if on_clock
        else watermark != state.watermark
    )
    says_something = moved or done or changed_status(state.splits, planned) or (announce and watermark is not None)
    # A run with an end would be over with the first batch that is none.
    held = logs.ends_are_final and any(t.status is SplitStatus.PAUSED for t in planned.values())
    is_batch = has_rows or bool(losses) or held or (policy.sends_markers and bool(says_something))
    return Plan(
        state=SourceState(
            splits=planned,
            # The clock goes out at its interval only.
            watermark=watermark if is_batch or not on_clock else state.watermark,
            use_processing_time=on_clock,
            future_cap=cap,
            snapshots=snapshots_after(state.snapshots, begun, planned, upcoming),
            group=GroupState(
                member=state.group.member,
                limit=None if limit is None else limit.watermark,
                held=state.group.held + (held and not has_rows),
            ),
            learned=learned,
            run=state.run + announce,
        ),
        is_batch=is_batch,
        has_rows=has_rows,
        waits_for_more=waits,
        limit=limit,
        losses=losses,
        newest_matters=newest_matters,
        member=membership(
            {s: t for s, t in planned.items() if s not in snapshots},
            told,
            logs,
            on_clock=on_clock,
            holds_group=holds_group,
            waits_for_first=policy.alignment.waits_for_first,
        ),
        counting={**shown, **counting},
        unread=unread,
        leads_to=None if ahead is None else combined(state, counting, policy.idleness),
    )


def _refuse_another_clock(state: SourceState, strategy: WatermarkStrategy) -> None:
    if state.use_processing_time and not strategy.use_processing_time:
        raise OffsetError(
            "the checkpoint was written with processing-time watermarks (watermarkStrategy none), and its watermark is "
            "the clock: every row would be late. Set the old strategy, or start with a new checkpoint location."
        )


def _with_last_ranges(
    state: SourceState,
    done: Set[Split],
    seen: Mapping[Split, RangeSummary],
    strategy: WatermarkStrategy,
    drift: int | None,
    *,
    looks_up: bool,
) -> dict[Split, SplitState]:
    """Return the splits with what the tasks of the last batch saw, without those that are done.

    ``drift``: of a group whose splits learn how far to go, where no index looks event times up.
    """
    return {
        s: with_step(
            advanced(t, seen[s] if t.observed != t.position else None, strategy),
            t,
            None if looks_up and t.step is None else drift,
        )
        for s, t in state.splits.items()
        if s not in done
    }


def _watermark(
    before: SourceState,
    splits: Mapping[Split, SplitState],
    observation: Observation,
    policy: PlanPolicy,
    *,
    on_clock: bool,
    looks_ahead: bool,
) -> Millis | None:
    """Return the combined watermark that goes out with a batch, which is never before the last."""
    sent = before.watermark
    if on_clock:
        return clock_of(before, observation.now)
    if looks_ahead and not observation.logs.all_found_now:
        led_to = observation.history.led_to
        return led_to if sent is None else max(sent, led_to or sent)
    if not observation.logs.all_found:
        return sent
    own = combined(before, splits, policy.idleness)
    if not policy.idleness.follows_group:
        return own
    return with_others(own, before, splits, observation, policy.strategy.watermark_interval)


def ranges_of(state: SourceState) -> list[SplitRange]:
    """Return the ranges the batch that ends in ``state`` reads, in split order."""
    return sorted(SplitRange(s, t.observed, t.position) for s, t in state.splits.items() if t.position > t.observed)


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
        event = SplitEvent.HELD
    else:
        event = SplitEvent.WAITS if end == state.position else SplitEvent.READS
    status = TRANSITIONS[state.status, event]
    since = next_since(state, event, status, asked_at)
    if status is state.status and since == state.since and (end is None or end == state.position):
        return state
    position = state.position if end is None else end
    return replace(state, position=position, status=status, since=since)
