"""The reach of a source: the watermark that it surely has once it has read its next batch, as far as it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.planning.announced_group import AnnouncedPositions
from watermark_source.planning.backlog import backlog_of
from watermark_source.planning.budget import budgeted_ends, surely_within
from watermark_source.planning.group import NO_OTHERS
from watermark_source.planning.group_limit import counting
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import IndexEntry, RowIndex, Split, TimeIndex
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import TasksObserve
from watermark_source.planning.watermark import MAX, Millis


def reach_after(
    planned: Mapping[Split, SplitState],
    reached: Mapping[Split, Millis],
    observation: Observation,
    policy: PlanPolicy,
    index: TimeIndex | None,
    *,
    rows: RowIndex | None,
    announced: AnnouncedPositions | None = None,
) -> Millis | None:
    """Return the watermark that the source surely has after the batch that follows a planned one.

    It follows from rows that are in the logs already, which nothing else reads: the time index shows them, and the row
    limit how many of them a batch takes. ``None`` where that is not known: the source counts with what it has planned.
    Raises ``SourceError`` where a system does not answer at once.

    Args:
        planned: all splits, as the planned batch leaves them.
        reached: watermarks of splits at their planned end, as far as the time index shows them.
        observation: what the plan was made from.
        policy: with the drift in force.
        index: event-time look-ups.
        rows: look-ups of rows in a log whose positions are not rows.
        announced: from the planned positions on, where writers announce the watermark.
    """
    logs, snapshots, strategy = observation.logs, observation.snapshots, policy.strategy
    # Rows may wait for more to come, a bound that is learned may grow, and what is read ahead is not in the index.
    waits = policy.minimum_rows is not None or snapshots.chunks or snapshots.waiting or observation.limits.one_batch
    is_learned = strategy.tasks_observe is not TasksObserve.HIGHEST or strategy.rows_ahead is not None
    most = observation.limits.max_rows
    # Where positions are not rows, only reading ahead would show how far the row limit goes.
    uncounted = rows is not None and most not in (None, MAX)
    is_unsure = uncounted or waits or observation.others.ceiling is not None
    if is_unsure or announced is not None or index is None or is_learned:
        return None if is_unsure or announced is None else announced.reach(most)
    index = index.at_a_glance
    active, after = counting(planned, reached, logs)
    if not active or after.keys() != active.keys() or active.keys() & (logs.unknown | logs.stale | logs.uncommitted):
        return None
    read = {s: t.position for s, t in active.items()}
    left = {s for s, at in read.items() if logs.ends.get(s, 0) > at}
    passed = index.first_after({s: strategy.event_time_of(after[s]) for s in left})
    beyond = {s: e for s, e in passed.items() if e is not None and e.position < read[s]}
    if beyond and not _count(beyond, read, index, policy.future_cap(observation.now)):
        return None
    after |= {s: strategy.watermark_of(e.event_time) for s, e in beyond.items()}
    splits = {s: SplitState(at, at, after[s]) for s, at in read.items()}
    backlog = backlog_of(splits, replace(observation, others=NO_OTHERS), policy, index)
    shown = {
        s: strategy.watermark_of(newest) for s, newest in backlog.newest.items() if not backlog.is_of_future(newest)
    }
    reach = min(max(w, shown.get(s, w)) for s, w in after.items())
    if most is None or not backlog.ends:
        return reach
    sure = surely_within(most, len(backlog.ends))
    if not sure or any(t.returning is not None for t in active.values()):
        # Half of the row limit at most is for splits that come back behind the others.
        return None
    cut = budgeted_ends(backlog, backlog.ends, sure).reached
    at_cut = {s: max(after[s], strategy.watermark_of(at)) for s, at in cut.items()}
    return min([reach, *at_cut.values()])


def _count(
    beyond: Mapping[Split, IndexEntry], read: Mapping[Split, int], index: TimeIndex, future_cap: Millis | None
) -> bool:
    """Return whether the entries are rows that will move the watermarks, the last ones that splits have read.

    An entry beyond a gap in time may be none, as a control record, and may have rows of the past behind it: unless the
    index shows rows alone, and a later one follows at once, it is known only when it has been seen.
    """
    if not index.shows_rows_alone:
        return False
    following = index.first_after({s: e.event_time for s, e in beyond.items()})
    return all(
        e.after == read[s]
        and (then := following[s]) is not None
        and then.position == read[s]
        and (future_cap is None or e.event_time < future_cap)
        for s, e in beyond.items()
    )
