"""Event times at a path in records of JSON."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, InJson
from pyspark_aligned_kafka.records.json_scan import JsonScan, Kind
from pyspark_aligned_kafka.records.record_batches import Longs
from pyspark_aligned_kafka.records.record_fields import KEY_AT, VALUE_AT
from pyspark_aligned_kafka.records.time_finder import Found, Records, shown
from pyspark_aligned_kafka.records.time_texts import MomentReader


class JsonTimes:
    """``TimeFinder`` of a path in keys or values."""

    def __init__(self, choice: EventTimeChoice, where: InJson) -> None:
        self._scan, self._moments = JsonScan(where.path), MomentReader(choice.written)
        self._shows = choice.shows_records
        self._at = KEY_AT if where.field == "key" else VALUE_AT
        self._kinds = self._begins = np.empty(0, np.int64)

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``."""
        kinds, at, sizes = self._scan.find(records.data, *self._places(records))
        self._kinds, self._begins = kinds, at
        # What is neither text nor number has no size.
        sizes[(kinds < Kind.TEXT) | (kinds == Kind.OTHER)] = 0
        return Found(*self._moments.read(records.data, at, sizes, kinds == Kind.ESCAPED))

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """See ``TimeFinder``."""
        nothing: npt.NDArray[np.bool_] = (self._kinds == Kind.NO_DOCUMENT) | (self._kinds == Kind.NOTHING)
        other = self._kinds == Kind.OTHER
        # No other value of JSON begins so.
        nothing[other] = records.data[self._begins[other]] == ord("n")
        return nothing

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        starts, sizes = (places[row : row + 1] for places in self._places(records))
        kinds, at, found = self._scan.find(records.data, starts, sizes)
        kind = Kind(int(kinds[0]))
        if kind is Kind.NO_DOCUMENT:
            return "null in place of a document"
        document = shown(records.data, int(starts[0]), int(sizes[0]), with_content=self._shows)
        if kind is Kind.NO_JSON:
            return f"what is no JSON, {document}"
        if kind is Kind.NOTHING:
            return f"no such member in {document}"
        if kind is Kind.OTHER:
            return f"what is neither a string nor a number, in {document}"
        return shown(records.data, int(at[0]), int(found[0]), with_content=self._shows)

    def _places(self, records: Records) -> tuple[Longs, Longs]:
        starts, sizes = records.located.fields[self._at : self._at + 2, : records.located.rows]
        return starts, sizes
