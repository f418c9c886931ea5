"""Kafka topics as a Spark stream with its own watermark, or as a batch: ``format("aligned-kafka")``.

Spark imports this module whenever any format is looked up, so it imports nothing of its own until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

DOCTOR_FLAG = "kafka"
"""``python -m watermark_source doctor --kafka`` is the module ``doctor`` beside this one."""
PROFILE_FLAG = "kafka"
"""``python -m watermark_source profile --kafka`` is the module ``profile`` beside this one."""
_NEEDED = ("pyarrow", "kafka", "numba", "cramjam", "zstandard")


class DefaultSource(DataSource):
    """The format ``aligned-kafka``. Its options are listed in docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "aligned-kafka"

    def schema(self) -> StructType:
        """Check the options and return the schema, which is the same in a stream and in a batch."""
        schema: StructType = _readers().schema_of(self.options)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream's reader; its first call refuses a schema given by the user."""
        reader: DataSourceStreamReader = _readers().stream_reader(self.options, schema)
        return reader

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch's reader; refuses a schema given by the user."""
        reader: DataSourceReader = _readers().batch_reader(self.options, schema)
        return reader


def _readers() -> ModuleType:
    """Import what is behind the format, or say what the installation lacks."""
    from watermark_source.installation import need  # noqa: PLC0415 - see the module's docstring

    need(_NEEDED, DefaultSource.name(), extra="kafka")
    from pyspark_aligned_kafka import spark_readers  # noqa: PLC0415 - see the module's docstring

    return spark_readers
