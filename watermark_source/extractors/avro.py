"""``avro_event_time``: a function for ``eventTimeColumn`` that finds a field of Avro values."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watermark_source import durations
from watermark_source.errors import EventTimeError, SchemaError, UsageError, listed
from watermark_source.extractors.avro_plan import NO_TIME, Plan, plan_of
from watermark_source.extractors.avro_walk import walk
from watermark_source.extractors.field_choice import Extractor, checked_path
from watermark_source.extractors.schema_registry import SchemaRegistry
from watermark_source.extractors.time_units import moments_array
from watermark_source.extractors.wire_format import NOT_FRAMED, framed
from watermark_source.machine_code.calendar import NO_MOMENT

_log = logging.getLogger(__name__)


def avro_event_time(
    field: str,
    *,
    schema_registry: str | None = None,
    schemas: Mapping[int, Mapping[str, Any] | str | Path] | None = None,
    unit: str = "millis",
    column: str = "value",
    user_info: str | None = None,
    token: str | None = None,
    timeout: str = "30 seconds",
) -> Extractor:
    """Return a function that finds the event time of Avro records in Confluent's wire format.

    Compiled code walks each value to the field, by its writer's schema, and decodes nothing else. A value that is null,
    not in the wire format, or cut short, or in which the field is null, has no event time: ``eventTimeErrors`` says
    what becomes of it. So has one whose schema has no such field, which is logged once for each schema.

    Args:
        field: the field's name; ``outer.inner`` for one in a record in a record. Its type is ``int`` or ``long``, with
            or without a logical type, or ``string`` with ISO 8601, and may be in a union.
        schema_registry: where schemas are asked for, each once in a process.
        schemas: in place of a registry: schemas by their ids, as parsed JSON, as its text, or as a file's path.
        unit: of numbers without a logical type: ``seconds``, ``millis``, ``micros``, ``nanos`` or ``days``.
        column: ``value`` or ``key``.
        user_info: the registry's login, ``user:password``.
        token: or a bearer token.
        timeout: for a schema from the registry, with all retries.

    Raises:
        UsageError: the arguments do not fit together.
        SchemaError: one of ``schemas`` is no schema of Avro, or the field in it can be no moment.

    The function raises ``EventTimeError`` for a schema that cannot be had, or in which the field can be no moment.
    """
    if (schema_registry is None) == (schemas is None):
        raise UsageError("avro_event_time: give schema_registry, or schemas, and not both")
    path = checked_path("avro_event_time", field, unit, column)
    try:
        timeout_ms = durations.parse_duration(timeout)
    except ValueError:
        raise UsageError(f"avro_event_time: timeout = {timeout!r} is not a duration: {durations.ACCEPTED}") from None
    if schemas is not None:
        plans = {number: plan_of(_parsed(given), path, unit) for number, given in schemas.items()}
        return _AvroTimes(path, unit, column, None, plans)
    assert schema_registry is not None
    registry = SchemaRegistry.of(schema_registry, user_info=user_info, token=token, timeout_ms=timeout_ms)
    return _AvroTimes(path, unit, column, registry, {})


class _AvroTimes:
    """The function. Keeps a plan for each schema that it has seen."""

    def __init__(
        self, path: tuple[str, ...], unit: str, column: str, registry: SchemaRegistry | None, plans: dict[int, Plan]
    ) -> None:
        self._path = path
        self._unit = unit
        self._column = column
        self._registry = registry
        self._plans = plans

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        values = framed(records, self._column)
        micros = np.full(len(values.ids), NO_MOMENT, np.int64)
        for number in np.unique(values.ids).tolist():
            if number != NOT_FRAMED and (plan := self._plan(number)).entry != NO_TIME:
                walk(values, number, plan, micros)
        return moments_array(micros)

    def _plan(self, number: int) -> Plan:
        plan = self._plans.get(number)
        if plan is None:
            plan = self._plans[number] = self._asked(number)
            if plan.entry == NO_TIME:
                _log.warning("schema %d has no field %s: its records have no event time", number, ".".join(self._path))
        return plan

    def _asked(self, number: int) -> Plan:
        if self._registry is None:
            raise EventTimeError(f"a record is of schema {number}, and given are the schemas {listed(self._plans)}")
        found = self._registry.schema(number)
        if found is None:
            raise EventTimeError(f"a record is of schema {number}, which the schema registry {self._registry} has not")
        if found.kind != "AVRO":
            raise EventTimeError(f"a record is of schema {number}, which is one of {found.kind} and not of Avro")
        try:
            return plan_of(_parsed(found.text), self._path, self._unit, map(_parsed, found.references))
        except SchemaError as error:
            raise EventTimeError(f"schema {number}, field {'.'.join(self._path)}: {error}") from None


def _parsed(given: Mapping[str, Any] | str | Path) -> Any:
    if isinstance(given, Mapping):
        return given
    try:
        return json.loads(given.read_text(encoding="utf-8") if isinstance(given, Path) else given)
    except OSError as error:
        raise UsageError(f"avro_event_time: the schema {given} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        # The name of a primitive type is a schema too, and registries keep it without quotes.
        if isinstance(given, str) and given.isalpha():
            return given
        raise SchemaError(f"an Avro schema is JSON; seen {str(given)[:80]!r}") from None
