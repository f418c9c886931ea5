"""How many rows this run of a query has read, and of how many the event time does not count."""

from __future__ import annotations

from dataclasses import dataclass, field

from watermark_source.monitor.row_totals import NO_ROWS, RowTotals
from watermark_source.planning.range_report import Coverage
from watermark_source.planning.split import Split


@dataclass(slots=True)
class RowCounts:
    """Of one run."""

    totals: RowTotals = NO_ROWS
    by_split: dict[Split, RowTotals] = field(default_factory=dict)
    """Of splits that rows were read of."""

    def add(self, split: Split, seen: Coverage) -> None:
        """Count what was seen in a range of a split."""
        if not seen.rows:
            return
        rows = RowTotals(read=seen.rows, future=seen.future_rows, undated=seen.undated_rows, late=seen.late)
        self.totals += rows
        self.by_split[split] = self.by_split.get(split, NO_ROWS) + rows
