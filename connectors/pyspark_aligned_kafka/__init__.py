"""Kafka topics as a Spark stream with its own watermark, or as a batch: ``format("aligned-kafka")``.

Spark imports this module whenever any format is looked up, so its methods import the connector's own modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watermark_source.connector import AlignedDataSource

if TYPE_CHECKING:
    from pyspark_aligned_kafka.announcing.announcer import WatermarkAnnouncer
    from pyspark_aligned_kafka.announcing.query import announce_watermark
    from pyspark_aligned_kafka.source import KafkaBatch, KafkaSource
    from watermark_source.connector import Abilities, OptionTable, RowLimits, SourceOptions

__all__ = ["DefaultSource", "WatermarkAnnouncer", "announce_watermark"]

DOCTOR_FLAG = "kafka"
"""The flag of ``python -m watermark_source doctor``, which runs the module ``doctor`` of this package."""
PROFILE_FLAG = "kafka"
"""The flag of ``python -m watermark_source profile``, which runs the module ``profile`` of this package."""
PROFILE_HELP = (
    "For example: --kafka --kafka.bootstrap.servers localhost:9092 --subscribe orders "
    "--eventTimeColumn 'value:$.created_at'"
)
"""What it adds to the help of that command."""
WATERMARKS_FLAG = "kafka"
"""The flag of ``python -m watermark_source watermarks``, which runs ``announcing.audit`` of this package."""
WATERMARKS_HELP = (
    "--topic: the data topic. audit also accepts --writerColumn key or header:NAME, --copiesBy record (the default) or "
    "key, and --eventTimeFormat. For example: --kafka --kafka.bootstrap.servers localhost:9092 --topic sessions "
    "--eventTimeColumn 'value:$.end' audit."
)
"""What it adds to the help of that command."""
_ANNOUNCING = {"WatermarkAnnouncer": "announcer", "announce_watermark": "query"}


def __getattr__(name: str) -> Any:
    """Import what announces watermarks when it is first used."""
    if name not in _ANNOUNCING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.announcing.{_ANNOUNCING[name]}"), name)


class DefaultSource(AlignedDataSource):
    """The format ``aligned-kafka``. Its options are listed in docs/options.md."""

    format_name = "aligned-kafka"
    needed_packages = ("kafka", "numba", "cramjam", "zstandard")
    requirement = "watermark-source[kafka]"
    task_module = "pyspark_aligned_kafka.reading.range_reader"

    def option_table(self) -> OptionTable:
        """Return the options of Spark's Kafka source, this one's, and those of every source."""
        from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE  # noqa: PLC0415

        return OPTION_TABLE

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        """Return what every topic can do."""
        from pyspark_aligned_kafka.options.kafka_options import ABILITIES  # noqa: PLC0415

        return ABILITIES

    def row_limits(self, options: SourceOptions) -> RowLimits:
        """Return ``maxOffsetsPerTrigger`` and ``minOffsetsPerTrigger``."""
        from pyspark_aligned_kafka.options.kafka_options import row_limits  # noqa: PLC0415

        return row_limits(options)

    def source(self, options: SourceOptions) -> KafkaSource:
        """Return the source with its options."""
        from pyspark_aligned_kafka.options import kafka_options  # noqa: PLC0415
        from pyspark_aligned_kafka.source import KafkaSource  # noqa: PLC0415

        return KafkaSource(kafka_options.meaning_of(options))

    def check_stream(self, options: SourceOptions) -> None:
        """Refuse the ends of a batch, and a first reading of nothing."""
        from pyspark_aligned_kafka.options import kafka_options  # noqa: PLC0415
        from pyspark_aligned_kafka.options.positions import start_of_stream  # noqa: PLC0415

        meant = kafka_options.meaning_of(options)
        start = start_of_stream(meant.start, meant.end)
        kafka_options.check_first_reading(meant, start)

    def batch(self, options: SourceOptions) -> KafkaBatch:
        """Return the batch between the user's starting and ending options."""
        from pyspark_aligned_kafka.options import kafka_options  # noqa: PLC0415
        from pyspark_aligned_kafka.source import KafkaBatch  # noqa: PLC0415

        return KafkaBatch.of(kafka_options.meaning_of(options))
