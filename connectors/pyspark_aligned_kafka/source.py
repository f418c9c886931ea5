"""The ``aligned-kafka`` source of one query: its stream and batch definitions, its columns and its Spark readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import Filter
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_aligned_kafka import errors
from pyspark_aligned_kafka.lookup.batch_ranges import BatchBounds
from pyspark_aligned_kafka.lookup.pushed_filters import EVERYTHING, Wanted, wanted_by
from pyspark_aligned_kafka.options.kafka_option_table import FORMAT, HEADERS, KAFKA_COLUMNS
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.options.positions import foreign_positions
from pyspark_aligned_kafka.options.subscription import selection_text, selects_topic
from pyspark_aligned_kafka.records.event_time_choice import WithoutTime, is_of_row_before
from pyspark_aligned_kafka.records.payload import PayloadChoice
from watermark_source.connector import (
    BatchDefinition,
    BatchRangeReader,
    Connector,
    OpenRange,
    RangeReader,
    SourceDefinition,
    Split,
    Words,
)

if TYPE_CHECKING:
    from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader

WORDS: Final = Words(
    split="partition",
    limit="maxOffsetsPerTrigger",
    minimum="minOffsetsPerTrigger",
    event_time="eventTimeColumn and eventTimeFormat",
    profile="python -m watermark_source profile --kafka --kafka.bootstrap.servers HOST:9092 --subscribe TOPIC",
    watermarks="python -m watermark_source watermarks --kafka --kafka.bootstrap.servers HOST:9092 --topic TOPIC",
    from_start='.option("startingOffsets", "earliest")',
    at_rest='.option("watermarkStrategy", "ingestion")',
    dated_by='name these times in the source, as in .option("eventTimeColumn", "value:$.{column}")',
    reads_first='.option("whenCaughtUp", "watermark") and .option("startingOffsets", "earliest")',
    undated_delete="A record without a value (a tombstone) has no time in it. Give build "
    '.option("eventTimeErrors", "timestamp"), with which such a record has its own timestamp as event time, or leave '
    "eventTimeColumn out",
    marks="watermarkColumn",
    payload="valueSchema or keySchema has it (see valueMode)",
)


@dataclass(frozen=True, slots=True)
class KafkaSource(SourceDefinition):
    """The source with its options."""

    name = FORMAT
    loss_conditions = errors.LOSSES

    options: KafkaOptions

    @property
    def columns(self) -> StructType:
        """The chosen columns of Spark's Kafka source, and those of decoded keys and values."""
        columns = kafka_columns(self.options.columns)
        for payload in self.options.payloads:
            assert payload.column is not None
            columns.add(payload.column, payload.schema)
        return columns

    @property
    def event_time(self) -> str | None:
        """Where records have it, and where they have their watermarks."""
        return self.options.times_text

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time of the record, as Kafka has it."""
        return ("timestamp",) if self.event_time is None else ()

    @property
    def deletion_time_column(self) -> str | None:
        """The record's timestamp, where event time is a member of the row as it was before its deletion."""
        choice = self.options.event_time
        return "timestamp" if choice is not None and is_of_row_before(choice.place) else None

    @property
    def words(self) -> Words:
        """Kafka's words, and the options of the source."""
        is_on_clock = self.options.engine.policy.strategy.write_delay is not None
        return replace(WORDS, at_rest=None) if is_on_clock else WORDS

    @property
    def selection(self) -> str:
        """The selected topics, as text."""
        return selection_text(self.options.subscription)

    def selects(self, log: str) -> bool:
        """Return whether partitions of a topic are read."""
        return selects_topic(self.options.subscription, log)

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        return range_reader(self.options, self.options.columns, self.options.payloads, stream=True)

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side without columns, for event times alone."""
        return range_reader(self.options, (), stream=True)

    @property
    def reader_ahead(self) -> RangeReader:
        """The executor side without columns, which accepts records without an event time."""
        choice = self.options.event_time
        if choice is None or choice.without is not WithoutTime.FAIL:
            return self.observing_reader
        return range_reader(self.options.with_undated(WithoutTime.NULL), (), stream=True)

    def open(self) -> Connector:
        """Return the driver side; it connects on first use."""
        # Imports kafka-python, which only one of the processes of a query needs.
        from pyspark_aligned_kafka.driver import open_connector  # noqa: PLC0415

        return open_connector(self.options)

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Read an offset of Spark's own Kafka source, or return ``None``."""
        return foreign_positions(offset)


def range_reader(
    given: KafkaOptions, columns: tuple[str, ...], payloads: tuple[PayloadChoice, ...] = (), *, stream: bool = False
) -> KafkaRangeReader:
    """Return the executor side for these columns; ``stream``: it reads watermarks from records too."""
    # The reader imports numba, which takes half a second and is not needed to check options.
    from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader  # noqa: PLC0415

    return KafkaRangeReader(
        client=given.client,
        columns=columns,
        fail_on_data_loss=given.fail_on_data_loss,
        poll_timeout_ms=given.poll_timeout_ms,
        decompressed_max_bytes=given.decompressed_max_bytes,
        event_time=given.event_time,
        marks=given.marks if stream else None,
        payloads=payloads,
    )


# The batch read.


@dataclass(frozen=True, slots=True)
class KafkaBatch(BatchDefinition):
    """The batch between the user's starting and ending options."""

    options: KafkaOptions
    bounds: BatchBounds
    wanted: Wanted = EVERYTHING
    """The positions that the query's filters leave."""

    @classmethod
    def of(cls, options: KafkaOptions) -> KafkaBatch:
        """Check the options that only a batch takes; raises ``OptionError``. Does not connect."""
        return cls(options, BatchBounds.of(options.start, options.end))

    @property
    def range_reader(self) -> BatchRangeReader:
        """The executor side."""
        return range_reader(self.options, self.options.columns, self.options.payloads)

    def late_ranges(self) -> Sequence[OpenRange]:
        """Look the offsets up at the brokers, over connections that are closed again."""
        from pyspark_aligned_kafka.driver import look_up_batch  # noqa: PLC0415 - imports kafka-python

        return look_up_batch(self.options, self.bounds, self.wanted)

    @property
    def takes_filters(self) -> bool:
        """Whether the user lets filters narrow the read (``pushDownPredicate``)."""
        return self.options.push_down

    def narrowed(self, filters: Sequence[Filter]) -> KafkaBatch:
        """Leave out positions that filters on topic, partition, offset and timestamp exclude."""
        return replace(self, wanted=wanted_by(filters, event_time_is_timestamp=self.options.event_time is None))


# The columns of Spark's own Kafka source: names, order, types, all nullable, headers last.


_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}


def kafka_columns(columns: Iterable[str]) -> StructType:
    """Return the chosen columns with the types and the order of Spark's Kafka source."""
    chosen = frozenset(columns)
    return StructType([StructField(name, _TYPES[name]) for name in KAFKA_COLUMNS if name in chosen])
