"""A simulated partitioned log: splits with rows in position order, gaps between them, retention, deletion."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from typing import NamedTuple

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.time_index import IndexEntry


class Row(NamedTuple):
    position: int
    event_time: int


class SplitLog:
    """One split. Positions without a row (compacted, control records) are gaps."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.earliest = 0
        self.end = 0

    def append(self, event_times: Iterable[int], *, gap: int = 0) -> None:
        """Append rows; each leaves ``gap`` positions without a row behind it."""
        for event_time in event_times:
            self.rows.append(Row(self.end, event_time))
            self.end += 1 + gap

    def expire(self, before: int) -> None:
        """Delete what is before a position, as retention does."""
        self.earliest = max(self.earliest, min(before, self.end))
        self.rows = self.rows[bisect_left(self.rows, Row(self.earliest, -(2**63))) :]

    def read(self, start: int, end: int) -> list[Row]:
        first, last = (bisect_left(self.rows, Row(p, -(2**63))) for p in (start, end))
        return self.rows[first:last]


class SimulatedLog:
    """All splits, and the look-ups a broker offers."""

    def __init__(self, numbers: int = 0, *, log: str = "log") -> None:
        self.splits: dict[Split, SplitLog] = {Split(log, n): SplitLog() for n in range(numbers)}
        self.asked: list[int] = []
        """How many splits each look-up was about."""

    def ends(self, splits: Set[Split] | None = None) -> dict[Split, int]:
        return {s: t.end for s, t in self.splits.items() if splits is None or s in splits}

    def earliest(self) -> dict[Split, int]:
        return {s: t.earliest for s, t in self.splits.items()}

    def rows(self, wanted: SplitRange) -> list[Row]:
        return self.splits[wanted.split].read(wanted.start, wanted.end)

    def all_rows(self) -> list[tuple[Split, Row]]:
        return list(chain.from_iterable(((s, row) for row in t.rows) for s, t in self.splits.items()))

    def newest(self, splits: Iterable[Split]) -> dict[Split, Millis | None]:
        """As ``ListOffsets`` with MAX_TIMESTAMP answers (KIP-734)."""
        times = {s: [row.event_time for row in self.splits[s].rows] for s in splits if s in self.splits}
        return {s: Millis(max(t)) if t else None for s, t in times.items()}

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """As ``ListOffsets`` with a timestamp answers: the first such row of the *whole* log."""
        self.asked.append(len(limits))
        found: dict[Split, IndexEntry | None] = dict.fromkeys(limits)
        for split, limit in limits.items():
            row = next((r for r in self.splits[split].rows if r.event_time > limit), None)
            if row is not None:
                found[split] = IndexEntry(row.position, Millis(row.event_time))
        return found
