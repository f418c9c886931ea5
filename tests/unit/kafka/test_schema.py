"""The schema is that of Spark's own Kafka source."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, StructType

from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS
from pyspark_aligned_kafka.source import kafka_columns

# From Spark's Structured Streaming + Kafka guide.
SPARKS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def test_all_columns_are_sparks_with_headers_last() -> None:
    assert kafka_columns(KAFKA_COLUMNS).simpleString() == SPARKS


def test_every_field_is_nullable() -> None:
    schema = kafka_columns(KAFKA_COLUMNS)
    headers = schema["headers"].dataType
    assert isinstance(headers, ArrayType)
    header = headers.elementType
    assert isinstance(header, StructType)
    assert all(field.nullable for field in [*schema.fields, *header.fields])
    assert headers.containsNull


def test_chosen_columns_are_in_sparks_order() -> None:
    assert kafka_columns(["offset", "key"]).simpleString() == "struct<key:binary,offset:bigint>"
