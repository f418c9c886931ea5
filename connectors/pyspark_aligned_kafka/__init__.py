"""Kafka topics as a Spark stream with its own watermark: ``spark.readStream.format("aligned-kafka")``.

Spark imports this module whenever any format is looked up, so it imports nothing of its own until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

_NEEDED = ("pyarrow", "kafka", "numba", "cramjam")


class DefaultSource(DataSource):
    """The format ``aligned-kafka``. Its options are listed in docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "aligned-kafka"

    def schema(self) -> StructType:
        """Check the options and return the stream's schema."""
        schema: StructType = _stream().schema_of(self.options)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream's reader; refuses a schema given by the user."""
        reader: DataSourceStreamReader = _stream().stream_reader(self.options, schema)
        return reader

    def reader(self, schema: StructType) -> NoReturn:
        """Refuse a batch read: this version has streams only."""
        from watermark_source.errors import UsageError  # noqa: PLC0415 - see the module's docstring

        raise UsageError(
            'format("aligned-kafka") has streams only in this version: use spark.readStream, with '
            '.trigger(availableNow=True) to read what there is and stop; or format("kafka") for a batch'
        )


def _stream() -> ModuleType:
    """Import what is behind the format, or say at once what an installation lacks: most of it is needed later only."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = next((name for name in _NEEDED if find_spec(name) is None), None)
    if missing is not None:
        from watermark_source.errors import UsageError  # noqa: PLC0415

        raise UsageError(
            f'format("aligned-kafka") needs the package {missing}, which is not installed where the driver runs; '
            "install it with: pip install 'watermark-source[kafka]'"
        )
    from pyspark_aligned_kafka import stream  # noqa: PLC0415 - see the module's docstring

    return stream
