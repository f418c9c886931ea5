"""Event times of located records that are not their timestamps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.errors.corrupt_batches import Fault, fault_error
from pyspark_aligned_kafka.errors.partition_names import place
from pyspark_aligned_kafka.records.columns import TIMESTAMP
from pyspark_aligned_kafka.records.event_time_choice import (
    OPTION,
    ByFunction,
    EventTimeChoice,
    InHeader,
    InJson,
    WithoutTime,
)
from pyspark_aligned_kafka.records.function_times import FunctionTimes
from pyspark_aligned_kafka.records.header_times import HeaderTimes
from pyspark_aligned_kafka.records.json_times import JsonTimes
from pyspark_aligned_kafka.records.time_finder import Records, TimeFinder
from pyspark_aligned_kafka.records.time_format import Format
from pyspark_aligned_kafka.records.time_texts import may_be_date
from watermark_source.arrow_columns import bitmap, integers, is_valid
from watermark_source.errors import EventTimeError

_NO_TIME = np.int64(2**63 - 1)
"""In place of what is null: what looks at the numbers alone sees no row that is late."""


class EventTimes:
    """Finds event times as the user chose. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_choice", "_finder")

    def __init__(self, choice: EventTimeChoice) -> None:
        self._choice = choice
        self._finder = time_finder(choice)

    def of(self, records: Records) -> tuple[pa.Array, int]:
        """Return the event time of each record, null where it has none, and in how many it was not found.

        Raises:
            EventTimeError: in some it was not found, and the user chose ``fail``; or the function failed.
            UnsupportedFormatError: the user chose ``timestamp``, and that of one does not fit microseconds.
        """
        micros, wrong, missing = self._finder.find(records)
        if not missing:
            return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)]), 0
        if self._choice.without is WithoutTime.FAIL:
            row = int(np.argmax(wrong))
            seen = self._finder.seen(records, row)
            if self._choice.written is Format.AUTO and may_be_date(seen.strip("'")):
                seen += ", which may be a date or a number (eventTimeFormat=seconds, for example, takes it for one)"
            raise EventTimeError(
                f"{place(records.split, int(records.offsets[row]))}: no event time at {self._choice.place} ({OPTION}, "
                f"read as {self._choice.written.value}); seen {seen}. Correct {OPTION} or "
                "eventTimeFormat; or set eventTimeErrors to timestamp, and such a record goes by its own timestamp, or "
                "to null, and it moves no watermark"
            )
        if self._choice.without is WithoutTime.TIMESTAMP:
            neither = wrong.astype(bool) & ~is_valid(records.timestamps)
            if neither.any():
                raise fault_error(Fault.TIMESTAMP, records.split, int(records.offsets[int(np.argmax(neither))]))
            np.copyto(micros, integers(records.timestamps), where=wrong.astype(bool))
            return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)]), missing
        micros[wrong.astype(bool)] = _NO_TIME
        present = bitmap(wrong == 0)
        return pa.Array.from_buffers(TIMESTAMP, len(micros), [present, pa.py_buffer(micros)], missing), missing


def time_finder(choice: EventTimeChoice) -> TimeFinder:
    """Return what looks at the place of a choice."""
    if isinstance(choice.place, InJson):
        return JsonTimes(choice, choice.place)
    if isinstance(choice.place, InHeader):
        return HeaderTimes(choice, choice.place)
    assert isinstance(choice.place, ByFunction)
    return FunctionTimes(choice.place, shows_records=choice.shows_records)
