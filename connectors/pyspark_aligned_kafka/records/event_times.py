"""Event times of located records that are not their timestamps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.errors.place import place
from pyspark_aligned_kafka.records.batches import Bytes, Longs
from pyspark_aligned_kafka.records.columns import TIMESTAMP
from pyspark_aligned_kafka.records.event_time_choice import (
    OPTION,
    ByFunction,
    EventTimeChoice,
    InHeader,
    InJson,
    WithoutTime,
)
from pyspark_aligned_kafka.records.found_times import Found, Records, TimeFinder
from pyspark_aligned_kafka.records.function_times import FunctionTimes
from pyspark_aligned_kafka.records.header_scan import HeaderScan
from pyspark_aligned_kafka.records.json_scan import JsonScan, Kind
from pyspark_aligned_kafka.records.moments import MomentReader
from pyspark_aligned_kafka.records.rows import KEY_AT, VALUE_AT
from watermark_source.arrow_columns import bitmap, integers
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
        """
        micros, wrong, missing = self._finder.find(records)
        if not missing:
            return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)]), 0
        if self._choice.without is WithoutTime.FAIL:
            row = int(np.argmax(wrong))
            raise EventTimeError(
                f"{place(records.split, int(records.offsets[row]))}: no event time at {self._choice.place} ({OPTION}, "
                f"read as {self._choice.written.value}); seen {self._finder.seen(records, row)}. Correct {OPTION} or "
                "eventTimeFormat; or set eventTimeErrors to timestamp, and such a record goes by its own timestamp, or "
                "to null, and it moves no watermark"
            )
        if self._choice.without is WithoutTime.TIMESTAMP:
            np.copyto(micros, integers(records.timestamps), where=wrong.astype(bool))
            return pa.Array.from_buffers(TIMESTAMP, len(micros), [None, pa.py_buffer(micros)]), missing
        micros[wrong.astype(bool)] = _NO_TIME
        present = bitmap(wrong == 0)
        return pa.Array.from_buffers(TIMESTAMP, len(micros), [present, pa.py_buffer(micros)], missing), missing


def time_finder(choice: EventTimeChoice) -> TimeFinder:
    """Return what looks at the place of a choice."""
    if isinstance(choice.place, InJson):
        return _JsonTimes(choice, choice.place)
    if isinstance(choice.place, InHeader):
        return _HeaderTimes(choice, choice.place)
    assert isinstance(choice.place, ByFunction)
    return FunctionTimes(choice.place)


class _JsonTimes:
    def __init__(self, choice: EventTimeChoice, where: InJson) -> None:
        self._scan, self._moments = JsonScan(where.path), MomentReader(choice.written)
        self._at = KEY_AT if where.field == "key" else VALUE_AT
        self._kinds = self._begins = np.empty(0, np.int64)

    def find(self, records: Records) -> Found:
        kinds, at, sizes = self._scan.find(records.data, *self._places(records))
        self._kinds, self._begins = kinds, at
        # What is neither text nor number has no size.
        sizes[(kinds < Kind.TEXT) | (kinds == Kind.OTHER)] = 0
        return Found(*self._moments.read(records.data, at, sizes, kinds == Kind.ESCAPED))

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        nothing: npt.NDArray[np.bool_] = (self._kinds == Kind.NO_DOCUMENT) | (self._kinds == Kind.NOTHING)
        other = self._kinds == Kind.OTHER
        # No other value of JSON begins so.
        nothing[other] = records.data[self._begins[other]] == ord("n")
        return nothing

    def seen(self, records: Records, row: int) -> str:
        starts, sizes = (places[row : row + 1] for places in self._places(records))
        kinds, at, found = self._scan.find(records.data, starts, sizes)
        kind = Kind(int(kinds[0]))
        if kind is Kind.NO_DOCUMENT:
            return "null in place of a document"
        document = _shown(records.data, int(starts[0]), int(sizes[0]))
        if kind is Kind.NO_JSON:
            return f"what is no JSON, {document}"
        if kind is Kind.NOTHING:
            return f"no such member in {document}"
        if kind is Kind.OTHER:
            return f"what is neither a string nor a number, in {document}"
        return _shown(records.data, int(at[0]), int(found[0]))

    def _places(self, records: Records) -> tuple[Longs, Longs]:
        starts, sizes = records.located.fields[self._at : self._at + 2, : records.located.rows]
        return starts, sizes


class _HeaderTimes:
    def __init__(self, choice: EventTimeChoice, where: InHeader) -> None:
        self._scan, self._moments = HeaderScan(where.name), MomentReader(choice.written)
        self._sizes = np.empty(0, np.int64)

    def find(self, records: Records) -> Found:
        starts, self._sizes = self._places(records)
        return Found(*self._moments.read(records.data, starts, self._sizes))

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        return self._sizes < 0

    def seen(self, records: Records, row: int) -> str:
        starts, sizes = self._places(records)
        return "no such header" if sizes[row] < 0 else _shown(records.data, int(starts[row]), int(sizes[row]))

    def _places(self, records: Records) -> tuple[Longs, Longs]:
        return self._scan.find(records.split, records.data, records.located, records.offsets)


_SHOWN = 80


def _shown(data: Bytes, start: int, size: int) -> str:
    text = data[start : start + min(size, _SHOWN)].tobytes().decode("utf-8", "replace")
    return repr(text) + ("…" if size > _SHOWN else "")
