"""Watermarks that located records carry, for the strategy ``punctuated``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.errors.partition_names import place
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, MarkChoice
from pyspark_aligned_kafka.records.event_times import time_finder
from pyspark_aligned_kafka.records.time_finder import Records
from watermark_source.errors import EventTimeError


class WatermarkMarks:
    """Finds them where the user says. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_choice", "_finder")

    def __init__(self, choice: MarkChoice) -> None:
        self._choice = choice
        self._finder = None
        if choice.place is not None:
            as_time = EventTimeChoice(choice.place, choice.written, shows_records=choice.shows_records)
            self._finder = time_finder(as_time)

    def of(self, records: Records) -> pa.Array:
        """Return the watermarks, microseconds as ``int64``, of those records that carry one.

        Raises:
            EventTimeError: in the place of one is something that is no moment; or the function failed.
        """
        if self._finder is None:
            return records.timestamps.view(pa.int64())
        micros, wrong, missing = self._finder.find(records)
        if not missing:
            return pa.array(micros)
        is_wrong = wrong.astype(bool)
        broken = is_wrong & ~self._finder.absent(records)
        if broken.any():
            row = int(np.argmax(broken))
            raise EventTimeError(
                f"{place(records.split, int(records.offsets[row]))}: no watermark at {self._choice.place} "
                f"(watermarkColumn, read as {self._choice.written.value}); seen {self._finder.seen(records, row)}. "
                "Correct watermarkColumn or watermarkFormat; a record that carries no watermark has nothing there, or "
                "JSON's null"
            )
        return pa.array(micros[~is_wrong])
