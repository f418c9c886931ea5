"""Where the event time of a record is, or a watermark, and what becomes of a record without an event time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_aligned_kafka.records.json_path import JsonPath
from watermark_source.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from pyspark_aligned_kafka.records.payload import PayloadChoice


# How moments are written in records.


class Format(Enum):
    """How moments are written."""

    AUTO = "auto"
    """ISO 8601, or a number whose size is its unit: below 10^11 seconds (until 5138), below 10^14 milliseconds, below
    10^17 microseconds, and nanoseconds from there on. Digits that may be a date are refused."""
    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"
    DAYS = "days"
    """Days since 1970, as Debezium's and Kafka Connect's Date."""
    TICKS = "ticks"
    """100 nanoseconds since the year 1, as .NET's DateTime."""
    FILETIME = "filetime"
    """100 nanoseconds since 1601, as Windows."""
    TSO = "tso"
    """A timestamp of TiDB's oracle: milliseconds times 2^18, plus a logical counter."""
    ISO_8601 = "iso8601"


FORMATS_OF_NUMBERS = ", ".join(each.value for each in Format if each not in (Format.AUTO, Format.ISO_8601))
OPTION = "eventTimeColumn"


@dataclass(frozen=True, slots=True)
class InJson:
    """At a path of a JSON document."""

    field: Literal["key", "value"]
    path: JsonPath
    framed: bool | None = None
    """Whether each document has the id of a schema (Confluent's wire format), in a header or before it; ``None``: one
    before it is passed over."""

    def __str__(self) -> str:
        return f"{self.field}:{self.path}"


@dataclass(frozen=True, slots=True)
class InColumn:
    """In a member of decoded keys or values that are not JSON; its type is one of times, an integer or text."""

    payload: PayloadChoice
    path: JsonPath
    type: DataType

    def __str__(self) -> str:
        return f"{self.payload.field}:{self.path}"


@dataclass(frozen=True, slots=True)
class InHeader:
    """In a header; of several with one name the last one, as Kafka's own ``lastHeader``."""

    name: str

    def __str__(self) -> str:
        return f"header:{self.name}"


@dataclass(frozen=True, slots=True)
class InTimestamp:
    """The record's own timestamp."""

    def __str__(self) -> str:
        return "timestamp"


Alternative: TypeAlias = InJson | InColumn | InHeader | InTimestamp


@dataclass(frozen=True, slots=True)
class FirstOf:
    """In each record, at the first of several places that is there: a member that is missing or null is not."""

    places: tuple[Alternative, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.places))


@dataclass(frozen=True, slots=True)
class ByFunction:
    """What a function of the user's makes of a batch of records."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    def load(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """Import the function.

        Raises:
            OptionError: there is no such module, it fails when it is imported, or has no such function.
        """
        try:
            found = getattr(importlib.import_module(self.module), self.name)
        except BaseException as error:  # noqa: BLE001 - a module of the user's raises anything, and exits
            raise OptionError(
                OPTION, self, f"cannot be imported: {type(error).__name__}: {error}. The driver and every executor "
                "need its module, for example by --py-files",
            ) from None  # fmt: skip
        if not callable(found):
            raise OptionError(OPTION, self, f"is a {type(found).__name__}, and must be a function", example=_EXAMPLE)
        function: Callable[[pa.RecordBatch], pa.Array] = found
        return function


_EXAMPLE = "my_package.times:event_time"
Place: TypeAlias = Alternative | FirstOf | ByFunction


class WithoutTime(Enum):
    """What becomes of a record in which no event time is found."""

    FAIL = "fail"
    TIMESTAMP = "timestamp"
    """Its own timestamp is its event time."""
    NULL = "null"
    """It is delivered without an event time, and moves no watermark."""


def places_of(place: Place | None) -> tuple[Place | None, ...]:
    """Return the places that are looked at one after another."""
    return place.places if isinstance(place, FirstOf) else (place,)


def is_written(place: Place | None) -> bool:
    """Return whether moments there are texts or numbers, whose format must be known (``eventTimeFormat``)."""
    return any(
        each.type.typeName() not in _TIME_TYPES if isinstance(each, InColumn) else isinstance(each, InJson | InHeader)
        for each in places_of(place)
    )


_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")


def _fields(place: Place | None) -> frozenset[str]:
    if isinstance(place, InJson | InColumn):
        of = place if isinstance(place, InJson) else place.payload
        return frozenset({of.field, "headers"} if of.framed else {of.field})
    if isinstance(place, InTimestamp):
        return frozenset({"timestamp"})
    return frozenset({"headers"} if isinstance(place, InHeader) else {"key", "value", "headers"})


def paths_in(field: str, place: Place | None) -> tuple[tuple[str, ...], ...]:
    """Return the paths into keys or values, of names alone; empty if there is one of another kind."""
    paths = [each.path.steps for each in places_of(place) if isinstance(each, InJson) and each.field == field]
    names = [tuple(step for step in path if isinstance(step, str)) for path in paths]
    return tuple(names) if [len(each) for each in names] == [len(path) for path in paths] else ()


_ROW_BEFORE = "before"
"""Name of the member with a row as it was before its change, in the change events of Debezium and those like it."""


def is_of_row_before(place: Place) -> bool:
    """Return whether the time of a change may be a member of the row as it was before."""
    return any(isinstance(each, InJson | InColumn) and _ROW_BEFORE in each.path.steps[:-1] for each in places_of(place))


@dataclass(frozen=True, slots=True)
class EventTimeChoice:
    """As the user chose, of event time or of a watermark in records: one without it carries none."""

    place: Place
    written: Format = Format.AUTO
    without: WithoutTime = WithoutTime.FAIL
    shows_records: bool = True
    """Whether errors hold the beginning of a record's content."""

    @property
    def read_as(self) -> str:
        """How moments there are read, as a part of a sentence; empty where no option states how."""
        return f", read as {self.written.value}" if is_written(self.place) else ""

    @property
    def or_format(self) -> str:
        """The option that states how, as the end of a list of options; empty as ``read_as``."""
        return " or eventTimeFormat" if is_written(self.place) else ""

    @property
    def fields(self) -> frozenset[str]:
        """Which fields of a record are looked at."""
        return frozenset().union(*map(_fields, places_of(self.place)))
