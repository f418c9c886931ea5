"""Event times in a header of records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, InHeader
from pyspark_aligned_kafka.records.header_scan import HeaderScan
from pyspark_aligned_kafka.records.record_batches import Longs
from pyspark_aligned_kafka.records.time_finder import Found, Records, shown
from pyspark_aligned_kafka.records.time_texts import MomentReader


class HeaderTimes:
    """``TimeFinder`` of a header."""

    def __init__(self, choice: EventTimeChoice, where: InHeader) -> None:
        self._scan, self._moments = HeaderScan(where.name), MomentReader(choice.written)
        self._shows = choice.shows_records
        self._sizes = np.empty(0, np.int64)

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``."""
        starts, self._sizes = self._places(records)
        return Found(*self._moments.read(records.data, starts, self._sizes))

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """See ``TimeFinder``."""
        return self._sizes < 0

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        starts, sizes = self._places(records)
        if sizes[row] < 0:
            return "no such header"
        return shown(records.data, int(starts[row]), int(sizes[row]), with_content=self._shows)

    def _places(self, records: Records) -> tuple[Longs, Longs]:
        return self._scan.find(records.split, records.data, records.located, records.offsets)
