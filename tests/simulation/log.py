"""A simulated partitioned log: splits with rows in position order, gaps between them, retention, deletion."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from typing import NamedTuple

from watermark_source.planning.split import IndexEntry, NewestTime, Split, SplitRange, TimeIndex
from watermark_source.planning.watermark import Millis


class Row(NamedTuple):
    position: int
    event_time: int

    @property
    def mark(self) -> int | None:
        """The watermark that it carries: each third row one that may be wrong."""
        return None if self.position % 3 else self.event_time - 300


class SplitLog:
    """One split. Positions without a row (compacted, control records, rows of aborted transactions) are gaps."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.earliest = 0
        self.end = 0
        self.open_since: int | None = None
        """Where the transaction that is open begins: readers come no further (the last stable offset of Kafka)."""
        self._in_transaction: set[Row] = set()
        self._peaks: list[int] = []

    @property
    def peaks(self) -> list[int]:
        """For each row the highest event time up to it: what look-ups by time need, of the rows as they are."""
        highest = self._peaks[-1] if self._peaks else -(2**63)
        for row in self.rows[len(self._peaks) :]:
            highest = max(highest, row.event_time)
            self._peaks.append(highest)
        return self._peaks

    @property
    def readable_end(self) -> int:
        # Retention takes an end that lies before it along, as brokers have it.
        return self.end if self.open_since is None else max(self.open_since, self.earliest)

    def open(self, event_times: Iterable[int]) -> None:
        """Append rows of a transaction, which begins with the first of them."""
        if self.open_since is None:
            self.open_since = self.end
        before = self.end
        self.append(event_times)
        self._in_transaction |= set(self.read(before, self.end))

    def close(self, *, commits: bool) -> None:
        """End the transaction with a control record, whose position has no row."""
        if self.open_since is None:
            return
        if not commits:
            self.rows = [row for row in self.rows if row not in self._in_transaction]
            self._peaks = []
        self.open_since = None
        self._in_transaction = set()
        self.end += 1

    def append(self, event_times: Iterable[int], *, gap: int = 0) -> None:
        """Append rows; each leaves ``gap`` positions without a row behind it."""
        for event_time in event_times:
            self.rows.append(Row(self.end, event_time))
            self.end += 1 + gap

    def expire(self, before: int) -> None:
        """Delete what is before a position, as retention does."""
        self.earliest = max(self.earliest, min(before, self.end))
        self.rows = self.rows[bisect_left(self.rows, Row(self.earliest, -(2**63))) :]
        self._peaks = []

    def read(self, start: int, end: int) -> list[Row]:
        first, last = (bisect_left(self.rows, Row(p, -(2**63))) for p in (start, end))
        return self.rows[first:last]


class SimulatedLog(TimeIndex):
    """All splits, and the look-ups a broker offers."""

    def __init__(self, numbers: int = 0, *, log: str = "log") -> None:
        self.splits: dict[Split, SplitLog] = {Split(log, n): SplitLog() for n in range(numbers)}
        self.asked: list[int] = []
        """How many splits each look-up was about."""

    def ends(self, splits: Set[Split] | None = None) -> dict[Split, int]:
        return {s: t.readable_end for s, t in self.splits.items() if splits is None or s in splits}

    def earliest(self) -> dict[Split, int]:
        return {s: t.earliest for s, t in self.splits.items()}

    def rows(self, wanted: SplitRange) -> list[Row]:
        return self.splits[wanted.split].read(wanted.start, wanted.end)

    def all_rows(self) -> list[tuple[Split, Row]]:
        return list(chain.from_iterable(((s, row) for row in t.rows) for s, t in self.splits.items()))

    def newest(self, splits: Iterable[Split]) -> dict[Split, NewestTime | None]:
        """As ``ListOffsets`` with MAX_TIMESTAMP answers (KIP-734): nothing where that row cannot be read yet."""
        found: dict[Split, NewestTime | None] = {}
        for split in (s for s in splits if s in self.splits):
            log = self.splits[split]
            newest = log.rows[bisect_left(log.peaks, log.peaks[-1])] if log.rows else None
            hidden = newest is None or newest.position >= log.readable_end
            found[split] = None if hidden or newest is None else NewestTime(Millis(newest.event_time), newest.position)
        return found

    def uncommitted(self) -> Set[Split]:
        """Return the splits with rows that cannot be read yet."""
        return {s for s, t in self.splits.items() if t.readable_end < t.end}

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """As ``ListOffsets`` with a timestamp answers: the first such row of the *whole* log."""
        self.asked.append(len(limits))
        found: dict[Split, IndexEntry | None] = dict.fromkeys(limits)
        for split, limit in limits.items():
            log = self.splits[split]
            later = bisect_right(log.peaks, limit)
            if later < len(log.rows) and log.rows[later].position < log.readable_end:
                position, event_time = log.rows[later]
                found[split] = IndexEntry(position, Millis(event_time))
        return found
