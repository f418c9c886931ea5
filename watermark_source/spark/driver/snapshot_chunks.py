"""What comes next of snapshots, as an observation: chunks of those under way, logs that are new, logs that are gone."""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import replace

from watermark_source.errors import listed
from watermark_source.planning.observation import ObservedLogs, ObservedSnapshots
from watermark_source.planning.snapshot_ranges import completed, snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.snapshots import Snapshots

_log = logging.getLogger(__name__)


def with_chunks(
    logs: ObservedLogs,
    state: SourceState,
    snapshots: Snapshots,
    there: Set[str],
    *,
    to_end: bool,
    first: bool,
    may_wait: bool,
) -> tuple[ObservedLogs, ObservedSnapshots]:
    """Return what comes next of snapshots, and the logs with it; after the last one, perhaps, nothing at all.

    Args:
        logs: the other logs.
        state: of a source that takes snapshots.
        snapshots: asked for chunks.
        there: what there was to take snapshots of before the ends in ``logs`` were asked for.
        to_end: plan all that is left.
        first: this is the first plan of a process, whose user may have chosen other logs than before.
        may_wait: the state's positions are those that the snapshots so far are as of.
    """
    lower = unfinished(state.snapshots)
    if not lower and snapshots.nothing_follows:
        ends = {s: t.position for s, t in state.splits.items() if s in logs.ends}
        return replace(logs, ends=ends, times=replace(logs.times, reached={})), ObservedSnapshots()
    known = state.snapshots.frontiers.keys() | (state.snapshots.complete or frozenset())
    found, missing = there - known, lower.keys() - there
    dropped = snapshots.gone(missing) if missing else missing
    waiting: Set[Split] = frozenset()
    if snapshots.one_moment and may_wait and state.watermark is None and lower.keys() - dropped:
        # What is found now was perhaps not there at that moment.
        found, waiting = frozenset(), logs.ends.keys() | logs.unknown
    # First those under way: what is found may wait for the log's end, and would keep the turn until then.
    lower = {log: key for log, key in {**lower, **dict.fromkeys(sorted(found))}.items() if log not in dropped}
    if dropped:
        _log.warning("%s: gone before the snapshot was read to its end; nothing more comes of it", listed(dropped))
    if first:
        # If one is chosen again later, what came in between is lacking: its snapshot begins anew.
        dropped |= {log for log in completed(state.snapshots) if not snapshots.is_wanted(log)}
    if not lower:
        return logs, ObservedSnapshots(dropped=dropped, waiting=waiting)
    chunks = snapshots.next_chunks(lower, to_end=to_end)
    positions = {s: state.splits[s].position if s in state.splits else 0 for s in map(snapshot_split, lower)}
    ends = {s: position + len(chunks.get(s.log, ())) for s, position in positions.items()}
    upcoming = ObservedSnapshots(chunks=chunks, found=found, dropped=dropped, waiting=waiting)
    return replace(logs, ends={**logs.ends, **ends}), upcoming
