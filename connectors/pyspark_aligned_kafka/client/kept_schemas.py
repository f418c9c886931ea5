"""Schemas of a registry that this process has requested: each partition of each batch has a reader of its own."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

from pyspark_aligned_kafka.client.schema_registry import IDS, VERSIONS, RegisteredSchema, SchemaRegistry
from watermark_source.errors import PayloadError

_MOST_SCHEMAS, _MOST_UNKNOWN = 1_000, 1_000
"""Limits on the schemas, and on the ids without one, that are kept in memory."""
_UNKNOWN_SECONDS = 60
"""Seconds until a schema that the registry did not have is requested again."""
VERSION_NUMBER = "[1-9][0-9]{0,9}"
"""A regular expression for what a version is written as."""
_Key: TypeAlias = tuple[SchemaRegistry, int | UUID, bool]
_schemas: dict[_Key, RegisteredSchema] = {}
_requested_again: dict[_Key, float] = {}
"""Ids that a registry did not have, and when they are requested again, by the monotonic clock."""


def schema_of(registry: SchemaRegistry, number: int | UUID, *, serialized: bool = False) -> RegisteredSchema | None:
    """Return a schema, requested once in this process; ``None`` without one, requested once in ``_UNKNOWN_SECONDS``.

    No schema has an id beyond 31 bits: it is not requested.

    Raises:
        SchemaError, RefusedError, UnreachableError, ResponseTimeoutError: see ``SchemaRegistry.schema``.
        PayloadError: within that time the registry did not have too many others. Each would be a request.
    """
    if isinstance(number, int) and number not in IDS:
        return None
    key, now = (registry, number, serialized), time.monotonic()
    known = _schemas.get(key)
    if known is not None or _requested_again.get(key, now) > now:
        return known
    if len(_requested_again) >= _MOST_UNKNOWN:
        for expired in [each for each, until in _requested_again.items() if until <= now]:
            del _requested_again[expired]
        if len(_requested_again) >= _MOST_UNKNOWN:
            raise PayloadError(
                f"the schema registry {registry} did not have the schemas of {_MOST_UNKNOWN} ids within "
                f"{_UNKNOWN_SECONDS} s, and each is a request to it; the last one is {number}. Are the records in "
                "Confluent's format, and is this their registry? Without ids, write valueFraming = none"
            )
    schema = registry.schema(number, serialized=serialized)
    if schema is None:
        _requested_again[key] = now + _UNKNOWN_SECONDS
    else:
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.clear()
        _schemas[key] = schema
        _requested_again.pop(key, None)
    return schema


def version_of(registry: SchemaRegistry, subject: str, version: str, *, serialized: bool = False) -> RegisteredSchema:
    """Return a version of a subject, which does not change: once it is there it is not requested again.

    Raises:
        ValueError: it is not a version, or the registry has no such version.
        SchemaError, RefusedError, UnreachableError, ResponseTimeoutError: see ``SchemaRegistry.version``.
    """
    if not re.fullmatch(VERSION_NUMBER, version) or int(version) not in VERSIONS:
        raise ValueError(
            f'"{version[:40]}" is not a version, which is a number from 1 to {VERSIONS[-1]}, so that restarted queries '
            "have the same columns"
        )
    return _known_version(registry, subject, int(version), serialized=serialized)


@lru_cache(maxsize=_MOST_SCHEMAS)
def _known_version(registry: SchemaRegistry, subject: str, version: int, *, serialized: bool) -> RegisteredSchema:
    schema = registry.version(subject, version, serialized=serialized)
    if schema is None:
        raise ValueError(f"the schema registry {registry} has no such version")
    return schema
