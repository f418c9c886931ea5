"""A batch read of Kafka topics as one query configured it: what the engine plans with and reads in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import Filter

from pyspark_aligned_kafka.lookup.batch_bounds import BatchBounds
from pyspark_aligned_kafka.lookup.pushed_filters import EVERYTHING, Wanted, wanted_by
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.source import range_reader
from watermark_source.planning.late_bound_ranges import OpenRange
from watermark_source.spark.connector.batch import BatchRangeReader
from watermark_source.spark.options.engine_option_table import ENGINE_OPTIONS, IN_A_BATCH

_STREAMS_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "commitGroupId",
    "watermarkColumn",
    "watermarkFormat",
)


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """``BatchDefinition`` of ``spark.connector``."""

    options: KafkaOptions
    bounds: BatchBounds
    wanted: Wanted = EVERYTHING
    """What the query's filters leave of it."""

    @classmethod
    def of(cls, options: KafkaOptions) -> KafkaBatch:
        """Check what is a batch's alone; raises ``OptionError``. Nothing is connected to."""
        return cls(options, BatchBounds.of(options.start, options.end))

    @property
    def range_reader(self) -> BatchRangeReader:
        """The executor side."""
        return range_reader(self.options, self.options.columns)

    def late_ranges(self) -> Sequence[OpenRange]:
        """Ask the brokers for what there is, over connections that are closed again."""
        from pyspark_aligned_kafka.driver import look_up_batch  # noqa: PLC0415 - brings kafka-python with it

        return look_up_batch(self.options, self.bounds, self.wanted)

    def narrowed(self, filters: Sequence[Filter]) -> KafkaBatch:
        """Leave out what filters on topic, partition, offset and timestamp say is not needed."""
        return replace(self, wanted=wanted_by(filters, event_time_is_timestamp=self.options.times.event_time is None))


def ignored(given: Iterable[str]) -> list[str]:
    """Return those of the options that mean something in a stream only, in the option tables' spelling."""
    streams_only = [*_STREAMS_ONLY, *(row.name for row in ENGINE_OPTIONS if row.name not in IN_A_BATCH)]
    named = {name.lower() for name in given}
    return [name for name in streams_only if name.lower() in named]
