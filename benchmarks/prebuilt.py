"""The least a Python source can take: batches of our columns that are there already, handed to Spark over and over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.topics import PARTITIONS, RECORDS, VALUE_SIZE
from pyspark_aligned_kafka import DefaultSource
from watermark_source.spark.markers import arrow_schema

PREBUILT = "prebuilt"
_ROWS = 10_000
"""Of a batch, as in ours."""
_VALUES: dict[str, Any] = {
    "value": bytes(VALUE_SIZE),
    "topic": "even",
    "partition": 0,
    "offset": 0,
    "timestamp": 0,
    "timestampType": 0,
    "event_time": 0,
}


class PrebuiltSource(DataSource):
    """As many rows as the even topic has, in as many partitions, in one batch."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return PREBUILT

    def schema(self) -> StructType:
        """Return the schema of an ``aligned-kafka`` stream."""
        return DefaultSource({"kafka.bootstrap.servers": "unused:9092", "subscribe": "even"}).schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader."""
        return _Reader(schema)


class _Reader(DataSourceStreamReader):
    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"batch": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch(self._schema)
        for _ in range(RECORDS // PARTITIONS // _ROWS):
            yield batch


@cache
def _batch(schema: StructType) -> pa.RecordBatch:
    arrow = arrow_schema(schema)
    columns = [pa.array([_VALUES.get(field.name)] * _ROWS, field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(columns, schema=arrow)
