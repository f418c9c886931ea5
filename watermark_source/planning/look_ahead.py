"""Look-ahead: what is known of rows that are in a log and not read yet, and the watermark that they leave.

The tracking subscription of Streaming Systems: a second reader is ahead of the first, and looks at event times only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import Millis, saturating_add


class Unread(NamedTuple):
    """What is known of one split at the end of a planned range."""

    until: int
    """First position that was not looked at."""
    lowest: Millis | None
    """No row that was looked at, and is not read by then, is earlier, but such as are late by now; ``None`` if there
    is none."""
    highest: Millis | None
    """Highest event time that was seen, rows of the planned range included where they were looked at."""
    is_readable: bool = True
    """False while rows behind its range cannot be read: what they hold is not known."""


class RowsAhead(Protocol):
    """Reads ahead. The planner stays pure: the driver answers."""

    def unread(
        self,
        planned: Mapping[Split, SplitRange],
        ends: Mapping[Split, int],
        *,
        late_at: Millis | None,
        future_cap: Millis | None,
    ) -> Mapping[Split, Unread]:
        """Look at what follows planned ranges, as far as the band goes and time allows.

        Args:
            planned: the range of each split, which may be empty.
            ends: of the logs: nothing is looked for behind them.
            late_at: the watermark that went out: rows at or before it are late, whatever is done.
            future_cap: event times after this count for no highest one.
        """
        ...


def look_ahead(
    ahead: RowsAhead,
    planned: Mapping[Split, SplitState],
    late_at: Millis | None,
    logs: ObservedLogs,
    future_cap: Millis | None,
) -> Mapping[Split, Unread]:
    """Return what is known of the splits of a plan; nothing of those whose ends nobody tells now."""
    told = ((s, end) for s, end in logs.ends.items() if s in planned and s not in logs.stale)
    ends = {s: end for s, end in told if end > planned[s].observed}
    ranges = {s: SplitRange(s, planned[s].observed, planned[s].position) for s in ends}
    return ahead.unread(ranges, ends, late_at=late_at, future_cap=future_cap) if ranges else {}


def left_by(
    planned: Mapping[Split, SplitState],
    unread: Mapping[Split, Unread],
    sent: Millis | None,
    logs: ObservedLogs,
    strategy: WatermarkStrategy,
) -> dict[Split, SplitState]:
    """Return the splits with the watermarks they may have when a planned batch is read.

    One millisecond less than the lowest event time that is known to be unread; of what is not known, behind the band or
    not yet in the log, no row is further behind the highest event time than ``out_of_orderness``. A split whose system
    does not answer, or whose rows ahead cannot be read, leads no further than the watermark that was ``sent``, to none
    before the first: what is unread of it may be what held that.
    """
    splits = dict(planned)
    hidden = {s for s, found in unread.items() if not found.is_readable}
    for split in (logs.unknown | logs.stale | hidden) & planned.keys():
        at = planned[split]
        if at.watermark is not None:
            splits[split] = replace(at, watermark=None if sent is None else min(at.watermark, sent))
    for split, found in unread.items():
        if split in hidden:
            continue
        at = planned[split]
        reached = at.watermark
        if found.highest is not None:
            seen = strategy.watermark_of(found.highest)
            reached = seen if reached is None else max(seen, reached)
        if found.lowest is not None and reached is not None:
            reached = min(reached, saturating_add(found.lowest, -1))
        splits[split] = replace(at, watermark=reached)
    return splits
