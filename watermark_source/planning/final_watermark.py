"""The end of a stream that has one: its last watermark is the end of time, so that all that waits for time is let go.

Two batches without rows tell it. After the first one Spark may be killed before it applies what that batch said; the
second one begins with it, whatever happened between. Only then is the stream's end recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watermark_source.eventtime.watermark import MAX
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState


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
