"""How many rows this run of a query has read, and of how many the event time does not count."""

from __future__ import annotations

from dataclasses import dataclass, field

from watermark_source.planning.late_rows import NONE_LATE, LateRows
from watermark_source.planning.report import Coverage
from watermark_source.planning.split import Split


@dataclass(slots=True)
class RowCounts:
    """Of one run."""

    rows: int = 0
    future: int = 0
    undated: int = 0
    late: LateRows = NONE_LATE
    late_by_split: dict[Split, int] = field(default_factory=dict)
    """Of splits that had some."""

    def add(self, split: Split, seen: Coverage) -> None:
        """Count what was seen in a range of a split."""
        self.rows += seen.rows
        self.future += seen.future_rows
        self.undated += seen.undated_rows
        if late := seen.late.rows:
            self.late += seen.late
            self.late_by_split[split] = self.late_by_split.get(split, 0) + late
