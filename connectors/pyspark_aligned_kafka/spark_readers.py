"""Spark's view of the source: its schema, its stream reader and its batch reader."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_aligned_kafka.batch import KafkaBatch, ignored
from pyspark_aligned_kafka.client.setting_table import may_be_secret
from pyspark_aligned_kafka.options.kafka_option_table import FORMAT, OPTION_TABLE
from pyspark_aligned_kafka.options.positions import start_of_stream
from pyspark_aligned_kafka.schema import kafka_columns
from pyspark_aligned_kafka.source import KafkaSource
from watermark_source.eventtime.watermark_characteristic import WatermarkCharacteristic
from watermark_source.spark.batch_reader import AlignedBatchReader, NarrowingBatchReader
from watermark_source.spark.stream_reader import AlignedStreamReader, made_or_refused, refuse_user_schema, stream_schema
from watermark_source.spark.table_options import kept_in_schema, taken_from_schema

_log = logging.getLogger(__name__)


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the chosen columns of Spark's Kafka schema, then the engine's own; raises ``OptionError``."""
    return kept_in_schema(_schema(KafkaSource.of(given)), given, _is_secret)


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader; its first call raises ``OptionError``, or ``SchemaError`` if the user gave another schema."""
    return made_or_refused(partial(_stream_reader, given, schema))


def _stream_reader(given: Mapping[str, str], schema: StructType) -> AlignedStreamReader:
    given, schema = taken_from_schema(schema, given)
    source = KafkaSource.of(given)
    start_of_stream(source.options.start, source.options.end)
    refuse_user_schema(schema, _schema(source), FORMAT)
    return AlignedStreamReader(
        source,
        source.options.engine,
        schema,
        max_rows=source.options.limits.max_offsets,
        minimum_rows=source.options.limits.minimum_rows,
        fail_on_data_loss=source.options.loss.fails,
    )


def batch_reader(given: Mapping[str, str], schema: StructType) -> AlignedBatchReader:
    """Return the reader; raises ``OptionError``, or ``SchemaError`` if the user gave another schema.

    Options that belong to streams are ignored and named.
    """
    given, schema = taken_from_schema(schema, given)
    source = KafkaSource.of(given)
    refuse_user_schema(schema, _schema(source), FORMAT)
    if names := ignored(given):
        _log.warning("A batch read ignores %s", ", ".join(names))
    kind = NarrowingBatchReader if source.options.push_down else AlignedBatchReader
    return kind(KafkaBatch.of(source.options), source.options.engine, schema)


def _schema(source: KafkaSource) -> StructType:
    columns = kafka_columns(source.options.columns)
    return stream_schema(columns, source.options.engine, WatermarkCharacteristic.ANY_WATERMARK)


def _is_secret(name: str) -> bool:
    secrets = {option.name.lower() for option in OPTION_TABLE.options if option.secret}
    return name in secrets or (name.startswith("kafka.") and may_be_secret(name.removeprefix("kafka.")))
