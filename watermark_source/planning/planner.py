"""The planner: from what is known and observed to what the next batch reads and says. Pure; nothing else decides.

Order of rules: fold what the last batch saw -> loss checks -> the time of logs at rest (``state_before_plan``) ->
alignment limit -> planned ends -> minimum rows -> row budget -> status (``batch_ends``) -> future cap -> combined
watermark -> is there anything to send?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.backlog import Limit
from watermark_source.planning.batch_ends import choose
from watermark_source.planning.combined_watermark import at_dated_ends, combined
from watermark_source.planning.final_watermark import closed, has_said_the_last, is_at_its_end
from watermark_source.planning.look_ahead import LookAhead, Unread, left_by, look_ahead
from watermark_source.planning.loss import Loss
from watermark_source.planning.member_report import membership
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.returning_splits import marked_returning
from watermark_source.planning.row_index import RowIndex
from watermark_source.planning.snapshot_ranges import snapshot_split, snapshots_after
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermark import future_cap
from watermark_source.planning.state import GroupState, SourceState, SplitState, SplitStatus
from watermark_source.planning.state_before_plan import known_before
from watermark_source.planning.status_transitions import changed_status
from watermark_source.planning.time_index import TimeIndex
from watermark_source.planning.watermark_without_rows import by_clock, clock_of, tick_is_due, with_others


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
    """The combined watermark once all splits are known that there were."""


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
        state=closed(state, announce=announce),
        # Spark forgets with each process what a source told, and goes by the lowest of those of the query.
        is_batch=announce or not state.ended,
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
    known = known_before(state, observation, policy, has_index=index is not None, has_rows=rows is not None)
    choice = choose(state, known, observation, index, rows)
    policy, logs = known.policy, observation.logs
    strategy, planned, snapshots, has_rows = policy.strategy, choice.splits, known.snapshots, choice.has_rows
    if has_rows and strategy.watermark_lag is not None:
        # A batch goes out in any case: splits at rest need not wait until the whole source is.
        planned = {**planned, **by_clock(planned, observation, strategy, MIN)}
    if marked := marked_returning(state, planned, policy.idleness):
        planned = {**planned, **marked}
    cap = future_cap(observation.now, strategy)
    unread = {} if ahead is None else look_ahead(ahead, planned, state.watermark, logs, cap)
    shown = planned if ahead is None else left_by(planned, unread, state.watermark, logs, strategy)
    # Once there is a watermark, what a snapshot holds is late whatever is done: nobody gains by waiting for it.
    waited_for = shown if state.watermark is None else {s: t for s, t in shown.items() if s not in snapshots}
    counting = waited_for if known.begun else at_dated_ends(waited_for, observation, strategy)
    looks_ahead = ahead is not None
    own = combined(state, counting, policy.idleness)
    watermark = _watermark(state, counting, own, observation, policy, on_clock=known.on_clock, looks_ahead=looks_ahead)
    nothing_left = not (has_rows or known.losses or known.going_on)
    if policy.final_watermark and nothing_left and is_at_its_end(planned, logs):
        watermark = MAX
    if known.on_clock:
        moved = tick_is_due(state, observation, strategy.watermark_interval, has_rows=has_rows)
    else:
        moved = watermark != state.watermark
    first = announce and watermark is not None
    says_something = bool(moved or known.done or changed_status(state.splits, planned) or first)
    # A run with an end would be over with the first batch that is none.
    held = logs.ends_are_final and any(t.status is SplitStatus.PAUSED for t in planned.values())
    is_batch = has_rows or bool(known.losses) or held or (policy.sends_markers and says_something)
    return Plan(
        state=SourceState(
            splits=planned,
            # The clock goes out at its interval only.
            watermark=watermark if is_batch or not known.on_clock else state.watermark,
            use_processing_time=known.on_clock,
            future_cap=cap,
            snapshots=snapshots_after(state.snapshots, known.begun, planned, observation.snapshots),
            group=GroupState(
                member=state.group.member,
                limit=None if choice.limit is None else choice.limit.watermark,
                held=state.group.held + (held and not has_rows),
            ),
            learned=known.learned,
            run=state.run + announce,
        ),
        is_batch=is_batch,
        has_rows=has_rows,
        waits_for_more=choice.waits_for_more,
        limit=choice.limit,
        losses=known.losses,
        newest_matters=choice.newest_matters,
        member=membership(
            {s: t for s, t in planned.items() if s not in snapshots},
            choice.reached,
            logs,
            on_clock=known.on_clock,
            holds_group=choice.holds_group,
            waits_for_first=policy.alignment.waits_for_first,
        ),
        counting={**shown, **counting},
        unread=unread,
        leads_to=own,
    )


def _watermark(
    before: SourceState,
    splits: Mapping[Split, SplitState],
    own: Millis | None,
    observation: Observation,
    policy: PlanPolicy,
    *,
    on_clock: bool,
    looks_ahead: bool,
) -> Millis | None:
    """Return the watermark that goes out with a batch, which is never before the last; ``own`` is of ``splits``."""
    sent, logs = before.watermark, observation.logs
    if on_clock:
        return clock_of(before, observation.now)
    if not knows_new_splits(before, logs):
        return sent
    if not logs.all_found or (looks_ahead and not logs.all_found_now):
        led_to = observation.history.led_to
        # What is known of the splits by now may lead less far: one that was idle has rows, one has just been found.
        return sent if own is None or led_to is None else min(own, led_to if sent is None else max(sent, led_to))
    if not policy.idleness.follows_group:
        return own
    return with_others(own, before, splits, observation, policy.strategy.watermark_interval)


def knows_new_splits(before: SourceState, logs: ObservedLogs) -> bool:
    """Return whether the end of each new split is told: where nobody says so yet, its rows are not known of either."""
    return logs.unknown <= before.splits.keys()


def ranges_of(state: SourceState) -> list[SplitRange]:
    """Return the ranges the batch that ends in ``state`` reads, in split order."""
    return sorted(SplitRange(s, t.observed, t.position) for s, t in state.splits.items() if t.position > t.observed)
