"""Event times of located records that are not their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.columns import (
    TIMESTAMP,
    HeaderScan,
    headers_array,
    id_scan,
)
from pyspark_aligned_kafka.records.event_time_choice import (
    OPTION,
    ByFunction,
    EventTimeChoice,
    FirstOf,
    Format,
    InColumn,
    InHeader,
    InJson,
    InTimestamp,
    WithoutTime,
)
from pyspark_aligned_kafka.records.far_times import FarTimes
from pyspark_aligned_kafka.records.json_members import end_of_path, headers_there
from pyspark_aligned_kafka.records.json_scan import JsonKind, JsonScan
from pyspark_aligned_kafka.records.payload import Decoded
from pyspark_aligned_kafka.records.payload_decoder import PayloadDecoder
from pyspark_aligned_kafka.records.record_batches import Bytes, Fault, Longs, fault_error
from pyspark_aligned_kafka.records.record_fields import Located
from pyspark_aligned_kafka.records.schema_ids import IdReader
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS, MAY_BE_DATE, MomentReader
from watermark_source.arrow_columns import bitmap, integers, is_valid
from watermark_source.errors import EventTimeError, PayloadError, WatermarkSourceError, shortened
from watermark_source.signals import LONGEST_S, TimeLimitExceeded, time_limit

# The finder of event times in one place of each record: what it is given, and what it finds.


_SHOWN = 80
"""Bytes."""
_DAY = 86_400_000_000
"""Microseconds."""
_FIRST_DAY, _LAST_DAY = FIRST_MICROS // _DAY - 1, END_MICROS // _DAY
"""The last day before all event times, and the first one behind them, since 1970."""


class Records(NamedTuple):
    """Located records of one partition, with their timestamps."""

    located: Located
    timestamps: pa.Array
    column: Callable[[str], pa.Array]
    """Returns a column of theirs by its name, as it is delivered; it is made once."""
    decoded: Callable[[str], Decoded | None]
    """Returns the decoded keys or values by their field, ``None`` where they are not decoded; raises ``PayloadError``.
    They are decoded once."""

    def where(self, row: int) -> str:
        """Return where a record is, for a message."""
        return place(self.located.split, int(self.located.offsets[row]))


class Found(NamedTuple):
    """Event times: microseconds, and not 0 where there is none (``MAY_BE_DATE`` or 1)."""

    micros: Longs
    wrong: npt.NDArray[np.uint8]
    absent: npt.NDArray[np.bool_]
    """Whether the place is absent."""


class TimeFinder(Protocol):
    """Finds event times in one place of each record."""

    def find(self, records: Records) -> Found:
        """Return the event times of all records."""

    def seen(self, records: Records, row: int) -> str:
        """Return the content of the place in a row, for a message."""


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
        self._where = where
        self._ids = id_scan(where.field) if where.framed else None

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``."""
        kinds, at, sizes = self._found(records)
        absent: npt.NDArray[np.bool_] = (kinds == JsonKind.NO_DOCUMENT) | (kinds == JsonKind.NOTHING)
        other = kinds == JsonKind.OTHER
        # No other value of JSON begins so.
        absent[other] = records.located.data[at[other]] == ord("n")
        # What is neither text nor number has no size.
        sizes[(kinds < JsonKind.TEXT) | other] = 0
        return Found(*self._moments.read(records.located.data, at, sizes, kinds == JsonKind.ESCAPED), absent)

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        data = records.located.data
        starts, sizes = (places[row : row + 1] for places in self._places(records))
        kinds, at, found = self._scan.find(data, starts, sizes)
        kind = JsonKind(int(kinds[0]))
        if kind is JsonKind.NO_DOCUMENT:
            return "null in place of a document"
        if kind is JsonKind.NO_JSON:
            starts, sizes = (places[row : row + 1] for places in records.located.places(self._where.field))
        document = shown(data, int(starts[0]), int(sizes[0]), with_content=self._shows)
        if kind is JsonKind.NO_JSON:
            behind = " behind a zero byte and the id of a schema" if self._where.framed else ""
            return f"text that is not JSON{behind}, {document}"
        if kind in (JsonKind.NOTHING, JsonKind.OTHER):
            what = "no such member" if kind is JsonKind.NOTHING else "what is neither a string nor a number"
            whole = data[int(starts[0]) :][: int(sizes[0])].tobytes()
            try:
                return f"{what}: {end_of_path(whole, self._where.path, with_names=self._shows)}"
            except ValueError:
                # Compiled code validates no UTF-8.
                return f"{what} in {document}"
        return shown(data, int(at[0]), int(found[0]), with_content=self._shows)

    def _found(self, records: Records) -> Longs:
        """Return what ``JsonScan.find`` does, of documents that are decoded by the pass that decodes them."""
        decoded = None
        # It is raised again where the column is built, if event time is no error before that.
        with suppress(PayloadError):
            decoded = records.decoded(self._where.field)
        walked = None if decoded is None else decoded.places
        if walked is None or walked.path != self._where.path:
            return self._scan.find(records.located.data, *self._places(records))
        left = walked.left
        if len(left):
            starts, sizes = self._places(records)
            walked.found[:, left] = self._scan.find(records.located.data, starts[left], sizes[left])
        return walked.found

    def _places(self, records: Records) -> tuple[Longs, Longs]:
        starts, sizes = records.located.places(self._where.field)
        if self._where.framed is False:
            return starts, sizes
        header = None if self._ids is None else self._ids.find_any(records.located)
        ids = IdReader().read(records.located.data, starts, sizes, header)
        # What has no id is no document where each has one. No JSON begins with a zero byte.
        return ids.starts, np.where(ids.without, 0, ids.lengths) if self._where.framed else ids.lengths


class ColumnTimes:
    """``TimeFinder`` of a member of decoded keys or values."""

    def __init__(self, choice: EventTimeChoice, where: InColumn) -> None:
        self._where = where
        self._moments = MomentReader(choice.written)
        self._shows = choice.shows_records
        self._decoder: PayloadDecoder | None = None

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``."""
        member = self._member(self._decoded(records))
        present, kind = is_valid(member), member.type
        absent = ~present
        if pa.types.is_string(kind):
            begins, ends, data = _texts_of(member)
            return Found(*self._moments.read(data, begins, np.where(present, ends - begins, 0)), absent)
        if pa.types.is_timestamp(kind):
            return _within(integers(member), absent)
        if pa.types.is_date32(kind):
            return _within(np.clip(_numbers_of(member), _FIRST_DAY, _LAST_DAY) * _DAY, absent)
        numbers = _numbers_of(member)
        if pa.types.is_decimal(kind):
            # Numbers beyond 64 bits are no moments.
            words = numbers.reshape(-1, 2)
            numbers, fits = np.ascontiguousarray(words[:, 0]), words[:, 1] == words[:, 0] >> 63
            present &= fits
        return Found(*self._moments.of_numbers(numbers, present), absent)

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        starts, sizes = records.located.places(self._where.payload.field)
        if sizes[row] < 0:
            return f"null in place of a {self._where.payload.field}"
        decoded = self._decoded(_chosen(records, np.array([row])))
        member = self._member(decoded)
        if member.null_count:
            value = shown(records.located.data, int(starts[row]), int(sizes[row]), with_content=self._shows)
            why = f": {decoded.wrong}" if decoded.wrong else ""
            return f"null in this member of {value}{why}"
        if pa.types.is_string(member.type):
            begins, ends, data = _texts_of(member)
            return shown(data, int(begins[0]), int(ends[0] - begins[0]), with_content=self._shows)
        if not self._shows:
            return f"a value (recordsInErrors=true shows it) of type {member.type}"
        number = member[0].as_py() if pa.types.is_decimal(member.type) else int(_numbers_of(member)[0])
        return f"{number} of type {member.type}"

    def _decoded(self, records: Records) -> Decoded:
        choice = self._where.payload
        decoded = records.decoded(choice.field)
        if decoded is None:
            # Rows are read for their times alone: what is bad ends no query here, it has no event time.
            if self._decoder is None:
                self._decoder = PayloadDecoder(replace(choice, fail_fast=False))
            decoded = self._decoder.decode(records.located)
        return decoded

    def _member(self, decoded: Decoded) -> pa.Array:
        # The readers of keys and values have imported it.
        import pyarrow.compute as pc  # noqa: PLC0415

        names = list(self._where.path.steps)
        return pc.struct_field(decoded.column, names) if names else decoded.column


def _numbers_of(member: pa.Array) -> Longs:
    """Return the values of integers, dates or decimals, of the last two words each; those of nulls are arbitrary."""
    width = member.type.bit_width // 8
    kind = np.int64 if width > 8 else np.dtype(f"i{width}")
    values = np.frombuffer(member.buffers()[1], np.uint8)[member.offset * width :][: len(member) * width].view(kind)
    return values.astype(np.int64)


def _texts_of(member: pa.Array) -> tuple[Longs, Longs, Bytes]:
    """Return where each text begins and ends, and a copy of the bytes: compiled code takes no read-only array."""
    _, edges, data = member.buffers()
    ends = np.frombuffer(edges, np.int32)[member.offset :][: len(member) + 1].astype(np.int64)
    content = np.array(np.frombuffer(data, np.uint8)) if data is not None and data.size else np.zeros(1, np.uint8)
    return ends[:-1], ends[1:], content


def _within(micros: Longs, absent: npt.NDArray[np.bool_]) -> Found:
    missing = absent | (micros < FIRST_MICROS) | (micros >= END_MICROS)
    return Found(np.where(missing, 0, micros), missing.astype(np.uint8), absent)


class HeaderTimes:
    """``TimeFinder`` of a header."""

    def __init__(self, choice: EventTimeChoice, where: InHeader) -> None:
        self._scan, self._moments = HeaderScan(where.name), MomentReader(choice.written)
        self._shows = choice.shows_records

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``."""
        starts, sizes = self._scan.find(records.located)
        return Found(*self._moments.read(records.located.data, starts, sizes), sizes < 0)

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        starts, sizes = self._scan.find(records.located)
        if sizes[row] < 0:
            headers = headers_array(_chosen(records, np.array([row])).located)
            return f"no such header: {headers_there(headers[0].as_py(), with_names=self._shows)}"
        return shown(records.located.data, int(starts[row]), int(sizes[row]), with_content=self._shows)


class RecordTimes:
    """``TimeFinder`` of the record's own timestamp."""

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``: a timestamp outside of these years is none."""
        found = _within(integers(records.timestamps), ~is_valid(records.timestamps))
        return found._replace(absent=found.wrong.astype(bool))

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``."""
        return "no timestamp of the record between the years 1 and 9999"


class FirstTimes:
    """``TimeFinder`` of several places: in each record that of the first one which is there."""

    def __init__(self, choice: EventTimeChoice, where: FirstOf) -> None:
        self._finders = [time_finder(replace(choice, place=place)) for place in where.places]

    def find(self, records: Records) -> Found:
        """See ``TimeFinder``. Only records in which a place is absent are searched at the next one."""
        first, *others = self._finders
        found = first.find(records)
        for finder in others:
            left = np.flatnonzero(found.absent)
            if not len(left):
                break
            found.micros[left], found.wrong[left], found.absent[left] = finder.find(_chosen(records, left))
        return found

    def seen(self, records: Records, row: int) -> str:
        """See ``TimeFinder``: the content of the first place that is there."""
        alone = _chosen(records, np.array([row]))
        for finder in self._finders:
            if not finder.find(alone).absent[0]:
                return finder.seen(alone, 0)
        return self._finders[0].seen(alone, 0)


def _chosen(records: Records, rows: Longs) -> Records:
    """Return some of the records, by their rows."""
    located = records.located._replace(
        offsets=records.located.offsets[rows], rows=len(rows), fields=np.take(records.located.fields, rows, axis=1)
    )
    # What is decoded is of all of the records. So are columns, which functions alone ask for: none is one of several.
    return records._replace(located=located, timestamps=records.timestamps.take(rows), decoded=lambda _: None)


# Event times by a function of the user's: a record batch in, an array out, once for each batch of records.


COLUMNS = ("key", "value", "headers", "timestamp", "offset")
_ANSWER = (
    "an Arrow array of timestamps, or of int64 with milliseconds since 1970-01-01 UTC, one element for each record, "
    "null where there is no time"
)
_WRITTEN = {"s": Format.SECONDS, "ms": Format.MILLIS, "us": Format.MICROS}


class FunctionTimes:
    """Calls the function and checks what it answers."""

    def __init__(self, choice: EventTimeChoice, where: ByFunction) -> None:
        self._where, self._shows = where, choice.shows_records
        self._function = where.load()

    def find(self, records: Records) -> Found:
        """Return what the function finds; what it leaves null has no event time.

        Raises:
            EventTimeError: it failed, or answered no array of moments, one for each record.
        """
        # What crosses the C interface cannot be written to: rows are delivered from the same memory.
        given = pa.record_batch(pa.RecordBatch.from_arrays([*map(records.column, COLUMNS)], names=list(COLUMNS)))
        try:
            with time_limit(LONGEST_S):
                answer = self._function(given)
        except TimeLimitExceeded:
            waited = f"has not returned for {LONGEST_S:g} seconds for {_of(records)}"
            raise self._refused(waited, ", without waiting for anything that may never come") from None
        except BaseException as error:  # noqa: BLE001 - a function of the user's raises anything, and exits
            # The message of a user's exception may quote the record. Our own errors do not.
            is_ours = isinstance(error, WatermarkSourceError)
            text = f": {shortened(error)}" if self._shows or is_ours else " (recordsInErrors=true shows its message)"
            failed = f"the function {self._where} failed for {_of(records)}: {type(error).__name__}{text}"
            raise EventTimeError(f"{failed}. It must return {_ANSWER}") from (error if self._shows else None)
        if isinstance(answer, pa.ChunkedArray):
            answer = answer.combine_chunks()
        if not isinstance(answer, pa.Array) or not (pa.types.is_timestamp(answer.type) or answer.type == pa.int64()):
            seen = answer.type if isinstance(answer, pa.Array) else type(answer).__name__
            raise self._refused(f"answered {seen} for {_of(records)}")
        if len(answer) != given.num_rows:
            raise self._refused(f"answered {len(answer)} times for the {given.num_rows} {_of(records)}")
        values, unit = integers(answer), answer.type.unit if pa.types.is_timestamp(answer.type) else "ms"
        if unit == "ns":
            values, unit = values // 1_000, "us"
        moments = MomentReader(_WRITTEN[unit]).of_numbers(np.array(values), is_valid(answer))
        # What the function leaves null is nothing, wherever it looked.
        return Found(*moments, np.ones(len(answer), np.bool_))

    def _refused(self, what: str, how: str = "") -> EventTimeError:
        return EventTimeError(f"the function {self._where} {what}; it must return {_ANSWER}{how}")

    def seen(self, records: Records, row: int) -> str:
        """Return what the function answered for a row."""
        return "null from the function, or a moment before the year 1 or after the year 9999"


def _of(records: Records) -> str:
    offsets = records.located.offsets
    return f"records {offsets[0]} to {offsets[-1]} of {place(records.located.split)}"


_NO_TIME = np.int64(2**63 - 1)
"""In place of what is null: what looks at the numbers alone sees no row that is late."""


class EventTimes:
    """Finds event times as the user chose. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_choice", "_far", "_finder")

    def __init__(self, choice: EventTimeChoice) -> None:
        self._choice = choice
        self._finder = time_finder(choice)
        self._far = FarTimes(choice)

    def of(self, records: Records) -> tuple[pa.Array, int]:
        """Return the event time of each record, null where it has none, and in how many it was not found.

        Raises:
            EventTimeError: in some it was not found, and the user chose ``fail``; or the function failed.
            UnsupportedFormatError: the user chose ``timestamp``, and that of one does not fit microseconds.
        """
        micros, wrong, _ = self._finder.find(records)
        missing = int(np.count_nonzero(wrong))
        if not self._far.is_done:
            self._far.look(records.located, micros, wrong, records.timestamps)
        is_wrong, present, nulls = wrong.astype(bool), None, 0
        if missing and self._choice.without is WithoutTime.FAIL:
            row = int(np.argmax(is_wrong))
            seen = _seen(self._finder, records, row, wrong)
            raise EventTimeError(
                f"{records.where(row)}: no event time at {self._choice.place} ({OPTION}{self._choice.read_as}); seen "
                f"{seen}. Correct {OPTION}{self._choice.or_format}; or set eventTimeErrors to timestamp, to use the "
                "record's own timestamp, or to null, so that such a record moves no watermark"
            )
        if missing and self._choice.without is WithoutTime.TIMESTAMP:
            neither = is_wrong & ~is_valid(records.timestamps)
            if neither.any():
                at = int(records.located.offsets[int(np.argmax(neither))])
                raise fault_error(Fault.TIMESTAMP, records.located.split, at)
            np.copyto(micros, integers(records.timestamps), where=is_wrong)
        elif missing:
            micros[is_wrong] = _NO_TIME
            present, nulls = bitmap(~is_wrong), missing
        return pa.Array.from_buffers(TIMESTAMP, len(micros), [present, pa.py_buffer(micros)], nulls), missing


def _seen(finder: TimeFinder, records: Records, row: int, wrong: npt.NDArray[np.uint8]) -> str:
    """Return what an error shows in place of a row's time, and why ``auto`` refuses digits that may be a date."""
    seen = finder.seen(records, row)
    if wrong[row] != MAY_BE_DATE:
        return seen
    return (
        f"{seen}, digits that may be a date as well as a number. For a number since 1970-01-01 UTC write "
        f'.option("eventTimeFormat", "seconds"), "millis", "micros" or "nanos"; a date must be ISO 8601, 2026-11-24'
    )


_FINDERS: Final[Mapping[type, Callable[[EventTimeChoice, Any], TimeFinder]]] = {
    InJson: JsonTimes, InColumn: ColumnTimes, InHeader: HeaderTimes, InTimestamp: lambda _, __: RecordTimes(),
    FirstOf: FirstTimes, ByFunction: FunctionTimes,
}  # fmt: skip


def time_finder(choice: EventTimeChoice) -> TimeFinder:
    """Return what looks at the place of a choice."""
    return _FINDERS[type(choice.place)](choice, choice.place)


class WatermarkMarks:
    """Reads watermarks in records (strategy ``punctuated``). Reuses scratch memory: for one read at a time."""

    __slots__ = ("_choice", "_finder")

    def __init__(self, choice: EventTimeChoice) -> None:
        self._choice, self._finder = choice, time_finder(choice)

    def of(self, records: Records) -> pa.Array:
        """Return the watermarks, microseconds as ``int64``, of the records that carry one.

        Raises:
            EventTimeError: a record has another value than a timestamp in the place, or the user's function failed.
        """
        if isinstance(self._choice.place, InTimestamp):
            return records.timestamps.view(pa.int64())
        micros, wrong, absent = self._finder.find(records)
        if self._choice.written is Format.TSO:
            # What is committed later in the same millisecond has a higher counter, and its event time is that one.
            micros -= 1
        is_wrong = wrong.astype(bool)
        if not is_wrong.any():
            return pa.array(micros)
        broken = is_wrong & ~absent
        if broken.any():
            row = int(np.argmax(broken))
            seen = _seen(self._finder, records, row, wrong)
            raise EventTimeError(
                f"{records.where(row)}: no watermark at {self._choice.place} (watermarkColumn{self._choice.read_as}); "
                f"seen {seen}. Correct watermarkColumn{self._choice.or_format}; a record that carries no watermark has "
                "nothing there, or JSON's null"
            )
        return pa.array(micros[~is_wrong])
