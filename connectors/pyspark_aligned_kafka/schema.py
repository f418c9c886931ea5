"""The columns of Spark's own Kafka source: names, order, types, all nullable, headers last."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_aligned_kafka.options.kafka_option_table import HEADERS, KAFKA_COLUMNS

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}


def kafka_columns(columns: Iterable[str]) -> StructType:
    """Return the chosen columns as Spark's Kafka source has them, always in Spark's order."""
    chosen = frozenset(columns)
    return StructType([StructField(name, _TYPES[name]) for name in KAFKA_COLUMNS if name in chosen])
