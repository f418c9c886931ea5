"""The combined watermark of a source: before a batch is read, and what it will be when it has been."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from watermark_source.planning.group import FIRST, OtherMembers
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import later
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, is_left_out, returning_now
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, lowest_of_active, saturating_add


def combined(before: SourceState, splits: Mapping[Split, SplitState], idleness: Idleness) -> Millis | None:
    """Return the combined watermark of splits, which is never before that of the last batch; ``None`` before the first.

    With ``passes_returning`` a split that came back from idleness and is behind is left out until it has caught up, as
    Flink's ``StatusWatermarkValve`` leaves out a channel. Not before rows of it have been read: only they show how far
    behind it is. With all others idle the watermark stands still until it has caught up.
    """
    active = {s for s, t in splits.items() if t.status is not SplitStatus.IDLE}
    left_out = {s for s in active if is_left_out(splits[s], before, idleness)}
    if left_out and left_out == active:
        return before.watermark
    waited_for = active - left_out
    members = ((MIN if t.watermark is None else t.watermark, s not in waited_for) for s, t in splits.items())
    found = lowest_of_active(members, MIN if before.watermark is None else before.watermark)
    return None if found == MIN else found


def at_dated_ends(
    planned: Mapping[Split, SplitState], observation: Observation, policy: PlanPolicy
) -> Mapping[Split, SplitState]:
    """Return planned splits with the watermarks they will have when they are read, as far as their system's time tells.

    It told the time just before the end: whoever is read to that end has no row left that is earlier. The combined
    watermark may go out with the batch, since Spark applies it to the next one; the splits' own stay those of the rows
    before, as with ``with_batch_watermark``.
    """
    logs, cap = observation.logs, policy.future_cap(observation.now)
    splits = dict(planned)
    for split, reached in logs.times.reached.items():
        at = splits.get(split)
        if at is None or not at.observed < at.position == logs.ends.get(split):
            continue
        if split in observation.snapshots.waiting or split in logs.uncommitted:
            continue
        watermark = policy.strategy.at_end(reached if cap is None else min(reached, cap))
        if watermark is not None:
            splits[split] = replace(at, watermark=later(at.watermark, watermark))
    return splits


def when_read(
    planned: SourceState, reached: Mapping[Split, Millis], strategy: WatermarkStrategy
) -> Mapping[Split, SplitState]:
    """Return the splits of a planned batch with the watermarks that its own rows lead to, as far as that is known.

    Args:
        planned: as of ``plan``: the splits' watermarks are those of the rows before the batch.
        reached: an event time that each planned range is known to hold, at best its highest. A range that is left out
            moves nothing.
        strategy: as the user chose it.
    """
    cap, strategy = planned.future_cap, strategy.with_learned(planned.learned)
    splits = dict(planned.splits)
    for split, event_time in reached.items():
        at = splits[split]
        # Beyond the cap is a row that moves nothing; which one is the highest that does, nobody knows.
        if at.position == at.observed or (cap is not None and event_time > cap):
            continue
        splits[split] = replace(at, watermark=later(at.watermark, strategy.with_batch(event_time)))
    return splits


def with_batch_watermark(
    planned: SourceState, before: SourceState, splits: Mapping[Split, SplitState], idleness: Idleness
) -> SourceState:
    """Return a planned batch with the watermark that its own rows lead to, so that it goes out with them.

    Spark applies a batch's watermark at its end, to the next one: no row of this batch is late for it.

    Args:
        planned: as of ``plan``.
        before: as of the last batch.
        splits: as of ``when_read``.
        idleness: as for ``combined``.

    The splits' own watermarks stay those of the rows before: what the tasks report is folded in one batch later, and
    leads at least as far, unless a row is gone by then. The offset holds the decision, so that a replay is equal.
    """
    if planned.use_processing_time or planned.snapshots.frontiers:
        return planned
    before = replace(before, watermark=planned.watermark)
    caught_up = {
        s: replace(t, returning=None)
        for s, t in planned.splits.items()
        if t.returning is not None and returning_now(s, splits[s], before) is None
    }
    changed = {**planned.splits, **caught_up} if caught_up else planned.splits
    return replace(planned, watermark=combined(before, splits, idleness), splits=changed)


# Time that passes without rows: by a log's system, by the driver's clock, by the group's members elsewhere.
#
# A batch for the time alone is made at most once a ``watermark_interval``, and only after a rest.


def at_rest(
    splits: Mapping[Split, SplitState], sent: Millis | None, observation: Observation, policy: PlanPolicy
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read for which their own system's clock tells that time has passed.

    See ``_may_move_by_itself``.
    """
    if not _may_move_by_itself(sent, observation, policy.watermark_interval):
        return {}
    beyond, cap = _due(sent, policy.watermark_interval), policy.future_cap(observation.now)
    return by_clock(splits, observation, policy.strategy.at_rest, cap, beyond)


def _may_move_by_itself(sent: Millis | None, observation: Observation, interval: int) -> bool:
    """Return whether the watermark may go on without rows: the first at once, any other after a rest."""
    return sent is None or observation.logs.ends_are_final or _has_rested(observation, interval)


def _due(sent: Millis | None, interval: int) -> Millis:
    """Return beyond what a watermark has to come for a batch of its own."""
    return MIN if sent is None else saturating_add(sent, interval)


def due_now(sent: Millis | None, rest: Millis | None, interval: int) -> Millis:
    """Return beyond what a watermark has to come for a batch of its own now; the end of time without a rest."""
    return _due(sent, interval) if sent is None or _is_long_enough(rest, interval) else MAX


def by_clock(
    splits: Mapping[Split, SplitState],
    observation: Observation,
    watermark_at: Callable[[Millis], Millis | None],
    cap: Millis | None,
    beyond: Millis,
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read that a clock advances further than ``beyond``.

    ``watermark_at`` is ``at_rest`` of the strategy, or the like; ``cap`` is the latest event time that counts.
    """
    logs = observation.logs
    moved: dict[Split, SplitState] = {}
    for split, reached in logs.times.reached.items():
        at = splits.get(split)
        if at is None or not at.observed == at.position == logs.ends.get(split):
            continue
        # Rows behind the end, in an open transaction, may be of any time.
        if split in observation.snapshots.waiting or split in logs.uncommitted:
            continue
        watermark = watermark_at(reached if cap is None else min(reached, cap))
        if watermark is not None and watermark > beyond and (at.watermark is None or watermark > at.watermark):
            moved[split] = replace(at, watermark=watermark)
    return moved


def clock_of(before: SourceState, now: Millis) -> Millis:
    """Return one millisecond before the clock value the batch's rows carry, so that none of them is late."""
    clock = saturating_add(now, -1)
    return clock if before.watermark is None else max(clock, before.watermark)


def with_others(
    own: Millis | None,
    before: SourceState,
    splits: Mapping[Split, SplitState],
    observation: Observation,
    interval: int,
) -> Millis | None:
    """Return the combined watermark, which goes on with the group's members elsewhere while all splits are idle.

    Or while there is none. A run with an end would have none while they go on. ``splits`` are all that there are, of
    which none is new without its end being told.
    """
    reached = observation.followed
    if observation.logs.ends_are_final or reached is None or not are_idle(splits):
        return own
    if reached <= max(due_now(before.watermark, observation.history.rest, interval), own or MIN):
        return own
    return reached


def are_idle(splits: Mapping[Split, SplitState]) -> bool:
    """Return whether nobody waits for any of a source's splits."""
    return all(t.status is SplitStatus.IDLE for t in splits.values())


def reached_by(others: OtherMembers) -> Millis | None:
    """Return how far a source that follows the members elsewhere may go with them; ``None`` if it may not.

    With the lowest of those that count, and with the highest where all are idle, as of splits: so the order in which
    they turn idle does not matter (FLINK-38454). What they say counts only as long as it is known to be all, and who is
    idle says what its rows have come to, so none goes in a circle. One that is starting has rows and no watermark yet.
    """
    if others.hold or others.ceiling is not None or others.minimum == FIRST:
        return None
    return others.idle if others.minimum is None else others.minimum


def tick_is_due(state: SourceState, observation: Observation, interval: int, *, has_rows: bool) -> bool:
    """Return whether a processing-time watermark may go out: with rows, else after an ``interval``."""
    if has_rows or state.watermark is None:
        return True
    late = observation.now - state.watermark > interval
    return late and not observation.logs.ends_are_final and _has_rested(observation, interval)


def _has_rested(observation: Observation, interval: int) -> bool:
    """Return whether a batch without rows may be made for the time alone."""
    return _is_long_enough(observation.history.rest, interval)


def _is_long_enough(rest: Millis | None, interval: int) -> bool:
    return rest is not None and rest >= interval


# The end of a stream that has one: its last watermark is the end of time, so that all that waits for time is let go.
#
# Two batches without rows tell it. After the first one Spark may be killed before it applies what that batch said;
# the second one begins with it, whatever happened between. Only then is the stream's end recorded.


def is_at_its_end(planned: Mapping[Split, SplitState], logs: ObservedLogs) -> bool:
    """Return whether a batch that ends with these splits is the first one after a stream's last rows.

    Args:
        planned: the splits as the batch leaves them; it reads nothing.
        logs: as they were found for it.
    """
    if not logs.ends_are_final or not logs.all_found:
        return False
    # What an open transaction holds is read by a later run.
    if logs.uncommitted:
        return False
    return all(s in planned and planned[s].position >= end for s, end in logs.ends.items())


def has_said_the_last(state: SourceState) -> bool:
    """Return whether a stream's last watermark has gone out: nothing is read any more, whatever has come since."""
    return state.watermark == MAX


def come_since(state: SourceState, logs: ObservedLogs) -> list[SplitRange]:
    """Return what the logs hold behind a state, in split order."""
    starts = {s: state.splits[s].position if s in state.splits else logs.added.get(s, 0) for s in logs.ends}
    return [SplitRange(s, start, logs.ends[s]) for s, start in sorted(starts.items()) if start < logs.ends[s]]


def closed(state: SourceState, *, announce: bool) -> SourceState:
    """Return the state of the second batch that tells the end of time, and of all plans after it.

    ``announce``: this process has not told it.
    """
    splits = {s: replace(t, observed=t.position) for s, t in state.splits.items()}
    return replace(state, splits=splits, ended=True, run=state.run + announce)


# Splits that a plan takes for read to their end, though there may be rows that nobody may read yet.
#
# Only the plan shows which ones: they are asked for rows of open transactions before it goes out, and if there are
# any it is made again with what they answered (``ObservedLogs.uncommitted``).


def passed_over(before: SourceState, planned: SourceState, logs: ObservedLogs) -> Mapping[Split, int]:
    """Return the splits whose rows in open transactions a planned batch would pass over, with their ends.

    Those are idle ones if they turn idle now or the watermark goes on, whatever moves it; those that the clock takes
    on; and at the end of the stream all.
    """
    if planned.use_processing_time or before.watermark == MAX:
        return {}
    moves, is_last = planned.watermark != before.watermark, planned.watermark == MAX

    def is_passed(split: Split, at: SplitState) -> bool:
        was = before.splits.get(split)
        if at.status is SplitStatus.IDLE and (moves or was is None or was.status is not SplitStatus.IDLE):
            return True
        by_clock = split in logs.times.reached and (was is None or was.watermark != at.watermark)
        return is_last or by_clock

    # One may be idle although it has rows, which have no event time.
    idle = {s for s, t in planned.splits.items() if t.status is SplitStatus.IDLE}
    at_their_end = {
        s: t
        for s, t in planned.splits.items()
        if t.position == logs.ends.get(s) and (t.observed == t.position or s in idle)
    }
    return {s: t.position for s, t in at_their_end.items() if s not in logs.uncommitted and is_passed(s, t)}
