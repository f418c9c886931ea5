"""``follow_clock``: any stream on the clock of its batches, with Spark's watermark following that clock.

How it works: Spark records the time of each batch in its offset log, and ``current_timestamp()`` is that time, also
when a batch is repeated after a failure. Spark's watermark node sits on a column with this time. A small source beside
the stream adds one row a second, which the caller does not see: so the watermark advances while the stream is silent,
and in a query that was restarted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import uuid4
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BooleanType, StructField, StructType

from watermark_source.errors import UsageError
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.column_names import CLOCK, DECLARED, EVENT_TIME
from watermark_source.spark.follow import DELAY_KEY, known_columns, parsed_delay, present
from watermark_source.spark.query_plan import steps_of
from watermark_source.spark.source_evolution import evolves
from watermark_source.spark.source_time import SourceTime

_CALLER = "follow_clock"
_BATCH_TIME = f"{CLOCK}_of_batches"
_TICK = "__watermark_source_tick"
_TICK_SECONDS = 1


def follow_clock(df: DataFrame, event_time: str = EVENT_TIME, *, delay: str = "0 seconds") -> DataFrame:
    """Return a stream with a column of the time of each row's batch, and Spark's watermark following that time.

    For streams of other sources: Spark's ``rate``, files, Delta, Spark's own Kafka source. Windows, deduplication and
    event-time timers above it run on processing time, and it can be the probe side of ``temporal_join``. Spark records
    the time of a batch in its offset log: a batch that is repeated after a failure has the same time. Without rows the
    watermark advances too, once a second.

    The stream declares no watermark that announces the clock (``UNDEFINED`` of FLIP-326) and is in no alignment group:
    ``temporal_join`` needs ``buffer=True`` or ``wait=False`` for it.

    Args:
        df: a stream without a watermark. Filters may come before this call, where Spark can hand them to the source,
            or after it.
        event_time: the name of the new column, a ``timestamp``.
        delay: how long ``dropDuplicatesWithinWatermark`` remembers a row beyond its time; nothing else uses it.

    Raises:
        UsageError: the DataFrame is no stream, has a watermark or a column of this name already, or is read from a
            source of this project, which records a clock of its own.

    Where the driver's clock is set back, rows of the next batches are behind the watermark, and operators drop rows of
    windows that have closed: Spark counts them as ``numRowsDroppedByWatermark``.
    """
    delay_ms = parsed_delay(delay, _CALLER)
    if known_columns(df) is None:
        raise UsageError(
            f"{_CALLER}: in a function of a declarative pipeline Spark does not give the stream's columns, which this "
            "call needs. Start the query with writeStream instead"
        )
    _need_plain_stream(df)
    _need_new_column(df, event_time)
    ticks = _ticks(df.sparkSession)
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema]
    both = df.select("*", F.lit(False).alias(_TICK)).union(ticks.select(*nulls, _TICK))
    shown = F.current_timestamp().alias(_BATCH_TIME), F.lit(_DECLARED.in_plan()).alias(DECLARED)
    clocked = both.select(*shown, "*").withWatermark(_BATCH_TIME, "0 seconds")
    # Not deterministic, so that no filter of the user is pushed below the watermark node, where it would drop ticks.
    rows = clocked.where(~F.col(_TICK) | (F.expr("spark_partition_id()") < 0))
    about_time = {DELAY_KEY: delay_ms, **_DECLARED.metadata}
    return rows.select("*", F.col(_BATCH_TIME).alias(event_time, metadata=about_time)).drop(
        _TICK, _BATCH_TIME, DECLARED
    )


_registered: WeakSet[SparkSession] = WeakSet()


def _ticks(spark: SparkSession) -> DataFrame:
    # Spark warns of a format that is registered twice.
    if spark not in _registered:
        spark.dataSource.register(ClockTicks)
        _registered.add(spark)
    reader = spark.readStream.format(ClockTicks.name())
    # Any name will do, and another one after a restart: a new clock continues as before.
    return (reader.name(f"clock_{uuid4().hex}") if evolves(spark) else reader).load()


_DECLARED = SourceTime(
    source=_CALLER, characteristic=WatermarkCharacteristic.UNDEFINED, processing_time=True, batch_clock=True
)


def _need_plain_stream(df: DataFrame) -> None:
    if not df.isStreaming:
        raise UsageError(
            f"{_CALLER}: the DataFrame is a batch, and has no batches with a time. Read it with spark.readStream; a "
            "table that does not change is joined with Spark's own join()"
        )
    plan = steps_of(df)
    if sources := [step.source.name for step in plan.all() if step.source is not None]:
        raise UsageError(
            f"{_CALLER}: the stream is read from {sources[0]!r}, a source of this project, which records a clock of "
            'its own. Read it with .option("watermarkStrategy", "none") and call follow_watermark in place of '
            f"{_CALLER}"
        )
    if existing := [step.watermarked.column for step in plan.all() if step.watermarked is not None]:
        ours = any(CLOCK in name for name in existing)
        where = "by follow_watermark or follow_clock" if ours else f"by withWatermark on {', '.join(existing)}"
        raise UsageError(
            f"{_CALLER}: the stream has a watermark already, {where}, and Spark takes no second one. For the clock of "
            f"its batches leave that call out: {_CALLER}(spark.readStream.format(...).load()); for event time leave "
            f"out {_CALLER}"
        )


def _need_new_column(df: DataFrame, name: str) -> None:
    if taken := present(df, name):
        raise UsageError(
            f"{_CALLER}: the stream has a column {taken[0]!r} already. Give the new column another name: "
            f'{_CALLER}(stream, "batch_time"); or drop or rename that one first'
        )


class ClockTicks(DataSource):
    """A stream of at most one row a batch: one as soon as a second has passed since the last. ``follow_clock`` uses it.

    Spark's ``rate`` would do except with the trigger AvailableNow: a query with ``rate`` reads all sources in a single
    batch, whatever their limits.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "watermark-source-clock"

    def schema(self) -> StructType:
        """Return the only column: true. Its metadata declares the time to operators that examine a union's plan."""
        return StructType([StructField(_TICK, BooleanType(), metadata=_DECLARED.metadata)])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader."""
        return _TickReader()


class _TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is a number of seconds since 1970, and never goes back with the clock."""

    _last: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._now()

    def initialOffset(self) -> dict[str, int]:
        return {"second": self._now() - _TICK_SECONDS}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        now = self._now() if self._last is None else self._last
        return {"second": now} if now >= start["second"] + _TICK_SECONDS else start

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({_TICK: [True]})

    @staticmethod
    def _now() -> int:
        return int(time.time())
