"""The combined watermark that goes out with a batch: of the splits, of the writers, of a clock, or the end of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.planning.announced import reached
from watermark_source.planning.group import FIRST, OtherMembers
from watermark_source.planning.loss import partings
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import SplitWatermarks, by_clock, combined
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, returning_now
from watermark_source.planning.watermark import MAX, MIN, Millis, saturating_add


def watermark_of_batch(
    before: SourceState,
    table: SplitWatermarks,
    observation: Observation,
    policy: PlanPolicy,
    *,
    on_clock: bool,
    is_last: bool,
    has_rows: bool,
) -> Millis | None:
    """Return the combined watermark of a batch, without what its own rows advance. It is never lower than the last.

    Args:
        before: as of the last batch.
        table: of the plan's splits.
        observation: what the plan was made of.
        policy: the user's decisions.
        on_clock: whether event time is the driver's clock.
        is_last: whether the stream ends with this batch.
        has_rows: whether the batch reads anything.

    Raises:
        UsageError: two queries announce watermarks under one name.
    """
    if is_last:
        return MAX
    if on_clock:
        return clock_of(before, observation.now)
    if observation.announced is None:
        return _of_splits(before, table, observation, policy)
    # Of the positions that the batch ends with, since Spark applies the watermark at its end. Without rows it goes out
    # once an interval, and waits for no rest, as a clock's time does: each announcement makes one batch, so a query
    # comes to an end of them.
    sent, since = before.watermark, observation.history.since_batch_without_rows
    found = reached(observation.announced, positions_of(table.recorded), sent, policy.future_cap(observation.now))
    is_due = has_rows or sent is None or observation.logs.ends_are_final
    return found if is_due or since is None or since >= policy.watermark_interval else sent


def _of_splits(
    before: SourceState, table: SplitWatermarks, observation: Observation, policy: PlanPolicy
) -> Millis | None:
    """Return the watermark of the splits, which follows the group's members elsewhere while all splits are idle.

    It also follows them while there is no split. A run with an end would have none while they continue.
    """
    sent, logs, known, elsewhere = before.watermark, observation.logs, table.combined, observation.followed
    if not knows_new_splits(before, logs):
        return sent
    if not (logs.all_found and logs.all_found_now):
        earlier = observation.history.combined
        # The splits may give less by now: one that was idle has rows, or one has just been found.
        return sent if known is None or earlier is None else min(known, earlier if sent is None else max(sent, earlier))
    follows = policy.idleness.follows_group and not logs.ends_are_final and are_idle(table.counted)
    if elsewhere is None or not follows:
        return known
    due = due_now(sent, observation.history.rest, policy.watermark_interval)
    return elsewhere if elsewhere > max(due, known or MIN) else known


def with_own_rows(planned: SourceState, before: SourceState, table: SplitWatermarks, idleness: Idleness) -> SourceState:
    """Return a planned batch with the watermark that its own rows give, so that it goes out with them.

    Spark applies a batch's watermark at its end, to the next batch: no row of this one is late for it. The splits'
    recorded watermarks stay those of the rows before: the tasks' reports advance them one batch later, and at least as
    far, unless a row is deleted by then. The offset holds the decision, so that a replay is equal.

    Args:
        planned: with the watermark of ``watermark_of_batch``.
        before: as of the last batch.
        table: with the column ``with_batch``.
        idleness: as for ``combined``.
    """
    if planned.use_processing_time or planned.snapshots.frontiers:
        return planned
    before, states = replace(before, watermark=planned.watermark), table.states
    caught_up = {
        s: replace(t, returning=None)
        for s, t in planned.splits.items()
        if t.returning is not None and returning_now(s, states[s], before) is None
    }
    changed = {**planned.splits, **caught_up} if caught_up else planned.splits
    return replace(planned, watermark=combined(before, states, idleness), splits=changed)


def knows_new_splits(before: SourceState, logs: ObservedLogs) -> bool:
    """Return whether the end of each new split is known. While it is not, nor is whether the split has rows."""
    return logs.unknown <= before.splits.keys()


def positions_of(splits: Mapping[Split, SplitState]) -> dict[str, int]:
    """Return where each partition is planned up to, by the name that announcements give it: its number."""
    return {str(split.number): at.position for split, at in splits.items()}


def kept_positions(state: SourceState, logs: ObservedLogs) -> dict[str, int]:
    """Return ``positions_of``, each at most where reading continues: its log may be truncated, or have other rows."""
    most = {**logs.ends, **{split: at.position for split, at in partings(state.splits, logs).items()}}
    return {str(split.number): min(at.position, most.get(split, at.position)) for split, at in state.splits.items()}


# Time that passes without rows: by a log's system, by the driver's clock, by the group's members elsewhere.
#
# A batch for the time alone is made at most once a ``watermark_interval``, and only after a rest.


def at_rest(
    splits: Mapping[Split, SplitState], sent: Millis | None, observation: Observation, policy: PlanPolicy
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read that a clock advances while the whole source is at rest.

    The first watermark goes out at once, any other after a rest.
    """
    final = observation.logs.ends_are_final
    if not (sent is None or final or _has_rested(observation.history.rest, policy.watermark_interval)):
        return {}
    beyond, cap = _due(sent, policy.watermark_interval), policy.future_cap(observation.now)
    return by_clock(splits, observation, policy.strategy.at_rest, cap, beyond)


def _due(sent: Millis | None, interval: int) -> Millis:
    """Return the time that a watermark must exceed for a batch of its own."""
    return MIN if sent is None else saturating_add(sent, interval)


def due_now(sent: Millis | None, rest: Millis | None, interval: int) -> Millis:
    """Return the time that a watermark must exceed for a batch of its own now; the end of time without a rest."""
    return _due(sent, interval) if sent is None or _has_rested(rest, interval) else MAX


def clock_of(before: SourceState, now: Millis) -> Millis:
    """Return one millisecond before the clock value that the batch's rows carry, so that none of them is late."""
    clock = saturating_add(now, -1)
    return clock if before.watermark is None else max(clock, before.watermark)


def are_idle(splits: Mapping[Split, SplitState]) -> bool:
    """Return whether all of a source's splits are idle."""
    return all(t.status is SplitStatus.IDLE for t in splits.values())


def reached_by(others: OtherMembers) -> Millis | None:
    """Return the watermark up to which a source may follow other sources; ``None`` if it may not.

    To the lowest watermark of the members that count, and to the highest where all are idle, as with splits: the order
    in which they turn idle does not matter (FLINK-38454). Their watermarks count only while all members are known, and
    an idle member reports what its rows have reached, so no watermark goes in a circle. A member that is starting has
    rows, or may have, and no watermark yet.
    """
    if others.hold or others.ceiling is not None or others.planned == FIRST:
        return None
    # Not to what a source of the same query has only published of its next batch: it may read less.
    return others.idle if others.planned is None else others.planned


def tick_is_due(state: SourceState, observation: Observation, interval: int, *, has_rows: bool) -> bool:
    """Return whether a processing-time watermark may go out: with rows, else after an ``interval``."""
    if has_rows or state.watermark is None:
        return True
    late = observation.now - state.watermark > interval
    return late and not observation.logs.ends_are_final and _has_rested(observation.history.rest, interval)


def _has_rested(rest: Millis | None, interval: int) -> bool:
    """Return whether a batch without rows may be made for the time alone."""
    return rest is not None and rest >= interval


# The end of a stream that has one: its last watermark is the end of time, so that operators emit all that they hold.
#
# Two batches without rows carry it. After the first one Spark may be killed before it applies the watermark; the second
# one begins with it in any case. Only then is the stream's end recorded.


def is_at_its_end(planned: Mapping[Split, SplitState], logs: ObservedLogs) -> bool:
    """Return whether a batch that ends with these splits is the first one after a stream's last rows.

    Args:
        planned: the splits as the batch leaves them; it reads nothing.
        logs: as they were found for it.
    """
    if not logs.ends_are_final or not logs.all_found:
        return False
    # The rows of an open transaction are read by a later run.
    if logs.uncommitted:
        return False
    return all(s in planned and planned[s].position >= end for s, end in logs.ends.items())


def last_was_sent(state: SourceState) -> bool:
    """Return whether a stream's last watermark has gone out: nothing is read any more, whatever was written since."""
    return state.watermark == MAX


def come_since(state: SourceState, logs: ObservedLogs) -> list[SplitRange]:
    """Return what the logs hold behind a state, in split order."""
    starts = {s: state.splits[s].position if s in state.splits else logs.added.get(s, 0) for s in logs.ends}
    return [SplitRange(s, start, logs.ends[s]) for s, start in sorted(starts.items()) if start < logs.ends[s]]


def closed(state: SourceState, *, is_first: bool) -> SourceState:
    """Return the state of the second batch that carries the end of time, and of all plans after it.

    ``is_first``: as of ``plan``; this process has not sent it yet.
    """
    splits = {s: replace(t, observed=t.position) for s, t in state.splits.items()}
    return replace(state, splits=splits, ended=True, run=state.run + is_first)


# Splits that a plan treats as read to their end, though they may have rows in open transactions.
#
# Only the plan shows which splits: the connector looks up open transactions in them before the plan is used. If there
# are any, the plan is made once more with them (``ObservedLogs.uncommitted``).


def passed_over(before: SourceState, planned: SourceState, logs: ObservedLogs) -> Mapping[Split, int]:
    """Return the splits whose rows in open transactions a planned batch would pass over, with their ends.

    Those are splits that turn idle now, or are idle while the watermark advances; splits that a clock advances; and at
    the end of the stream all.
    """
    if planned.use_processing_time or before.watermark == MAX:
        return {}
    moves, is_last = planned.watermark != before.watermark, planned.watermark == MAX

    def is_passed(split: Split, at: SplitState) -> bool:
        was = before.splits.get(split)
        if at.status is SplitStatus.IDLE and (moves or was is None or was.status is not SplitStatus.IDLE):
            return True
        follows_clock = split in logs.times.reached and (was is None or was.watermark != at.watermark)
        return is_last or follows_clock

    follows = logs.times.reached
    return {
        s: t.position
        for s, t in planned.splits.items()
        if (is_last or t.status is SplitStatus.IDLE or s in follows)
        # One may be idle although it has rows, if they have no event time.
        and (t.observed == t.position or t.status is SplitStatus.IDLE)
        and t.position == logs.ends.get(s)
        and s not in logs.uncommitted
        and is_passed(s, t)
    }
