"""The schema that every stream of this project has: the source's own columns, and those that the engine adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType, TimestampType

from watermark_source.errors import SchemaError
from watermark_source.spark.column_names import EVENT_TIME, KEY, LATE, MARKER

if TYPE_CHECKING:
    from watermark_source.spark.options import EngineOptions
    from watermark_source.spark.source_time import SourceTime

MARKER_TYPE = StructType(
    [
        StructField("type", StringType()),
        StructField("log", StringType()),
        StructField("split", IntegerType()),
        StructField("watermark", TimestampType()),
        StructField("status", StringType()),
        StructField("use_processing_time", BooleanType()),
        StructField("reason", StringType()),
    ]
)
"""``type`` is ``watermark`` or ``status``. ``log`` and ``split`` are null for the whole source."""


def stream_schema(system_columns: StructType, options: EngineOptions, declared: SourceTime | None = None) -> StructType:
    """Return the stream's schema: the system's own columns, ``event_time``, and ``late`` and ``marker`` if wanted.

    ``declared``: what the source declares of its time, in the metadata of ``marker``.

    Raises:
        SchemaError: the system has a column of one of these names; Spark ignores case.
    """
    added = [StructField(EVENT_TIME, TimestampType())]
    if options.include_late:
        added.append(StructField(LATE, BooleanType()))
    if options.policy.sends_markers:
        added.append(StructField(MARKER, MARKER_TYPE, metadata=None if declared is None else declared.metadata))
    ours = {field.name for field in added}
    if taken := sorted(name for name in system_columns.names if name.lower() in ours):
        raise SchemaError(
            f"the source has columns of its own named {', '.join(taken)}; every stream of this project adds "
            f"{', '.join(field.name for field in added)}, so they need other names"
        )
    return StructType([*system_columns.fields, *added])


def refuse_user_schema(given: StructType, own: StructType, format_name: str) -> None:
    """Raise ``SchemaError`` if the stream was given another schema than the source's own.

    A table (``CREATE TABLE ... USING``) gives that of the options, and of the release, that it was made with.
    """
    if _columns(given) != _columns(own):
        raise SchemaError(
            f'format("{format_name}") has a fixed schema and takes none from the user: seen {given.simpleString()}, '
            f"the source's is {own.simpleString()}. Leave .schema(...) out and select or cast columns after load(); of "
            "a table, leave the options out that change its columns, and write them in CREATE TABLE … OPTIONS (…)"
        )
    seen, now = _stated(given), _stated(own)
    if changed := sorted(name for name in seen.keys() | now.keys() if seen.get(name) != now.get(name)):
        texts = "; ".join(f"{name} {seen.get(name, 'not set')}, now {now.get(name, 'not set')}" for name in changed)
        raise SchemaError(
            f'format("{format_name}"): what the table states of its time is of other options: {texts}. Write these in '
            "CREATE TABLE … OPTIONS (…) of a table of their own; without a table, leave .schema(...) out"
        )


def _columns(schema: StructType) -> list[tuple[Any, ...]]:
    return [(field.name, field.dataType, field.nullable) for field in schema]


def _stated(schema: StructType) -> dict[str, Any]:
    """Return what columns state of their source's time, without names and words: those are for messages."""
    stated = (pair for field in schema for pair in (field.metadata or {}).get(KEY, {}).items())
    return {key: value for key, value in stated if key not in ("source", "words")}
