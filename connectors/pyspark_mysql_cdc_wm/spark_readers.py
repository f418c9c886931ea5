"""Spark's view of the source: its schema and its stream reader."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.options.mysql_option_table import FORMAT, OPTION_TABLE
from pyspark_mysql_cdc_wm.source import MySqlSource
from watermark_source.eventtime.watermark_characteristic import WatermarkCharacteristic
from watermark_source.spark.stream_reader import AlignedStreamReader, made_or_refused, refuse_user_schema, stream_schema
from watermark_source.spark.table_options import kept_in_schema, taken_from_schema


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the tables' columns, what tells about changes, then the engine's own; raises as ``MySqlSource.of``."""
    return kept_in_schema(_schema(MySqlSource.of(given)), given, _is_secret)


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader; its first call raises as ``MySqlSource.of``: what ``load()`` found in order may no longer be.

    Or it raises ``SchemaError`` if the user gave another schema.
    """
    return made_or_refused(partial(_stream_reader, given, schema))


def _stream_reader(given: Mapping[str, str], schema: StructType) -> AlignedStreamReader:
    given, schema = taken_from_schema(schema, given)
    source = MySqlSource.of(given)
    refuse_user_schema(schema, _schema(source), FORMAT)
    return AlignedStreamReader(
        source,
        source.options.engine,
        schema,
        max_rows=source.options.max_rows,
        fail_on_data_loss=source.options.fail_on_data_loss,
    )


def _schema(source: MySqlSource) -> StructType:
    return stream_schema(
        source.columns,
        source.options.engine,
        WatermarkCharacteristic.ANY_WATERMARK,
        begins_with_snapshot=source.options.reads_tables,
    )


def _is_secret(name: str) -> bool:
    return name in {option.name.lower() for option in OPTION_TABLE.options if option.secret}
