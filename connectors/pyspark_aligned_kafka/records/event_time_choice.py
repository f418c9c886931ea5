"""Where the event time of a record is, and what becomes of a record without one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_aligned_kafka.records.json_path import JsonPath
from pyspark_aligned_kafka.records.time_format import Format
from watermark_source.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

OPTION = "eventTimeColumn"


@dataclass(frozen=True, slots=True)
class InJson:
    """At a path of a JSON document."""

    field: Literal["key", "value"]
    path: JsonPath

    def __str__(self) -> str:
        return f"{self.field}:{self.path}"


@dataclass(frozen=True, slots=True)
class InHeader:
    """In a header; of several with one name the last one, as Kafka's own ``lastHeader``."""

    name: str

    def __str__(self) -> str:
        return f"header:{self.name}"


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
            OptionError: there is no such module, or no such function in it.
        """
        try:
            found = getattr(importlib.import_module(self.module), self.name)
        except (ImportError, AttributeError) as error:
            raise OptionError(
                OPTION, self, f"cannot be imported: {error}. The driver and every executor need its module, for "
                "example by --py-files",
            ) from None  # fmt: skip
        if not callable(found):
            raise OptionError(OPTION, self, f"is a {type(found).__name__}, and must be a function", example=_EXAMPLE)
        function: Callable[[pa.RecordBatch], pa.Array] = found
        return function


_EXAMPLE = "my_package.times:event_time"
Place: TypeAlias = InJson | InHeader | ByFunction


class WithoutTime(Enum):
    """What becomes of a record in which no event time is found."""

    FAIL = "fail"
    TIMESTAMP = "timestamp"
    """Its own timestamp is its event time."""
    NULL = "null"
    """It is delivered without an event time, and moves no watermark."""


@dataclass(frozen=True, slots=True)
class EventTimeChoice:
    """As the user chose."""

    place: Place
    written: Format = Format.AUTO
    without: WithoutTime = WithoutTime.FAIL
    shows_records: bool = True
    """Whether errors hold the beginning of a record's content."""

    @property
    def fields(self) -> frozenset[str]:
        """Which fields of a record are looked at."""
        if isinstance(self.place, InJson):
            return frozenset({self.place.field})
        return frozenset({"headers"} if isinstance(self.place, InHeader) else {"key", "value", "headers"})


@dataclass(frozen=True, slots=True)
class MarkChoice:
    """Where records carry a watermark, and how it is written there."""

    place: Place | None
    """``None``: each record's timestamp is one."""
    written: Format = Format.AUTO
    shows_records: bool = True
    """Whether errors hold the beginning of a record's content."""

    @property
    def fields(self) -> frozenset[str]:
        """Which fields of a record are looked at."""
        return frozenset() if self.place is None else EventTimeChoice(self.place).fields
