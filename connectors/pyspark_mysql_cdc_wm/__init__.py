"""MySQL tables as a Spark stream with its own watermark: a snapshot, then the binlog. ``format("mysql-cdc-wm")``.

Spark imports this module whenever any format is looked up, so it imports nothing of its own until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["DOCTOR_FLAG", "DefaultSource"]

DOCTOR_FLAG = "mysql"
"""The flag of ``python -m watermark_source doctor`` that runs the module ``doctor`` of this package."""
_NEEDED = ("pyarrow", "pymysql", "numba", "zstandard")


class DefaultSource(DataSource):
    """The format ``mysql-cdc-wm``. Its options are listed in docs/mysql-options.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "mysql-cdc-wm"

    def schema(self) -> StructType:
        """Check the options and the server, and return the schema of the current tables."""
        schema: StructType = _called("schema_of", self.options)
        return schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream's reader, whose first call refuses a schema that the user gave."""
        reader: DataSourceStreamReader = _called("stream_reader", self.options, schema)
        return reader

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse batch reads, which this format does not have."""
        from watermark_source.errors import UsageError  # noqa: PLC0415 - see the module's docstring
        from watermark_source.spark_process import sentence_first  # noqa: PLC0415 - see the module's docstring

        with sentence_first():
            raise UsageError(
                'format("mysql-cdc-wm") is a stream: use spark.readStream; with the trigger AvailableNow it reads up '
                'to the current end and stops. To read a table once, use Spark\'s format("jdbc")'
            )


def _called(name: str, *arguments: object) -> Any:
    """Call a function of ``source.py``, or raise an error that names the packages to install."""
    from watermark_source.option_table import need  # noqa: PLC0415 - see the module's docstring
    from watermark_source.spark_process import sentence_first  # noqa: PLC0415 - see the module's docstring

    with sentence_first():
        need(_NEEDED, DefaultSource.name(), extra="mysql")
        from pyspark_mysql_cdc_wm import source  # noqa: PLC0415 - see the module's docstring

        return getattr(source, name)(*arguments)
