"""Event times of located records that are not their timestamps."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.columns import TIMESTAMP, binary_column
from pyspark_aligned_kafka.records.corrupt_batches import Fault, fault_error
from pyspark_aligned_kafka.records.event_time_choice import (
    OPTION,
    ByFunction,
    EventTimeChoice,
    Format,
    InHeader,
    InJson,
    MarkChoice,
    WithoutTime,
)
from pyspark_aligned_kafka.records.headers import HeaderScan, headers_array
from pyspark_aligned_kafka.records.json_scan import JsonScan, Kind
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, KEY_AT, VALUE_AT, Located
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS, MAY_BE_DATE, MomentReader
from watermark_source.arrow_columns import bitmap, integers, is_valid
from watermark_source.errors import EventTimeError, WatermarkSourceError, shortened
from watermark_source.planning.split import Split

# The finder of event times in one place of each record: what it is given, and what it finds.


_SHOWN = 80
"""Bytes."""


class Records(NamedTuple):
    """Located records of one partition, with their offsets and timestamps."""

    split: Split
    data: Bytes
    located: Located
    offsets: Longs
    timestamps: pa.Array


class Found(NamedTuple):
    """Event times: microseconds, and not 0 where there is none (``MAY_BE_DATE`` or 1); ``missing`` of those."""

    micros: Longs
    wrong: npt.NDArray[np.uint8]
    missing: int


class TimeFinder(Protocol):
    """Finds event times in one place of each record."""

    def find(self, records: Records) -> Found:
        """Return the event times of all records."""
        ...

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """Return, for the records of the last ``find``, whether the place is absent."""
        ...

    def seen(self, records: Records, row: int) -> str:
        """Return the content of the place in a row, for a message."""
        ...


def shown(data: Bytes, start: int, size: int, *, with_content: bool) -> str:
    """Return a record's text for a message, its beginning if it is long; without its content only how long it is."""
    if not with_content:
        return f"{size} bytes (recordsInErrors=true shows the first {_SHOWN})"
    text = data[start : start + min(size, _SHOWN)].tobytes().decode("utf-8", "replace")
    return repr(text) + ("…" if size > _SHOWN else "")


# Event times at a path in records of JSON.


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


# Event times in a header of records.


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


# Event times by a function of the user's: a record batch in, an array out, once for each batch of records.


COLUMNS = ("key", "value", "headers", "timestamp", "offset")
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class FunctionTimes:
    """Calls the function and checks what it answers."""

    def __init__(self, where: ByFunction, *, shows_records: bool = True) -> None:
        self._where = where
        self._shows = shows_records
        self._function = where.load()

    def find(self, records: Records) -> Found:
        """Return what the function finds; what it leaves null has no event time.

        Raises:
            EventTimeError: it failed, or answered no array of moments, one for each record.
        """
        given = _batch(records)
        try:
            answer = self._function(given)
        except Exception as error:  # noqa: BLE001 - a function of the user's raises anything
            # The message of a user's exception may quote the record. Our own errors do not.
            is_ours = isinstance(error, WatermarkSourceError)
            text = f": {shortened(error)}" if self._shows or is_ours else " (recordsInErrors=true shows its message)"
            failed = f"the function {self._where} failed for {_of(records)}: {type(error).__name__}{text}"
            raise EventTimeError(failed) from (error if self._shows else None)
        if isinstance(answer, pa.ChunkedArray):
            answer = answer.combine_chunks()
        if not isinstance(answer, pa.Array) or not (pa.types.is_timestamp(answer.type) or answer.type == pa.int64()):
            seen = answer.type if isinstance(answer, pa.Array) else type(answer).__name__
            raise EventTimeError(
                f"the function {self._where} answered {seen} for {_of(records)}; it must answer an Arrow array of "
                "timestamps, or of int64 with milliseconds since 1970-01-01 UTC"
            )
        if len(answer) != given.num_rows:
            raise EventTimeError(
                f"the function {self._where} answered {len(answer)} times for the {given.num_rows} {_of(records)}; it "
                "must answer one for each, null where there is none"
            )
        return _found(answer)

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """Return all: what the function leaves null is nothing, wherever it looked."""
        return np.ones(records.located.rows, np.bool_)

    def seen(self, records: Records, row: int) -> str:
        """Return what the function answered for a row, and why, if it can say so."""
        explain = getattr(self._function, "explain", None)
        if explain is not None:
            return str(explain(_batch(records).slice(row, 1)))
        return "null from the function, or a moment before the year 1 or after the year 9999"


def _batch(records: Records) -> pa.RecordBatch:
    located, data = records.located, records.data
    fields = located.fields[:, : located.rows]
    offsets = pa.Array.from_buffers(pa.int64(), located.rows, [None, pa.py_buffer(records.offsets[: located.rows])])
    columns = [
        binary_column(data, fields[KEY_AT:VALUE_AT], located.key_bytes, located.key_nulls),
        binary_column(data, fields[VALUE_AT:HEADERS_AT], located.value_bytes, located.value_nulls),
        headers_array(records.split, data, located, offsets),
        records.timestamps,
        offsets,
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def _of(records: Records) -> str:
    first, last = records.offsets[0], records.offsets[records.located.rows - 1]
    return f"records {first} to {last} of {place(records.split)}"


def _found(answer: pa.Array) -> Found:
    values, missing = integers(answer), ~is_valid(answer)
    unit = answer.type.unit if pa.types.is_timestamp(answer.type) else "ms"
    if unit == "ns":
        # 64 bits of them are 292 years before and after 1970.
        micros = values // 1_000
    else:
        factor = _MICROS[unit]
        missing |= (values < FIRST_MICROS // factor) | (values >= END_MICROS // factor)
        micros = np.where(missing, 0, values) * factor
    return Found(micros, missing.astype(np.uint8), int(np.count_nonzero(missing)))


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
            row = int(np.argmax(wrong != 0))
            seen = _seen(self._finder, records, row, wrong, "eventTimeFormat")
            raise EventTimeError(
                f"{place(records.split, int(records.offsets[row]))}: no event time at {self._choice.place} ({OPTION}, "
                f"read as {self._choice.written.value}); seen {seen}. Correct {OPTION} or "
                "eventTimeFormat; or set eventTimeErrors to timestamp, to use the record's own timestamp, or to null, "
                "so that such a record moves no watermark"
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


def _seen(finder: TimeFinder, records: Records, row: int, wrong: npt.NDArray[np.uint8], option: str) -> str:
    """Return what an error shows in place of a row's time, and why ``auto`` refuses digits that may be a date."""
    seen = finder.seen(records, row)
    if wrong[row] != MAY_BE_DATE:
        return seen
    return (
        f"{seen}, digits that may be a date as well as a number. For a number since 1970-01-01 UTC write "
        f'.option("{option}", "seconds"), "millis", "micros" or "nanos"; a date must be ISO 8601, 2026-11-24'
    )


def time_finder(choice: EventTimeChoice) -> TimeFinder:
    """Return what looks at the place of a choice."""
    if isinstance(choice.place, InJson):
        return JsonTimes(choice, choice.place)
    if isinstance(choice.place, InHeader):
        return HeaderTimes(choice, choice.place)
    assert isinstance(choice.place, ByFunction)
    return FunctionTimes(choice.place, shows_records=choice.shows_records)


class WatermarkMarks:
    """Reads watermarks in records (strategy ``punctuated``). Reuses scratch memory: for one read at a time."""

    __slots__ = ("_choice", "_finder")

    def __init__(self, choice: MarkChoice) -> None:
        self._choice = choice
        self._finder = None
        if choice.place is not None:
            as_time = EventTimeChoice(choice.place, choice.written, shows_records=choice.shows_records)
            self._finder = time_finder(as_time)

    def of(self, records: Records) -> pa.Array:
        """Return the watermarks, microseconds as ``int64``, of the records that carry one.

        Raises:
            EventTimeError: a record has another value than a timestamp in the place, or the user's function failed.
        """
        if self._finder is None:
            return records.timestamps.view(pa.int64())
        micros, wrong, missing = self._finder.find(records)
        if self._choice.written is Format.TSO:
            # What is committed later in the same millisecond has a higher counter, and its event time is that one.
            micros -= 1
        if not missing:
            return pa.array(micros)
        is_wrong = wrong.astype(bool)
        broken = is_wrong & ~self._finder.absent(records)
        if broken.any():
            row = int(np.argmax(broken))
            seen = _seen(self._finder, records, row, wrong, "watermarkFormat")
            raise EventTimeError(
                f"{place(records.split, int(records.offsets[row]))}: no watermark at {self._choice.place} "
                f"(watermarkColumn, read as {self._choice.written.value}); seen {seen}. "
                "Correct watermarkColumn or watermarkFormat; a record that carries no watermark has nothing there, or "
                "JSON's null"
            )
        return pa.array(micros[~is_wrong])
