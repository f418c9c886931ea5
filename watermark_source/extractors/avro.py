"""``avro_event_time``: returns a function for ``eventTimeColumn`` that reads a field of Avro values."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watermark_source import durations
from watermark_source.errors import SchemaError, UsageError, listed, shortened
from watermark_source.extractors.avro_plan import NO_TIME, WalkPlan, plan_of
from watermark_source.extractors.avro_walk import walk
from watermark_source.extractors.schema_registry import (
    Extractor,
    SchemaRegistry,
    checked_path,
    framed,
    moments_array,
)
from watermark_source.machine_code.iso_8601 import NO_MOMENT
from watermark_source.machine_code.native import NOT_FRAMED

_log = logging.getLogger(__name__)

_UNKNOWN_SECONDS = 60
"""Seconds until a schema that the registry did not have is requested again."""
_MOST_UNKNOWN = 100
"""Limit on such schemas within that time. A value that begins with a zero byte by chance, or on purpose, has one of
four billion ids, and each would be a request."""


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
    """Return a function that reads the event time of Avro records in Confluent's wire format.

    Compiled code walks each value to the field, by its writer's schema, and decodes no other field. A value has no
    event time if it is null, not in the wire format or truncated, or if the field is null: ``eventTimeErrors`` decides
    about its record. The same holds if the registry (or ``schemas``) has no schema of the value's id, the schema is not
    Avro's, it has no such field, or the field's type is no timestamp; each such schema is logged once.

    Args:
        field: the field's name; ``outer.inner`` for a field of a nested record. Its type is ``int`` or ``long``, with
            or without a logical type, or ``string`` with ISO 8601, and may be in a union.
        schema_registry: the registry's address. A process requests each schema once.
        schemas: instead of a registry: schemas by their ids, as parsed JSON, as JSON text, or as a file's path.
        unit: unit of numbers without a logical type: ``seconds``, ``millis``, ``micros``, ``nanos`` or ``days``.
        column: ``value`` or ``key``.
        user_info: the registry's login, ``user:password``.
        token: a bearer token, instead of ``user_info``.
        timeout: time limit for a schema from the registry, all retries included.

    Raises:
        UsageError: the arguments do not fit together.
        SchemaError: one of ``schemas`` is no Avro schema, or its field's type is no timestamp.

    The function raises ``UnreachableError``, ``ResponseTimeoutError`` or ``RefusedError`` if the registry does not
    return schemas, because the event times of its records are then unknown.
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
    """The function. It caches for each schema a plan, or the reason why its values have no event time."""

    def __init__(
        self, path: tuple[str, ...], unit: str, column: str, registry: SchemaRegistry | None, plans: dict[int, WalkPlan]
    ) -> None:
        self._path = path
        self._unit = unit
        self._column = column
        self._registry = registry
        self._plans: dict[int, WalkPlan | str] = {number: self._usable(plan) for number, plan in plans.items()}
        self._given = listed(plans)
        self._logged: set[int] = set()
        self._unknown: dict[int, float] = {}
        """Ids that the registry did not have, and the monotonic time in seconds from which they are requested again."""
        self._logged_at = -math.inf

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        values = framed(records, self._column)
        micros = np.full(len(values.ids), NO_MOMENT, np.int64)
        unknown: dict[int, str] = {}
        # In ascending order: registries number schemas from 1 on, and ids by chance are mostly higher.
        for number in np.unique(values.ids).tolist():
            if number == NOT_FRAMED:
                continue
            plan = self._plan(number)
            if isinstance(plan, WalkPlan):
                walk(values, number, plan, micros)
            elif number not in self._plans:
                unknown[number] = plan
            elif number not in self._logged:
                self._logged.add(number)
                _log.warning("records of schema %d have no event time: %s", number, plan)
        if unknown:
            self._log_unknown(unknown)
        return moments_array(micros)

    def explain(self, records: pa.RecordBatch) -> str:
        """Return why the first record has no event time, for the error that names it."""
        number = int(framed(records, self._column).ids[0])
        if number == NOT_FRAMED:
            return f"a {self._column} that is null, or does not begin with a zero byte and the id of a schema"
        plan = self._plan(number)
        if isinstance(plan, WalkPlan):
            return f"a value of schema {number} that is cut short, or whose field {self._field} is null or no moment"
        return f"a value of schema {number}: {plan}"

    @property
    def _field(self) -> str:
        return ".".join(self._path)

    def _plan(self, number: int) -> WalkPlan | str:
        """Return the plan of a schema, or why its values have no event time."""
        known = self._plans.get(number)
        if known is not None:
            return known
        if self._registry is None:
            return f"schemas has the ids {self._given}"
        try:
            plan = self._requested(number, self._registry)
        except SchemaError as error:
            plan = f"field {self._field}: {error}"
        if plan is None:
            return f"the schema registry {self._registry} has no schema of this id"
        self._plans[number] = plan
        return plan

    def _requested(self, number: int, registry: SchemaRegistry) -> WalkPlan | str | None:
        """Request a schema; return ``None`` if the registry does not have it, or too many others were unknown."""
        now = time.monotonic()
        for expired in [schema_id for schema_id, until in self._unknown.items() if until <= now]:
            del self._unknown[expired]
        if number in self._unknown or len(self._unknown) >= _MOST_UNKNOWN:
            return None
        schema = registry.schema(number)
        if schema is None:
            self._unknown[number] = now + _UNKNOWN_SECONDS
            return None
        if schema.kind != "AVRO":
            return f"its type is {shortened(schema.kind)}, not AVRO"
        return self._usable(plan_of(_parsed(schema.text), self._path, self._unit, map(_parsed, schema.references)))

    def _usable(self, plan: WalkPlan) -> WalkPlan | str:
        return plan if plan.entry != NO_TIME else f"it has no field {self._field}"

    def _log_unknown(self, unknown: dict[int, str]) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _UNKNOWN_SECONDS:
            self._logged_at = now
            first, reason = next(iter(unknown.items()))
            _log.warning(
                "records of schemas such as %d have no event time: %s (at most one such line in %d s)",
                first, reason, _UNKNOWN_SECONDS,
            )  # fmt: skip


def _parsed(given: Mapping[str, Any] | str | Path) -> Any:
    if isinstance(given, Mapping):
        return given
    try:
        return json.loads(given.read_text(encoding="utf-8") if isinstance(given, Path) else given)
    except OSError as error:
        raise UsageError(f"avro_event_time: the schema {given} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        # The name of a primitive type is a schema too, and registries store it without quotes.
        if isinstance(given, str) and given.isalpha():
            return given
        raise SchemaError(f"an Avro schema is JSON; seen {str(given)[:80]!r}") from None
