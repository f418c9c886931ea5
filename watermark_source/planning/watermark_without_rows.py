"""Time that passes without rows: by a log's system, by the driver's clock, by the group's members elsewhere.

A batch for the time alone is made at most once a ``watermark_interval``, and only after a rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from watermark_source.alignment.group import FIRST
from watermark_source.alignment.other_members import OtherMembers
from watermark_source.eventtime.watermark import MAX, MIN, Millis, saturating_add
from watermark_source.eventtime.watermark_generators import candidate
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import future_cap
from watermark_source.planning.state import SourceState, SplitState, SplitStatus

CLOCKS_DIFFER: Final = 60_000
"""Milliseconds by which a watermark may be later than the driver's clock because two clocks differ."""


def at_rest(
    splits: Mapping[Split, SplitState], sent: Millis | None, observation: Observation, strategy: WatermarkStrategy
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read for which their own system's clock tells that time has passed.

    See ``_may_move_by_itself``.
    """
    if strategy.use_processing_time or not _may_move_by_itself(sent, observation, strategy.watermark_interval):
        return {}
    return by_clock(splits, observation, strategy, _due(sent, strategy.watermark_interval))


def _may_move_by_itself(sent: Millis | None, observation: Observation, interval: int) -> bool:
    """Return whether the watermark may go on without rows: the first at once, any other after a rest."""
    return sent is None or observation.logs.ends_are_final or _has_rested(observation, interval)


def _due(sent: Millis | None, interval: int) -> Millis:
    """Return beyond what a watermark has to come for a batch of its own."""
    return MIN if sent is None else saturating_add(sent, interval)


def due_now(sent: Millis | None, rest: Millis | None, interval: int) -> Millis:
    """Return beyond what a watermark has to come for a batch of its own now; the end of time without a rest."""
    return _due(sent, interval) if sent is None or _is_long_enough(rest, interval) else MAX


def clock_due_now(sent: Millis | None, rest: Millis | None, strategy: WatermarkStrategy) -> Millis:
    """Return the same of a clock that the watermark is behind."""
    return saturating_add(due_now(sent, rest, strategy.watermark_interval), (strategy.watermark_lag or 0) + 1)


def by_clock(
    splits: Mapping[Split, SplitState], observation: Observation, strategy: WatermarkStrategy, beyond: Millis
) -> dict[Split, SplitState]:
    """Return the splits with nothing left to read whose watermark the clock takes that far."""
    logs, cap = observation.logs, future_cap(observation.now, strategy)
    lag = strategy.out_of_orderness if strategy.watermark_lag is None else strategy.watermark_lag
    moved: dict[Split, SplitState] = {}
    for split, reached in logs.times.reached.items():
        at = splits.get(split)
        if at is None or not at.observed == at.position == logs.ends.get(split):
            continue
        # Rows behind the end, in an open transaction, may be of any time.
        if split in observation.snapshots.waiting or split in logs.uncommitted:
            continue
        watermark = candidate(reached if cap is None else min(reached, cap), lag)
        if watermark > beyond and (at.watermark is None or watermark > at.watermark):
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
