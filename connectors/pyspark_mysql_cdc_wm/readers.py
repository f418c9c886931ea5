"""Spark's view of the source: its schema and its stream reader."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.options.mysql_options import FORMAT
from pyspark_mysql_cdc_wm.source import MySqlSource
from watermark_source.spark.source import AlignedStreamReader, refuse_user_schema, stream_schema


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the tables' columns, what tells about changes, then the engine's own; raises as ``MySqlSource.of``."""
    return _schema(MySqlSource.of(given))


def stream_reader(given: Mapping[str, str], schema: StructType) -> AlignedStreamReader:
    """Return the reader; raises as ``MySqlSource.of``, or ``SchemaError`` if the user gave another schema."""
    source = MySqlSource.of(given)
    refuse_user_schema(schema, _schema(source), FORMAT)
    return AlignedStreamReader(
        source,
        source.options.engine,
        schema,
        max_rows=None,
        fail_on_data_loss=source.options.fail_on_data_loss,
    )


def _schema(source: MySqlSource) -> StructType:
    return stream_schema(source.columns, source.options.engine)
