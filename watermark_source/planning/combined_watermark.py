"""The combined watermark of a source: before a batch is read, and what it will be when it has been."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.eventtime.lowest_of_active import lowest_of_active
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.planning.learned_bound import in_force
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import Idleness, WatermarkStrategy
from watermark_source.planning.returning_splits import is_left_out, returning_now
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermark import future_cap, watermark_of
from watermark_source.planning.state import SourceState, SplitState, SplitStatus


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
    planned: Mapping[Split, SplitState], observation: Observation, strategy: WatermarkStrategy
) -> Mapping[Split, SplitState]:
    """Return planned splits with the watermarks they will have when they are read, as far as their system's time tells.

    It told the time just before the end: whoever is read to that end has no row left that is earlier. The combined
    watermark may go out with the batch, since Spark applies it to the next one; the splits' own stay those of the rows
    before, as with ``with_batch_watermark``. The driver's clock (``watermark_lag``) is for splits at rest alone.
    """
    if strategy.watermark_lag is not None:
        return planned
    logs, cap = observation.logs, future_cap(observation.now, strategy)
    splits = dict(planned)
    for split, reached in logs.times.reached.items():
        at = splits.get(split)
        if at is None or not at.observed < at.position == logs.ends.get(split):
            continue
        if split in observation.snapshots.waiting or split in logs.uncommitted:
            continue
        watermark = watermark_of(reached if cap is None else min(reached, cap), strategy)
        splits[split] = replace(at, watermark=watermark if at.watermark is None else max(watermark, at.watermark))
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
    cap, strategy = planned.future_cap, in_force(strategy, planned.learned)
    splits = dict(planned.splits)
    for split, event_time in reached.items():
        at = splits[split]
        # Beyond the cap is a row that moves nothing; which one is the highest that does, nobody knows.
        if at.position == at.observed or (cap is not None and event_time > cap):
            continue
        watermark = watermark_of(event_time, strategy)
        splits[split] = replace(at, watermark=watermark if at.watermark is None else max(watermark, at.watermark))
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
