"""A reader of rows in memory, as the driver reads event times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import UnreachableError
from watermark_source.planning.split import Split, SplitRange

TIMES = pa.timestamp("us", tz="UTC")


class RowsInMemory:
    """One row a position but where there is a gap; notes what it is asked for."""

    def __init__(self, times: dict[Split, list[int | None]], gaps: dict[Split, set[int]] | None = None) -> None:
        self.times, self.gaps = times, gaps or {}
        self.asked: list[SplitRange] = []
        self.reads = 0
        self.broken = False
        self.unreadable: set[Split] = set()
        self.seconds_a_row = 0.0

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        self.asked += ranges
        self.reads += 1
        if self.broken or self.unreadable & {each.split for each in ranges}:
            raise UnreachableError("gone")
        for split, start, end in ranges:
            time.sleep(self.seconds_a_row * (end - start))
            gone = self.gaps.get(split, set())
            found = [self.times[split][n] for n in range(start, end) if n not in gone]
            for first in range(0, len(found), 700):
                micros = [None if t is None else t * 1_000 for t in found[first : first + 700]]
                array = pa.array(micros, pa.int64()).fill_null(2**63 - 1).cast(TIMES)
                yield ReadBatch(split, len(array), (), array)
