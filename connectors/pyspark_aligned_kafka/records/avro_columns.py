"""The column of decoded Avro: values of one schema, or behind the ids of a registry's schemas."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from pyspark.sql.types import DecimalType

from pyspark_aligned_kafka.client.kept_schemas import version_of
from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_aligned_kafka.records.avro_cells import DEPTH, Fault, read_all
from pyspark_aligned_kafka.records.avro_resolver import Resolver, UnresolvableError
from pyspark_aligned_kafka.records.avro_schema import AvroType, members_alone, spark_type, type_of
from pyspark_aligned_kafka.records.avro_unshared import unshared
from pyspark_aligned_kafka.records.json_members import Misplaced
from pyspark_aligned_kafka.records.payload import (
    Decoded,
    IdHeader,
    Paths,
    PayloadChoice,
    PayloadSchema,
    Values,
    needed_registry,
)
from pyspark_aligned_kafka.records.payload_cells import CellColumns, CellKind, arrow_type
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.writer_schemas import WriterSchemas, first_reasons
from watermark_source.errors import SchemaError, shortened

_MOST_READERS = 100
"""Limit on the readers' schemas that are kept in memory."""
_MOST_CODE = 1 << 22
"""Limit on the numbers of code that writers' schemas are resolved to, in memory."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The reader's schema, and where those of writers are."""

    text: str
    references: tuple[str, ...]
    """Texts of the schemas that it refers to."""
    registry: SchemaRegistry | None
    """Used where values are behind the ids of their schemas."""
    paths: Paths = ()
    """The members of it that are read; empty: all. Behind a single one nothing of a value is looked at."""

    def types(self) -> tuple[AvroType, AvroType]:
        """Return what values without an id are written with, and what is read of them."""
        whole = type_of(self.text, self.references)
        return whole, members_alone(whole, self.paths)


def avro_schema(text: str, registry: SchemaRegistry | None, paths: Paths = ()) -> PayloadSchema:
    """Read the reader's schema: JSON, or with a registry a subject's version there, as ``orders-value:3``.

    With ``paths`` no more of it is read than these members.

    Raises:
        ValueError: it is no schema of Avro, or has no type in Spark.
        RefusedError, UnreachableError, ResponseTimeoutError: the registry returned no schema.
    """
    references: tuple[str, ...] = ()
    subject, colon, version = text.rpartition(":")
    try:
        if colon and text[0] not in '{["':
            if not subject:
                raise ValueError("there is no subject before the colon")
            found = version_of(needed_registry(registry), subject, version)
            if found.kind != "AVRO":
                raise ValueError(f"its type is {shortened(found.kind)}, not AVRO")
            text, references = found.text, found.references
        definition = AvroSchema(text, references, registry, paths)
        kind = spark_type(definition.types()[1])
    except SchemaError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("its types contain each other too deeply, a thousand of them") from None
    return PayloadSchema(kind, definition)


class _Resolution:
    """A reader's schema, and the writers' schemas that were resolved to it.

    A process has one for each reader's schema; it serves any number of reads.
    """

    def __init__(self, definition: AvroSchema, field: str, columns: CellColumns) -> None:
        self._definition, self._field = definition, field
        self._whole, self._reader = definition.types()
        to_member = self._reader is not self._whole and len(definition.paths) == 1
        self.resolver = Resolver(self._reader, columns.children, to_member=to_member)
        self.resolver.reasons += first_reasons(definition.registry)
        self._entries: dict[tuple[int | UUID, RegisteredSchema | str], int] = {}
        """By schemas, and by the texts of errors where there is none."""
        self._own: int | None = None
        self.misplaced: dict[int, Misplaced] = {}
        """Of an entry whose writer has no field of the reader's: the fields of both."""
        self._lock = threading.Lock()
        self._code, self._constants = np.empty(0, np.int64), np.empty(0, np.uint8)

    @property
    def tables(self) -> tuple[Longs, Bytes]:
        """The code and the constants, for all entries that have been returned."""
        with self._lock:
            if len(self._code) != len(self.resolver.code):
                self._code = np.array(self.resolver.code, np.int64)
                self._constants = np.frombuffer(bytes(self.resolver.constants), np.uint8).copy()
            return self._code, self._constants

    def own_entry(self) -> int:
        """Return the entry of values without an id."""
        with self._lock:
            if self._own is None:
                self._own = self.resolver.entry(self._whole)
            return self._own

    def entry(self, number: int | UUID, schema: RegisteredSchema | SchemaError) -> int:
        """Return the entry of values of a writer's schema, below zero if they are refused or it cannot be read."""
        with self._lock:
            key = (number, str(schema) if isinstance(schema, SchemaError) else schema)
            if key not in self._entries:
                self._entries[key] = self._resolved(number, schema)
            return self._entries[key]

    def _resolved(self, number: int | UUID, schema: RegisteredSchema | SchemaError) -> int:
        if isinstance(schema, SchemaError):
            return self._refused(f"schema {number} is not read: {schema}")
        if schema.kind != "AVRO":
            return self._refused(f"the type of schema {number} is {shortened(schema.kind)}, not AVRO")
        reasons = self.resolver.reasons
        known = len(reasons)
        names = (
            f"its writer's schema {number}, {shortened(schema.text)}, does not resolve to {self._field}Schema, "
            f"{shortened(self._definition.text)}: "
        )
        try:
            writer = type_of(schema.text, schema.references)
            entry = self.resolver.entry(writer)
            if (wrong := unshared(writer, self._reader)) is not None:
                self.misplaced[entry] = wrong
        except SchemaError as error:
            return self._refused(f"schema {number} is not read: {error}")
        except UnresolvableError as problem:
            return self._refused(f"{names}{problem}")
        reasons[known:] = [f"{names}{reason}" for reason in reasons[known:]]
        return entry

    def _refused(self, why: str) -> int:
        self.resolver.reasons.append(why)
        return int(Fault.REFUSED) - (len(self.resolver.reasons) - 1)


_resolutions: dict[tuple[AvroSchema, str], _Resolution] = {}


def _resolution(definition: AvroSchema, field: str, columns: CellColumns) -> _Resolution:
    """Return the one of a reader's schema; ``columns`` are those of its type."""
    known = _resolutions.get((definition, field))
    if known is None or len(known.resolver.code) > _MOST_CODE:
        if len(_resolutions) >= _MOST_READERS:
            _resolutions.clear()
        known = _resolutions[definition, field] = _Resolution(definition, field, columns)
    return known


class AvroReader:
    """``PayloadReader`` of Avro."""

    def __init__(self, choice: PayloadChoice) -> None:
        definition: AvroSchema = choice.definition
        self._choice = choice
        self._registry = definition.registry if choice.framed else None
        self._type = arrow_type(choice.schema)
        self._columns = CellColumns(choice.schema, {DecimalType: CellKind.WIDE}, unique_keys=True)
        self._resolution = _resolution(definition, choice.field, self._columns)
        self._schemas = WriterSchemas(self._registry, self._resolution.entry, refused=int(Fault.REFUSED))
        self._reported: set[int] = set()
        """Entries whose writer has no field of the reader's."""
        self._own = self._resolution.own_entry() if self._registry is None else 0
        self._frames = np.zeros((DEPTH, 4), np.int64)

    def read(self, values: Values, header: IdHeader = None) -> Decoded:
        """Decode values; see ``PayloadReader``.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: the registry returned no schema.
        """
        rows, made, data = len(values.starts), self._columns, values.data
        begins, sizes, entries = values.starts, values.lengths, np.full(rows, self._own, np.int64)
        if self._registry is not None:
            ids, entries = self._schemas.read(data, begins, sizes, header)
            begins, sizes = ids.starts, ids.lengths
            for entry in self._resolution.misplaced.keys() - self._reported:
                if len(of_entry := np.flatnonzero(entries == entry)):
                    self._reported.add(entry)
                    self._choice.report_misplaced(values, int(of_entry[0]), self._resolution.misplaced[entry])
        # The texts of constants are copied into the column: they must last until it is built.
        code, constants = self._resolution.tables
        faults = np.empty(rows, np.int64)
        made.fill(
            rows,
            lambda: read_all(data, begins, sizes, *made.arrays, entries, code, constants, self._frames, faults),
        )
        column = made.column(data, self._type)
        bad, wrong = int(np.count_nonzero(faults)), ""
        if bad:
            row = int(np.flatnonzero(faults)[0])
            fault, reasons = int(faults[row]), self._resolution.resolver.reasons
            wrong = reasons[Fault.REFUSED - fault] if fault <= Fault.REFUSED else Fault(fault).text
            self._choice.report(values, row, wrong, bad)
        return Decoded(column, bad, wrong)
