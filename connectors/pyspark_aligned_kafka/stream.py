"""Spark's view of the source: its schema and its stream reader."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from pyspark_aligned_kafka.options import FORMAT
from pyspark_aligned_kafka.schema import kafka_columns
from pyspark_aligned_kafka.source import KafkaSource
from watermark_source.spark.source import AlignedStreamReader, refuse_user_schema, stream_schema


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the chosen columns of Spark's Kafka schema, then the engine's own; raises ``OptionError``."""
    return _schema(KafkaSource.of(given))


def stream_reader(given: Mapping[str, str], schema: StructType) -> AlignedStreamReader:
    """Return the reader; raises ``OptionError``, or ``SchemaError`` if the user gave another schema."""
    source = KafkaSource.of(given)
    refuse_user_schema(schema, _schema(source), FORMAT)
    return AlignedStreamReader(
        source,
        source.options.engine,
        schema,
        max_rows=source.options.max_offsets_per_trigger,
        hold=source.options.hold,
        fail_on_data_loss=source.options.fail_on_data_loss,
    )


def _schema(source: KafkaSource) -> StructType:
    return stream_schema(kafka_columns(source.options.columns), source.options.engine)
