"""The ``aligned-kafka`` source as one query configured it: what the engine opens on the driver and reads in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_aligned_kafka.errors import spark_conditions
from pyspark_aligned_kafka.lookup.spark_source_offsets import foreign_positions
from pyspark_aligned_kafka.options import kafka_options as options
from pyspark_aligned_kafka.options.kafka_option_table import FORMAT
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.options.subscription import selection_text, selects_topic
from pyspark_aligned_kafka.records.event_time_choice import WithoutTime
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.split import Split
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.connector.stream import Connector, SourceDefinition

if TYPE_CHECKING:
    from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader


@dataclass(frozen=True, slots=True)
class KafkaSource(SourceDefinition):
    """The source with its options."""

    options: KafkaOptions

    @classmethod
    def of(cls, given: Mapping[str, str]) -> KafkaSource:
        """Check the user's options; raises ``OptionError``. Nothing is connected to."""
        return cls(options.parse(given))

    @property
    def name(self) -> str:
        """The format's name."""
        return FORMAT

    @property
    def event_time(self) -> str | None:
        """Where it is, and where watermarks are that records carry."""
        return self.options.times.told

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        """Those of Spark's own Kafka source."""
        return spark_conditions.LOSSES

    @property
    def selection(self) -> str:
        """Which topics are read."""
        return selection_text(self.options.subscription)

    def selects(self, log: str) -> bool:
        """Whether partitions of a topic are read."""
        return selects_topic(self.options.subscription, log)

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        return range_reader(self.options, self.options.columns, stream=True)

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side without columns, for event times alone."""
        return range_reader(self.options, (), stream=True)

    @property
    def reader_ahead(self) -> RangeReader:
        """The executor side without columns, for which a record without an event time is no error."""
        choice = self.options.times.event_time
        if choice is None or choice.without is not WithoutTime.FAIL:
            return self.observing_reader
        times = replace(self.options.times, event_time=replace(choice, without=WithoutTime.NULL))
        return range_reader(replace(self.options, times=times), (), stream=True)

    def open(self) -> Connector:
        """Return the driver side; it connects on first use."""
        # Brings kafka-python with it; of the processes Spark starts for a query only one needs it.
        from pyspark_aligned_kafka.driver import open_connector  # noqa: PLC0415

        return open_connector(self.options)

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Read an offset of Spark's own Kafka source, or return ``None``."""
        return foreign_positions(offset)


def range_reader(given: KafkaOptions, columns: tuple[str, ...], *, stream: bool = False) -> KafkaRangeReader:
    """Return the executor side, which delivers these columns; ``stream``: and looks for watermarks in records."""
    # The reader brings numba with it, which takes its time and is not needed to check options.
    from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader  # noqa: PLC0415

    return KafkaRangeReader(
        client=given.client,
        columns=columns,
        fail_on_data_loss=given.loss.fails,
        poll_timeout_ms=given.reading.poll_timeout_ms,
        decompressed_max_bytes=given.reading.decompressed_max_bytes,
        event_time=given.times.event_time,
        marks=given.times.marks if stream else None,
    )
