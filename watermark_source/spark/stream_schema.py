"""The schema that every stream of this project has: the source's own columns, and those that the engine adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType, TimestampType

from watermark_source.errors import SchemaError
from watermark_source.spark.column_names import EVENT_TIME, LATE, MARKER

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
    """Raise ``SchemaError`` if the stream was given another schema than the source's own."""
    if given != own:
        raise SchemaError(
            f'format("{format_name}") has a fixed schema and takes none from the user: seen {given.simpleString()}, '
            f"the source's is {own.simpleString()}. Leave .schema(...) out and select or cast columns after load()."
        )
