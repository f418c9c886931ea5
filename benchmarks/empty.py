"""The least that a batch read of a Python source with a filter takes: a source without a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

EMPTY = "empty"


class EmptySource(DataSource):
    """Takes every filter, and reads nothing in one task."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return EMPTY

    def schema(self) -> str:
        """Return a column to filter by."""
        return "timestamp timestamp"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader()


class _Reader(DataSourceReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())
