"""A simulated reader that is ahead: it looks at a band of rows behind a planned range, or at only some of it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tests.simulation.log import SimulatedLog
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import Unread
from watermark_source.planning.watermark import Millis


@dataclass
class SimulatedLookAhead:
    """``RowsAhead`` over a simulated log, exact."""

    log: SimulatedLog
    rows: int

    def unread(
        self,
        planned: Mapping[Split, SplitRange],
        ends: Mapping[Split, int],
        *,
        late_at: Millis | None,
        future_cap: Millis | None,
    ) -> Mapping[Split, Unread]:
        found: dict[Split, Unread] = {}
        for split, batch in planned.items():
            until = min(batch.end + self.rows, ends[split])
            behind = [r.event_time for r in self.log.rows(SplitRange(split, batch.end, until))]
            seen = [*behind, *(r.event_time for r in self.log.rows(batch))]
            counting = [t for t in seen if future_cap is None or t <= future_cap]
            low = min((t for t in behind if late_at is None or t > late_at), default=None)
            high = max(counting, default=None)
            found[split] = Unread(until, None if low is None else Millis(low), None if high is None else Millis(high))
        return found

    def forget(self, splits: Set[Split]) -> None:
        """Nothing is kept."""
