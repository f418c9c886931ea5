"""Kafka topics as a Spark stream with its own watermark, or as a batch: ``format("aligned-kafka")``.

Spark imports this module whenever any format is looked up, so it imports nothing of its own until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
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
        schema: StructType = _called("schema_of", self.options)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream's reader; its first call refuses a schema given by the user."""
        reader: DataSourceStreamReader = _called("stream_reader", self.options, schema)
        return reader

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch's reader; refuses a schema given by the user."""
        reader: DataSourceReader = _called("batch_reader", self.options, schema)
        return reader


def _called(name: str, *arguments: object) -> Any:
    """Call a function of ``spark_readers``, or say what the installation lacks."""
    from watermark_source.option_table import need  # noqa: PLC0415 - see the module's docstring
    from watermark_source.spark_process import sentence_first  # noqa: PLC0415 - see the module's docstring

    with sentence_first():
        need(_NEEDED, DefaultSource.name(), extra="kafka")
        from pyspark_aligned_kafka import source  # noqa: PLC0415 - see the module's docstring

        return getattr(source, name)(*arguments)
