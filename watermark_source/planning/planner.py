"""The planner: what the next batch reads, and which watermark goes out with it. Pure; nothing else decides.

Order of rules: what tasks observed in the last batch -> loss checks -> clocks of logs at rest (``known_before``) ->
alignment limit -> planned ends -> minimum rows -> row budget -> status (``batch_ends``) -> combined watermark -> is
there anything to send (``plan``)?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple, Protocol

from watermark_source.planning.announced import needed_from
from watermark_source.planning.announced_group import AnnouncedPositions
from watermark_source.planning.backlog import Backlog, Limit, backlog_of, with_step, with_steps
from watermark_source.planning.budget import Budgeted, budgeted_ends
from watermark_source.planning.catch_up import caught_up_after, check_clock, check_start, is_done, reads_first
from watermark_source.planning.combined_watermark import (
    at_rest,
    closed,
    is_at_its_end,
    knows_new_splits,
    last_was_sent,
    positions_of,
    tick_is_due,
    watermark_of_batch,
    with_own_rows,
)
from watermark_source.planning.disorder import Learned, RangeSummary
from watermark_source.planning.group import GroupMember, MemberStatus, drift_in_force
from watermark_source.planning.group_limit import Aligned, aligned_ends, membership
from watermark_source.planning.lineage import with_epochs
from watermark_source.planning.loss import Loss, check_loss, refuse
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import AfterCatchUp, GroupHold, LossKind, MinimumRows, PlanPolicy
from watermark_source.planning.reach import reach_after
from watermark_source.planning.snapshot_ranges import (
    finished,
    snapshot_split,
    snapshots_after,
    unfinished,
    without_found,
)
from watermark_source.planning.split import RowIndex, Split, SplitRange, TimeIndex
from watermark_source.planning.split_watermarks import (
    RowsAhead,
    SplitWatermarks,
    advanced,
    by_clock,
    learned_after,
    split_watermarks,
    with_batch,
)
from watermark_source.planning.state import (
    Bound,
    CatchUp,
    GroupState,
    SourceState,
    SplitState,
    SplitStatus,
    is_left_out,
    marked_returning,
    returned,
)
from watermark_source.planning.status_transitions import (
    TRANSITIONS,
    SplitEvent,
    after_range,
    changed_status,
    next_since,
    on_the_clock,
    quiet_while_read,
    stays_at_rest,
    stays_quiet,
    to_planned_end,
    unanswered,
    uncommitted,
)
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis

# Before a batch is planned: every split with the rows read of it, and the present state of its log.


@dataclass(frozen=True, slots=True)
class KnownSplits:
    """The source after the last batch, and as its logs are now."""

    splits: Mapping[Split, SplitState]
    losses: tuple[Loss, ...]
    learned: Learned | None
    policy: PlanPolicy
    """The user's, with what was learned, and the drift that is in force in the group."""
    on_clock: bool
    opened: Set[Split]
    """Splits whose next rows belong to open transactions."""
    done: Set[Split]
    """Snapshots that are read to their end, or whose table was dropped."""
    continuing: Mapping[str, Bound]
    """Snapshots that are not, with the key at which each continues."""
    undated: Set[Split]
    """Splits whose rows in the last batch had no event time."""
    begun: Mapping[str, Bound]
    """``continuing`` without dropped tables."""
    catch_up: CatchUp | None
    """How far the logs are read to the ends that they had at the start; ``None``: not known, or not needed."""
    reads_to_end_first: bool
    """Whether there is no watermark, and the group waits, until they have been."""

    @property
    def snapshots(self) -> Set[Split]:
        """The splits of snapshots under way."""
        return set(map(snapshot_split, self.begun))


def known_before(
    state: SourceState, observation: Observation, policy: PlanPolicy, *, has_time_index: bool, has_row_index: bool
) -> KnownSplits:
    """Apply what tasks observed in the last batch, losses, and the clocks of logs at rest.

    Args:
        state: as of the last planned batch.
        observation: what the plan is made from.
        policy: the user's decisions.
        has_time_index: whether event times can be looked up.
        has_row_index: whether positions are not rows, and rows can be looked up.

    Raises:
        DataLossError: rows are gone and ``policy.on_loss.fails`` is set.
        OffsetError: the strategy cannot continue from the state (``WatermarkStrategy.check_checkpoint``), or processing
            time cannot begin (``check_clock``).
        GeneratorError: the user's own strategy failed.
    """
    policy = policy.in_force(use_processing_time=state.use_processing_time)
    policy = policy.with_drift(drift_in_force(policy.alignment.max_drift, observation.others))
    keeps_clock = policy.strategy.is_on_clock(reads_first=False, was_on_clock=True)
    check_start(state, policy.after_catch_up, keeps_clock=keeps_clock)
    policy.strategy.check_checkpoint(state.watermark, observation.now, use_processing_time=state.use_processing_time)
    logs, upcoming = observation.logs, observation.snapshots
    continuing = {**unfinished(state.snapshots), **dict.fromkeys(upcoming.found)}
    done = finished(state.snapshots) | set(map(snapshot_split, upcoming.dropped))
    ranged = {s: t for s, t in state.splits.items() if t.observed != t.position}
    learned = learned_after(state, observation.seen, policy.strategy)
    policy = policy.with_learned(learned)
    strategy = policy.strategy
    drift = None if has_row_index else policy.alignment.max_drift
    kept = _with_last_ranges(state, done, observation.seen, strategy, drift, has_time_index=has_time_index)
    if policy.idleness.passes_returning:
        read = {s for s, t in ranged.items() if t.returning is not None}
        kept |= {s: returned(kept[s], observation.seen[s]) for s in read & kept.keys()}
    undated = {
        s
        for s in ranged
        # Rows of a snapshot have no event time, and it is never quiet.
        if s.log not in state.snapshots.frontiers and observation.seen[s].is_undated
    }
    splits, losses = check_loss(kept, logs, policy.on_loss, state.ids)
    splits |= {s: unanswered(splits[s]) for s in logs.silent & splits.keys()}
    refuse(losses, policy.on_loss)
    catch_up = None
    if policy.after_catch_up is not None:
        shorter = {s.split for s in losses if s.kind in (LossKind.LOG_SHORTER, LossKind.LOG_REPLACED)}
        catch_up = caught_up_after(state, splits, logs, shorter, policy.after_catch_up)
    if policy.after_catch_up is AfterCatchUp.CLOCK and is_done(catch_up):
        if not state.use_processing_time:
            check_clock(state.watermark, observation.now)
        policy, splits = policy.on_clock, _without_kept(splits)
    reads_to_end_first = reads_first(policy.after_catch_up, catch_up)
    if reads_to_end_first:
        # Nothing has a watermark that could be ahead, and the others of the group wait.
        policy = policy.with_drift(None)
    splits |= at_rest(splits, state.watermark, observation, policy)
    # Before the limit is found: the group waits for them as for any active split.
    opened = logs.uncommitted - logs.unknown - upcoming.waiting
    splits |= {s: uncommitted(splits[s]) for s in opened & splits.keys()}
    is_on_clock = policy.strategy.is_on_clock(
        reads_first=bool(continuing) or reads_to_end_first, was_on_clock=state.use_processing_time
    )
    if is_on_clock:
        splits = {s: on_the_clock(t) for s, t in splits.items()}
    return KnownSplits(
        splits=splits,
        losses=losses,
        learned=learned,
        policy=policy,
        on_clock=is_on_clock,
        opened=opened,
        done=done,
        continuing=continuing,
        undated=undated & splits.keys(),
        begun={log: lower for log, lower in continuing.items() if log not in upcoming.dropped},
        catch_up=catch_up,
        reads_to_end_first=reads_to_end_first,
    )


def _without_kept(splits: Mapping[Split, SplitState]) -> dict[Split, SplitState]:
    """Return the splits without what an earlier strategy kept of them."""
    return {s: t if t.kept is None else replace(t, kept=None) for s, t in splits.items()}


def _with_last_ranges(
    state: SourceState,
    done: Set[Split],
    seen: Mapping[Split, RangeSummary],
    strategy: WatermarkStrategy,
    drift: int | None,
    *,
    has_time_index: bool,
) -> dict[Split, SplitState]:
    """Return the splits with what tasks observed in the last batch, without those that are done.

    ``drift``: of the alignment group, where steps are learned because event times cannot be looked up.
    """

    def folded(split: Split, state: SplitState) -> SplitState:
        if state.observed == state.position:
            return advanced(split, state, None, strategy, None)
        found = seen[split]
        return after_range(advanced(split, state, found, strategy, cap), undated=found.is_undated)

    cap, before = state.future_cap, state.splits
    if not strategy.continues(state.kept_by):
        before = _without_kept(before)
    changed = {
        s: with_step(folded(s, t), t, None if has_time_index and t.step is None else drift)
        for s, t in before.items()
        # Of the others nothing was read, and no bound that became smaller advances them.
        if (t.observed != t.position or t.highest is not None) and s not in done
    }
    kept = {**before, **changed}
    return {s: t for s, t in kept.items() if s not in done} if done else kept


# What a batch reads: how far each split goes, within its alignment group, the row budget and minimum rows.


@dataclass(frozen=True, slots=True)
class BatchEnds:
    """The ranges of a batch."""

    splits: Mapping[Split, SplitState]
    """With their planned ends, and the status that these give them."""
    aligned: Aligned
    """Their limit, and how far it lets each of them be read."""
    reached: Callable[[], Mapping[Split, Millis]]
    """Finds the watermarks of splits at their planned ends, as far as a time index shows them."""
    waits_for_more: bool
    """Whether there are rows that wait for more to come (``minimum_rows``)."""
    holds_group: bool
    """Whether sources elsewhere in the group wait for what this one reads first."""
    has_rows: bool
    """Whether anything is read."""
    next_reach: Callable[[Mapping[Split, SplitState]], Millis | None]
    """Finds the watermark that the source surely has after its next batch, from the splits as this one leaves them."""
    lead: Callable[[], Millis | None]
    """Finds the highest watermark that a split of which rows are read may have, except for one record beyond a gap."""


def batch_ends(
    state: SourceState, known: KnownSplits, observation: Observation, index: TimeIndex | None, rows: RowIndex | None
) -> BatchEnds:
    """Return what is read next: see the order of rules in ``planner``."""
    splits, policy, logs, upcoming = known.splits, known.policy, observation.logs, observation.snapshots
    going = {s: t for s, t in splits.items() if s not in upcoming.waiting} if upcoming.waiting else splits
    backlog = backlog_of(going, observation, policy, index, rows)
    announced = _announced(splits, state, known, observation)
    if announced is not None and backlog.max_drift is not None and not observation.limits.one_batch:
        backlog = announced.backlog(backlog, is_final=logs.ends_are_final)
    # A table that is found later holds no other source: its rows are late in any case.
    reads_first = (bool(known.continuing) or known.reads_to_end_first) and state.watermark is None
    if known.reads_to_end_first and logs.ends_are_final and all(splits[s].position >= e for s, e in logs.ends.items()):
        # A later run reads what is missing. In this one the others would wait for ever.
        reads_first = False
    holds_group = reads_first and policy.alignment.hold is not GroupHold.NOTHING
    # A snapshot that waits for its next chunks leaves the log to its group.
    reads_alone = holds_group and (bool(upcoming.chunks) or known.reads_to_end_first)
    timeouts, asked_before = observation.history.idle_timeouts, observation.history.asked_before
    quiet = {
        s for s in known.undated if stays_quiet(splits[s], asked_before, policy.idleness.timeout_of(s, timeouts))
    } - logs.stale
    aligned = aligned_ends(splits, observation, backlog, quiet, reads_alone=reads_alone, announced=announced)
    splits = with_steps(splits, aligned.steps, has_time_index=index is not None)
    allowed = aligned.ends
    waits = _waits_for_more(backlog, allowed, observation, policy.minimum_rows)
    left_out = {s for s in allowed if is_left_out(splits[s], state, policy.idleness)}
    budget = None if observation.limits.one_batch else observation.limits.max_rows
    held_back = Budgeted({s: splits[s].position for s in allowed})
    budgeted = held_back if waits else budgeted_ends(backlog, allowed, budget, left_out)
    ends = budgeted.ends
    # A snapshot that waits for its turn is not quiet: its table has rows. And only a present end shows that a log has
    # none.
    undecided = known.snapshots | logs.stale
    silent = logs.unknown | upcoming.waiting | undecided - allowed.keys()
    opened = known.opened - allowed.keys()
    decided = allowed.keys() | silent | opened

    def planned(split: Split, before: SplitState) -> SplitState:
        if split in opened:
            return before
        if split in silent:
            return unanswered(before)
        timeout, end = policy.idleness.timeout_of(split, timeouts), ends.get(split)
        found = to_planned_end(before, allowed.get(split), end, logs.asked_at, timeout)
        if end is None or end != logs.ends.get(split) or split in undecided:
            return found
        if split in quiet:
            status = TRANSITIONS[before.status, SplitEvent.QUIET]
            return found.planned_to(found.position, status, next_since(before, SplitEvent.QUIET, status, logs.asked_at))
        since = quiet_while_read(before, logs.asked_at, timeout, undated=split in known.undated)
        return found if since is None else replace(found, since=since)

    after = {
        s: t
        if s not in decided and stays_at_rest(t, logs.asked_at, policy.idleness.timeout_of(s, timeouts))
        else planned(s, t)
        for s, t in splits.items()
    }
    # While rows wait for more, none is read, but the event times of the first ones are known.
    begins = backlog.beginnings() if waits else {}
    reached = cache(lambda: begins if waits else _reached_within(backlog, aligned, budgeted))
    read = {s for s, t in after.items() if t.position > t.observed}
    by_rows = not (known.on_clock or known.continuing or known.reads_to_end_first)
    return BatchEnds(
        splits=after,
        aligned=aligned,
        reached=reached,
        waits_for_more=waits,
        holds_group=holds_group,
        has_rows=bool(read),
        next_reach=lambda planned: reach_after(
            planned,
            reached(),
            observation,
            policy,
            index if by_rows else None,
            rows=rows,
            announced=_announced(planned, state, known, observation) if by_rows else None,
        ),
        lead=lambda: (
            _lead(read, reached(), aligned.limit, backlog, budgeted)
            if announced is None or not read
            else announced.lead(positions_of(after), MAX if aligned.limit is None else aligned.limit.watermark)
        ),
    )


def _announced(
    splits: Mapping[Split, SplitState], state: SourceState, known: KnownSplits, observation: Observation
) -> AnnouncedPositions | None:
    return AnnouncedPositions.of(splits, observation, state.watermark, known.policy.future_cap(observation.now))


def _reached_within(backlog: Backlog, aligned: Aligned, budgeted: Budgeted) -> dict[Split, Millis]:
    """Return the watermarks of splits at the ends that the budget gives them, as far as a time index shows them."""

    def reached(split: Split) -> Millis | None:
        at_end, before = aligned.reached.get(split), backlog.splits[split].watermark
        if budgeted.ends[split] == aligned.ends[split]:
            return at_end
        if split not in budgeted.reached:
            return None
        at_cut = backlog.strategy.watermark_of(budgeted.reached[split])
        at_cut = at_cut if before is None else max(before, at_cut)
        # Where the index does not show the log's end, it may show the cut.
        return at_cut if at_end is None else min(at_end, at_cut)

    return {split: watermark for split in aligned.ends if (watermark := reached(split)) is not None}


def _lead(
    read: Set[Split], reached: Mapping[Split, Millis], limit: Limit | None, backlog: Backlog, budgeted: Budgeted
) -> Millis | None:
    most, cut, at = MAX if limit is None else limit.watermark, budgeted.reached, backlog.strategy.watermark_of
    return max((min(reached.get(s, most), most, at(cut[s]) if s in cut else most) for s in read), default=None)


def _waits_for_more(
    backlog: Backlog, allowed: Mapping[Split, int], observation: Observation, minimum: MinimumRows | None
) -> bool:
    if minimum is None:
        return False
    waiting = sum(end - backlog.splits[s].position for s, end in allowed.items())
    # A run with an end, or of one batch, does not wait; nor do rows whose event times the whole group waits for.
    aligned = backlog.max_drift is not None
    learns = aligned and backlog.index is None and backlog.strategy.has_split_watermarks
    unknown = learns and any(t.watermark is None for t in backlog.splits.values())
    bounded = observation.limits.one_batch or observation.logs.ends_are_final or unknown
    # The first rows of a process never wait.
    since = observation.history.since_rows
    return 0 < waiting < minimum.rows and not bounded and since is not None and since < minimum.max_delay


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch."""

    state: SourceState
    """Goes into the offset when the batch is sent; is kept in memory when it is not."""
    observation: Observation = field(compare=False)
    """What the plan was made from, with what was looked up while it was made."""
    watermarks: SplitWatermarks
    """The watermarks of all splits."""
    member: Callable[[], GroupMember] = field(compare=False)
    """Finds what the rest of the alignment group learns of the source: one that is in no group needs none of it."""
    is_batch: bool
    """Whether there is anything to send: rows, a higher watermark, a status change, a clock tick."""
    has_rows: bool = False
    waits_for_more: bool = False
    """Whether there are rows that wait for more to come (``minimum_rows``)."""
    limit: Limit | None = None
    """The alignment limit, and the member that sets it."""
    losses: tuple[Loss, ...] = ()
    """What was lost and is skipped; not empty only without ``OnLoss.fails``."""
    newest_matters: bool = False
    """Whether the newest event times of the logs could change what is read."""
    reach: Callable[[], Millis | None] = field(default=lambda: None, compare=False)
    """Finds the watermark that the source surely has after its next batch; ``None`` if that is not known. A source that
    is alone in its query needs none of it."""
    lead: Callable[[], Millis | None] = field(default=lambda: None, compare=False)
    """Finds the highest watermark that a split may have once the batch is read, as far as the group's limit or a time
    index shows; ``None`` if nothing is read."""


class Lookups(Protocol):
    """Look-ups that only some plans need. The planner stays pure: the driver answers."""

    def dated(self, observation: Observation, state: SourceState) -> Observation:
        """Return the observation with the newest event times of the logs to be read, and their ends as of now."""

    def uncommitted(self, observation: Observation, planned: SourceState, state: SourceState) -> Observation | None:
        """Return the observation with splits that a plan would pass over despite open transactions.

        See ``passed_over``; ``None`` if there are none.
        """

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return an event time that each range is known to hold, at best its highest; nothing where none is known."""


def plan(
    state: SourceState,
    observation: Observation,
    policy: PlanPolicy,
    index: TimeIndex | None,
    *,
    rows: RowIndex | None = None,
    ahead: RowsAhead | None = None,
    lookups: Lookups | None = None,
    is_first: bool = False,
) -> Plan:
    """Plan the next batch.

    What it reads is chosen again only if a look-up returns more about the logs; the watermark is computed once,
    and once more if splits have open transactions.

    Args:
        state: as of the last planned batch.
        observation: the outside world; ``seen`` must have every split with a range not yet observed.
        policy: the user's decisions.
        index: event-time look-ups; without one, alignment and budget use what has been read so far.
        rows: look-ups of rows in a log whose positions are not rows.
        ahead: what reads ahead of the batch; needed where the strategy reads ahead.
        lookups: what is looked up only for plans that need it.
        is_first: the first plan of a process, which sends the watermark even if it is unchanged.

    Raises:
        DataLossError: rows were deleted before they were read, and ``policy.on_loss.fails`` is set.
        OffsetError: the strategy cannot continue from the state (``WatermarkStrategy.check_checkpoint``).
        GeneratorError: the user's own strategy failed.
        UsageError: two queries announce watermarks under one name.
    """
    if last_was_sent(state):
        return _closing(state, observation, is_first=is_first)
    chosen = _choose(state, observation, policy, index, rows)
    if lookups is not None and chosen.ends.aligned.newest_matters and not observation.logs.times.newest:
        observation = lookups.dated(observation, state)
        chosen = _choose(state, observation, policy, index, rows)
    planned = _planned(observation, chosen, ahead, lookups, is_first=is_first)
    if lookups is not None and (opened := lookups.uncommitted(observation, planned.state, state)) is not None:
        chosen = _choose(state, opened, policy, index, rows)
        planned = _planned(opened, chosen, ahead, lookups, is_first=is_first)
    return planned


def _closing(state: SourceState, observation: Observation, *, is_first: bool) -> Plan:
    after = closed(state, is_first=is_first)
    return Plan(
        state=after,
        observation=observation,
        # Spark forgets a source's watermark with each process, and uses the lowest of the query's sources.
        is_batch=is_first or not state.ended,
        member=partial(GroupMember, MemberStatus.FINISHED),
        watermarks=SplitWatermarks(after.splits),
    )


class _Chosen(NamedTuple):
    """What a batch reads, and what that was chosen from."""

    before: SourceState
    """As of the last batch."""
    known: KnownSplits
    ends: BatchEnds
    observation: Observation
    """Without snapshots that cannot begin with this batch."""


def _choose(
    state: SourceState, observation: Observation, policy: PlanPolicy, index: TimeIndex | None, rows: RowIndex | None
) -> _Chosen:
    has_time_index, has_row_index = index is not None, rows is not None
    known = known_before(state, observation, policy, has_time_index=has_time_index, has_row_index=has_row_index)
    chosen = _Chosen(state, known, batch_ends(state, known, observation, index, rows), observation)
    if observation.snapshots.found and _leaves_rows(chosen, observation.logs.ends):
        # A new table existed at the log's end, but perhaps not where this batch ends. Its snapshot begins with a batch
        # that reads the log to its end.
        return _choose(state, without_found(observation), policy, index, rows)
    return chosen


def _leaves_rows(chosen: _Chosen, ends: Mapping[Split, int]) -> bool:
    logs = ((s, t) for s, t in chosen.ends.splits.items() if s.log not in chosen.known.begun)
    return any(t.position < ends.get(s, MAX) for s, t in logs)


def _planned(
    observed: Observation, chosen: _Chosen, ahead: RowsAhead | None, lookups: Lookups | None, *, is_first: bool
) -> Plan:
    """Return the plan that reads what was chosen: splits, watermarks, whether it is a batch, and the state after it."""
    state, known, ends, observation = chosen
    policy, logs = known.policy, observation.logs
    splits = _beside_rows(chosen)
    if ahead is not None and known.losses:
        ahead.forget({loss.split for loss in known.losses})
    watermarks = split_watermarks(splits, state, observation, policy, ahead, snapshots=known.snapshots)
    watermark = _watermark_after(chosen, splits, watermarks)
    # A run with an end would be over with the first plan that is no batch.
    held = logs.ends_are_final and any(t.status is SplitStatus.PAUSED for t in splits.values())
    has_news = policy.sends_markers and _has_news(chosen, splits, watermark, is_first=is_first)
    is_batch = ends.has_rows or bool(known.losses) or held or has_news
    after = _state_after(chosen, splits, watermark, is_batch=is_batch, held=held, is_first=is_first)
    sends_own_rows = ends.has_rows and knows_new_splits(state, logs) and not known.reads_to_end_first
    if lookups is not None and sends_own_rows and (reached := lookups.reached(ranges_of(after))):
        watermarks = with_batch(watermarks, reached, policy.strategy, after.future_cap)
        after = with_own_rows(after, state, watermarks, policy.idleness)
    return Plan(
        state=after,
        observation=observed,
        is_batch=is_batch,
        has_rows=ends.has_rows,
        waits_for_more=ends.waits_for_more,
        limit=ends.aligned.limit,
        losses=known.losses,
        newest_matters=ends.aligned.newest_matters,
        member=lambda: membership(
            splits,
            known.snapshots,
            ends.reached(),
            logs,
            on_clock=known.on_clock,
            holds_group=ends.holds_group,
            waits_for_first=policy.alignment.hold is GroupHold.FIRST_WATERMARK,
            announced=_announced(splits, state, known, observation),
        ),
        reach=partial(ends.next_reach, splits),
        lead=ends.lead,
        watermarks=watermarks,
    )


def _beside_rows(chosen: _Chosen) -> Mapping[Split, SplitState]:
    """Return the planned splits: those at rest advance beside the rows of others, those that were idle are marked."""
    state, known, ends, observation = chosen
    policy, splits, cap = known.policy, ends.splits, known.policy.future_cap(observation.now)
    at_rest_beside_rows = policy.strategy.at_rest_beside_rows
    if ends.has_rows and (moved := by_clock(splits, observation, at_rest_beside_rows, cap, MIN)):
        splits = {**splits, **moved}
    marked = marked_returning(state, splits, policy.idleness)
    return {**splits, **marked} if marked else splits


def _watermark_after(chosen: _Chosen, splits: Mapping[Split, SplitState], watermarks: SplitWatermarks) -> Millis | None:
    """Return the combined watermark; while the logs are first read to their ends, it stays as it was."""
    state, known, ends, observation = chosen
    if known.reads_to_end_first:
        return state.watermark
    nothing_left = not (ends.has_rows or known.losses or known.continuing)
    return watermark_of_batch(
        state,
        watermarks,
        observation,
        known.policy,
        on_clock=known.on_clock,
        is_last=known.policy.final_watermark and nothing_left and is_at_its_end(splits, observation.logs),
        has_rows=ends.has_rows,
    )


def _has_news(chosen: _Chosen, splits: Mapping[Split, SplitState], watermark: Millis | None, *, is_first: bool) -> bool:
    """Return whether a batch would be worth sending without rows: for what its markers state."""
    state, known, ends, observation = chosen
    if known.on_clock:
        moved = tick_is_due(state, observation, known.policy.watermark_interval, has_rows=ends.has_rows)
    else:
        moved = watermark != state.watermark
    repeats = is_first and watermark is not None
    caught_up = is_done(known.catch_up) and not is_done(state.catch_up)
    return bool(moved or known.done or changed_status(state.splits, splits) or repeats or caught_up)


def _state_after(
    chosen: _Chosen,
    splits: Mapping[Split, SplitState],
    watermark: Millis | None,
    *,
    is_batch: bool,
    held: bool,
    is_first: bool,
) -> SourceState:
    """Return the state after the plan; ``held``: the batch is sent because the group holds rows of it."""
    state, known, ends, observation = chosen
    cap = known.policy.future_cap(observation.now)
    announced = None
    if observation.announced is not None:
        announced = needed_from(observation.announced, positions_of(splits), cap, state.announced, watermark)
    logs = {split.log for split in splits}
    return SourceState(
        splits=with_epochs(splits, observation.logs.histories),
        ids={log: id_ for log, id_ in {**state.ids, **observation.logs.ids}.items() if log in logs},
        # The clock goes out at its interval only.
        watermark=watermark if is_batch or not known.on_clock else state.watermark,
        use_processing_time=known.on_clock,
        future_cap=cap,
        snapshots=snapshots_after(state.snapshots, known.begun, splits, observation.snapshots),
        group=GroupState(
            member=state.group.member,
            limit=None if (limit := ends.aligned.limit) is None else limit.watermark,
            held=state.group.held + (held and not ends.has_rows),
        ),
        learned=known.learned,
        kept_by=known.policy.strategy.keeps_as,
        announced=announced,
        catch_up=known.catch_up,
        run=state.run + is_first,
    )


def ranges_of(state: SourceState) -> list[SplitRange]:
    """Return the ranges the batch that ends in ``state`` reads, in split order."""
    return sorted(SplitRange(s, t.observed, t.position) for s, t in state.splits.items() if t.position > t.observed)
