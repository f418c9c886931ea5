"""Splits that a plan takes for read to their end, though there may be rows that nobody may read yet.

Only the plan shows which ones: they are asked for rows of open transactions before it goes out, and if there are any it
is made again with what they answered (``ObservedLogs.uncommitted``).
"""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.eventtime.watermark import MAX
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus


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
