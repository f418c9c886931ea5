"""Look-ahead: which rows are in the logs behind a planned batch.

The tracking subscription of Streaming Systems: a second reader is ahead of the first, and reads event times only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SplitState
from watermark_source.planning.watermark import Millis


class Unread(NamedTuple):
    """The rows of one split behind a planned range, as far as they were read ahead."""

    until: int
    """First position that was not read ahead."""
    lowest: Millis | None
    """Lowest event time of the rows that are still unread after the batch, without rows that are late by now; ``None``
    if there are none."""
    highest: Millis | None
    """Highest event time that was seen, rows of the planned range included where they were read ahead."""
    is_readable: bool = True
    """False while rows behind its range cannot be read: their event times are not known."""


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
        """Return which rows follow planned ranges, as far as the band reaches and time allows.

        Args:
            planned: the range of each split, which may be empty.
            ends: of the logs: nothing behind them is read.
            late_at: the watermark that went out: rows at or before it are late in any case.
            future_cap: later event times do not count for the highest one.
        """
        ...


def unread_behind(
    ahead: RowsAhead,
    planned: Mapping[Split, SplitState],
    late_at: Millis | None,
    logs: ObservedLogs,
    future_cap: Millis | None,
) -> Mapping[Split, Unread]:
    """Return the unread rows behind the splits of a plan, without splits whose end is not known at present."""
    known = ((s, end) for s, end in logs.ends.items() if s in planned and s not in logs.stale)
    ends = {s: end for s, end in known if end > planned[s].observed}
    ranges = {s: SplitRange(s, planned[s].observed, planned[s].position) for s in ends}
    return ahead.unread(ranges, ends, late_at=late_at, future_cap=future_cap) if ranges else {}
