"""The payload of records, decoded: what the user chose about keys or values, and what decodes them.

The formats are in ``payload_formats``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from pyspark.sql.types import DataType

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.payload_schema import CORRUPT_MEMBER
from watermark_source.errors import PayloadError
from watermark_source.planning.split import Split
from watermark_source.spark_process import ABOUT

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
    from pyspark_aligned_kafka.records.json_members import Misplaced
    from pyspark_aligned_kafka.records.json_path import JsonPath
    from pyspark_aligned_kafka.records.record_batches import Bytes, Longs

_log = logging.getLogger(__name__)
_SHOWN = 80
"""Bytes of a document that an error contains."""
KEY, VALUE = "key", "value"
JSON = "json"
NO_ID = "it does not begin with a zero byte and the id of a schema, and no header has one"


Paths: TypeAlias = tuple[tuple[str, ...], ...]
"""The members that are decoded where no column is delivered, by their names from the outermost; empty: all."""


class PayloadSchema(NamedTuple):
    """What a schema of the user means."""

    type: DataType
    """Of the column."""
    definition: Any = None
    """What the format's reader needs beside the type. Picklable."""


def needed_registry(registry: SchemaRegistry | None) -> SchemaRegistry:
    """Return the registry for a schema that is a version of a subject; raises ``ValueError`` without one."""
    if registry is None:
        raise ValueError("a version of a subject needs the option schemaRegistry")
    return registry


def _log_warning(text: str, about: str) -> None:
    _log.warning("%s", text, extra={ABOUT: about})


@dataclass(frozen=True, slots=True)
class PayloadChoice:
    """How the keys or the values of records are decoded."""

    schema: DataType
    format: str = JSON
    definition: Any = None
    field: str = VALUE
    """``key`` or ``value``."""
    column: str | None = "payload"
    """``None``: there is none, and nothing but the event time is decoded."""
    fail_fast: bool = False
    zone: str = "UTC"
    """Of timestamps without one."""
    shows_records: bool = True
    """Whether errors and logs hold the beginning of a document."""
    framed: bool = False
    """Whether the id of a schema is in a header of each record, or with a zero byte before each value (Confluent's wire
    format)."""
    located: JsonPath | None = None
    """The path of event time in JSON, if it is there: the reader then returns where that is."""
    warn: Callable[[str, str], None] = _log_warning
    """Receives what is wrong with values, and what it is about: lines about one thing are alike."""

    def report(self, values: Values, row: int, wrong: str, count: int) -> None:
        """Log the first bad document of a block of records, which has ``count`` of them.

        Raises:
            PayloadError: with the mode FAILFAST.
        """
        begin = f", which begins with {values.document(row)[:_SHOWN]!r}" if self.shows_records else ""
        what = f"{values.where(row)}: the {self.field} does not fit {self.field}Schema: {wrong}{begin}"
        if self.fail_fast:
            kept = (
                f", and the text of the document is in the STRING member {CORRUPT_MEMBER}, if {self.field}Schema has it"
                if self.format == JSON
                else ""
            )
            raise PayloadError(f"{what}. valueMode is FAILFAST; with PERMISSIVE such members are null{kept}")
        so = "members are null" if self.column is not None else "records have no event time"
        self.warn(f"{what}. Such {so}; {count} of one block of records", wrong.partition(":")[0])

    def report_misplaced(self, values: Values, row: int, wrong: Misplaced) -> None:
        """Log that the documents of a block of records lack members that the schema names."""
        there = wrong.there if self.shows_records else "recordsInErrors=true shows what they have"
        self.warn(
            f"{values.where(row)} and the {self.field}s behind it have no {wrong.missing}, which {self.field}Schema "
            f"names: {wrong.reads} in every row; {there}",
            "misplaced",
        )


class Values(NamedTuple):
    """The keys or the values of a block of one partition's records."""

    split: Split
    data: Bytes
    starts: Longs
    """Where in ``data`` each begins."""
    lengths: Longs
    """Below zero for a null."""
    offsets: Longs
    """Of their records."""

    def document(self, row: int) -> bytes:
        """Return a value that is no null."""
        return self.data[self.starts[row] : self.starts[row] + self.lengths[row]].tobytes()

    def where(self, row: int) -> str:
        """Return where the record of a value is, for a message."""
        return place(self.split, int(self.offsets[row]))


class Places(NamedTuple):
    """What the pass over a block's documents found at one path, as ``JsonScan.find`` returns it."""

    path: JsonPath
    found: Longs
    left: Longs
    """Rows of which the pass does not know it."""


class Decoded(NamedTuple):
    """The decoded values of a block."""

    column: pa.Array
    """One of each value, null where there is none."""
    malformed: int
    """Number of values that do not fit the schema."""
    wrong: str = ""
    """Why the first of these does not."""
    places: Places | None = None
    """Of the path ``PayloadChoice.located``; ``None``: the reader does not find it."""


IdHeader: TypeAlias = "tuple[Longs, Longs] | None"
"""Where the header with the id of each value's schema begins, and its size, below zero where the record has none; of a
block without headers ``None``."""


class PayloadReader(Protocol):
    """Decodes the values of records. Scratch memory is kept from call to call: it serves one read at a time."""

    def read(self, values: Values, header: IdHeader = None) -> Decoded:
        """Decode values, whose ids may be in a header.

        Nothing outside of a value and its header is read. A bad value has no effect on another, and is reported by
        ``PayloadChoice.report``.

        Raises:
            PayloadError: with the mode FAILFAST, the first bad value.
        """
