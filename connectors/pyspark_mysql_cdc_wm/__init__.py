"""MySQL tables as a Spark stream with its own watermark: a snapshot, then the binlog. ``format("mysql-cdc-wm")``.

Spark imports this module whenever any format is looked up, so its methods import the connector's own modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watermark_source.connector import AlignedDataSource

if TYPE_CHECKING:
    from pyspark_mysql_cdc_wm.certification import certify
    from pyspark_mysql_cdc_wm.certified import verify_certified
    from pyspark_mysql_cdc_wm.source import MySqlSource
    from pyspark_mysql_cdc_wm.verify import verify_copy
    from watermark_source.connector import Abilities, BatchDefinition, OptionTable, SourceOptions

__all__ = ["DefaultSource", "certify", "verify_certified", "verify_copy"]

_MODULES = {"certify": "certification", "verify_certified": "certified", "verify_copy": "verify"}
"""Where functions are, which are imported when they are first used."""

DOCTOR_FLAG = "mysql"
"""The flag of ``python -m watermark_source doctor`` that runs the module ``doctor`` of this package."""
VERIFY_FLAG = "mysql"
"""The flag of ``python -m watermark_source verify`` and ``certify``, with the modules of this package."""
VERIFY_HELP = (
    "For example: --mysql --copy parquet:/lake/orders --checkpoint /data/orders_copy --hostname db1.example.org "
    "--username cdc --tables shop.orders"
)
"""What it adds to the help of that command."""


def __getattr__(name: str) -> Any:
    """Import what verifies a copy when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


class DefaultSource(AlignedDataSource):
    """The format ``mysql-cdc-wm``. Its options are listed in docs/mysql-options.md."""

    format_name = "mysql-cdc-wm"
    needed_packages = ("pymysql", "numba", "zstandard")
    requirement = "watermark-source[mysql]"
    task_module = "pyspark_mysql_cdc_wm.reading.range_reader"

    def option_table(self) -> OptionTable:
        """Return the options of Flink CDC in Spark's spelling, this source's, and those of every source."""
        from pyspark_mysql_cdc_wm.options.mysql_option_table import OPTION_TABLE  # noqa: PLC0415

        return OPTION_TABLE

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        """Return that the server dates rows, unless a column does; raises for strategies that rows cannot serve."""
        from pyspark_mysql_cdc_wm.options.mysql_options import abilities  # noqa: PLC0415

        return abilities(values)

    def source(self, options: SourceOptions) -> MySqlSource:
        """Return the source with its options, after the checks of the server and its tables."""
        from pyspark_mysql_cdc_wm.options import mysql_options  # noqa: PLC0415
        from pyspark_mysql_cdc_wm.source import MySqlSource  # noqa: PLC0415

        return MySqlSource.of(mysql_options.meaning_of(options))

    def batch(self, options: SourceOptions) -> BatchDefinition:
        """Refuse batch reads, which this format does not have."""
        from watermark_source.connector import UsageError  # noqa: PLC0415

        raise UsageError(
            'format("mysql-cdc-wm") is a stream: use spark.readStream; with the trigger AvailableNow it reads up '
            'to the current end and stops. To read a table once, use Spark\'s format("jdbc")'
        )
