"""The ``aligned-kafka`` source as one query configured it: what the engine opens on the driver and reads in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, Filter
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
from pyspark_aligned_kafka.client.setting_table import may_be_secret
from pyspark_aligned_kafka.lookup.batch_ranges import BatchBounds
from pyspark_aligned_kafka.lookup.pushed_filters import EVERYTHING, Wanted, wanted_by
from pyspark_aligned_kafka.lookup.spark_source_offsets import foreign_positions
from pyspark_aligned_kafka.options import kafka_options as options
from pyspark_aligned_kafka.options.kafka_option_table import FORMAT, HEADERS, KAFKA_COLUMNS, OPTION_TABLE
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.options.positions import start_of_stream
from pyspark_aligned_kafka.options.subscription import selection_text, selects_topic
from pyspark_aligned_kafka.records.event_time_choice import WithoutTime
from watermark_source.contract.stream import BatchRangeReader, Connector, RangeReader, SourceDefinition
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.batch_reader import AlignedBatchReader, NarrowingBatchReader
from watermark_source.spark.option_rows import ENGINE_OPTIONS, IN_A_BATCH
from watermark_source.spark.stream_reader import AlignedStreamReader, made_or_refused, refuse_user_schema, stream_schema
from watermark_source.spark.table_options import kept_in_schema, taken_from_schema

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
        return errors.LOSSES

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


# A batch read of Kafka topics as one query configured it: what the engine plans with and reads in tasks.


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
    """Return the chosen columns as Spark's Kafka source has them, always in Spark's order."""
    chosen = frozenset(columns)
    return StructType([StructField(name, _TYPES[name]) for name in KAFKA_COLUMNS if name in chosen])


# Spark's view of the source: its schema, its stream reader and its batch reader.


_log = logging.getLogger(__name__)


def schema_of(given: Mapping[str, str]) -> StructType:
    """Return the chosen columns of Spark's Kafka schema, then the engine's own; raises ``OptionError``."""
    return kept_in_schema(_schema(KafkaSource.of(given)), given, _is_secret)


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader; its first call raises ``OptionError``, or ``SchemaError`` if the user gave another schema."""
    return made_or_refused(partial(_stream_reader, given, schema))


def _stream_reader(given: Mapping[str, str], schema: StructType) -> AlignedStreamReader:
    given, schema = taken_from_schema(schema, given)
    source = KafkaSource.of(given)
    start_of_stream(source.options.start, source.options.end)
    refuse_user_schema(schema, _schema(source), FORMAT)
    return AlignedStreamReader(
        source,
        source.options.engine,
        schema,
        max_rows=source.options.limits.max_offsets,
        minimum_rows=source.options.limits.minimum_rows,
        fail_on_data_loss=source.options.loss.fails,
    )


def batch_reader(given: Mapping[str, str], schema: StructType) -> AlignedBatchReader:
    """Return the reader; raises ``OptionError``, or ``SchemaError`` if the user gave another schema.

    Options that belong to streams are ignored and named.
    """
    given, schema = taken_from_schema(schema, given)
    source = KafkaSource.of(given)
    refuse_user_schema(schema, _schema(source), FORMAT)
    if names := ignored(given):
        _log.warning("A batch read ignores %s", ", ".join(names))
    kind = NarrowingBatchReader if source.options.push_down else AlignedBatchReader
    return kind(KafkaBatch.of(source.options), source.options.engine, schema)


def _schema(source: KafkaSource) -> StructType:
    columns = kafka_columns(source.options.columns)
    return stream_schema(columns, source.options.engine, WatermarkCharacteristic.ANY_WATERMARK)


def _is_secret(name: str) -> bool:
    secrets = {option.name.lower() for option in OPTION_TABLE.options if option.secret}
    return name in secrets or (name.startswith("kafka.") and may_be_secret(name.removeprefix("kafka.")))
