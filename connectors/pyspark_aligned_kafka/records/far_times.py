"""Event times that are decades from their records' timestamps: their format is probably another than the one read."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.event_time_choice import FORMATS_OF_NUMBERS, OPTION, EventTimeChoice
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.record_fields import Located
from watermark_source.arrow_columns import integers, is_valid
from watermark_source.planning.watermark import watermark_text
from watermark_source.spark_process import ABOUT

_log = logging.getLogger(__name__)
_DECADES = 20 * 366 * 86_400_000_000
"""Microseconds."""
_FORMATS = (
    'If their format is another, name it, as in .option("eventTimeFormat", "days"); for numbers there are '
    f"{FORMATS_OF_NUMBERS}"
)
_NO_FORMAT = f"Check what writes them, or name another place with {OPTION}"


class FarTimes:
    """Compares the first block of records that have an event time and a timestamp, and logs that all are far apart."""

    __slots__ = ("_choice", "is_done")

    def __init__(self, choice: EventTimeChoice) -> None:
        self._choice = choice
        self.is_done = False

    def look(self, located: Located, micros: Longs, wrong: Bytes, timestamps: pa.Array) -> None:
        """Look at a block; ``wrong`` is not 0 where ``micros`` is no event time."""
        stamps = integers(timestamps)
        (rows,) = np.nonzero((wrong == 0) & is_valid(timestamps) & (stamps > 0))
        self.is_done = len(rows) > 0
        if not self.is_done or np.abs(micros[rows] - stamps[rows]).min() < _DECADES:
            return
        row, read_as = rows[0], self._choice.read_as
        _log.warning(
            "%s: the event time at %s%s is %s, decades from the record's timestamp, %s, as are all of the records read "
            "with it. %s",
            place(located.split, int(located.offsets[row])), self._choice.place, read_as and f"{read_as},",
            watermark_text(int(micros[row]) // 1_000), watermark_text(int(stamps[row]) // 1_000),
            _FORMATS if read_as else _NO_FORMAT,
            extra={ABOUT: "the distance of event times from timestamps"},
        )  # fmt: skip
