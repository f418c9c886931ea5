"""``follow_watermark``: Spark's own operators follow the source's watermark; ``data_rows`` and ``markers`` beside it.

How it works: Spark's watermark node sits on a column of its own, which only marker rows fill, so that Spark's watermark
is exactly the source's. The user's event-time column carries the metadata by which Spark's operators know an event-time
column. A filter that is not deterministic keeps the optimizer from pushing filters below the watermark node
(SPARK-21587 pushes those that do not read the watermark column, and marker rows would be lost).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType, TimestampType

from watermark_source import durations
from watermark_source.errors import UsageError
from watermark_source.spark.accepted_operators import has_times_of_its_own, need_kept_markers
from watermark_source.spark.column_names import CLOCK, DECLARED, EVENT_TIME, LATE, MARKER
from watermark_source.spark.query_plan import steps_of
from watermark_source.spark.source_time import SourceTime
from watermark_source.spark.stream_schema import MARKER_TYPE
from watermark_source.words import NO_WORDS

_log = logging.getLogger(__name__)

# Columns of a DataFrame by the names that users write.


def quoted(name: str) -> Column:
    """Return a column by its exact name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def spelling(df: DataFrame, name: str, caller: str) -> str:
    """Return the column's own spelling; Spark ignores case unless ``spark.sql.caseSensitive`` is set.

    Raises:
        UsageError: there is no such column, or more than one; ``caller`` is what the user called.
    """
    if name in df.columns:
        return name
    found = present(df, name)
    if len(found) != 1:
        raise UsageError(f"{caller}: there is no column {name!r}; the columns are {df.columns}")
    return found[0]


def present(df: DataFrame, *names: str) -> list[str]:
    """Return the columns of these names, spelled as in the schema, in which Spark may ignore case."""
    fold = name_fold(df)
    return [column for name in names for column in df.columns if fold(column) == fold(name)]


def name_fold(df: DataFrame) -> Callable[[str], str]:
    """Return what two columns' names have in common that Spark takes for one."""
    return str if df.sparkSession.conf.get("spark.sql.caseSensitive") == "true" else str.lower


# ``split_late``: the rows on time and the late ones, as two streams.


def split_late(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows on time and the late rows of a stream that was read with ``includeLate``.

    A row is late if its event time is at or before the watermark that its batch began with: none of those on time is
    dropped by Spark's operators. Both streams are without the column ``late``. Marker rows stay with the rows on time,
    so ``follow_watermark`` may come before this call or, on those, after it.

    Use both in one query, united before its only sink: two queries cut the stream into other batches, and a row may be
    late in one of them alone.

    Raises:
        UsageError: the DataFrame has no such column.
    """
    if LATE not in df.columns:
        raise UsageError(
            f"split_late: the stream has no column {LATE!r}. It needs a stream that was read with "
            f'.option("includeLate", "true"); the columns are {df.columns}'
        )
    late = quoted(LATE)
    # The column is null in marker rows.
    return df.where(late.isNull() | ~late).drop(LATE), df.where(late).drop(LATE)


# DataFrames in functions of declarative pipelines, which Spark does not analyse before it knows the whole pipeline.


_IN_PIPELINE = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


def known_columns(df: DataFrame) -> list[str] | None:
    """Return the DataFrame's columns; ``None`` in the definition of a pipeline, where Spark refuses to analyse it."""
    try:
        return df.columns
    except PySparkException as refused:
        if refused.getCondition() == _IN_PIPELINE:
            return None
        raise


_LAST_DAY = "9999-12-31 00:00:00 UTC"
DELAY_KEY = "spark.watermarkDelayMs"
"""By this metadata key Spark's operators find the event-time column (``EventTimeWatermark.delayKey``)."""


def follow_watermark(df: DataFrame, event_time: str = EVENT_TIME, *, delay: str = "0 seconds") -> DataFrame:
    """Return the data rows of a source of this project, with Spark's watermark following the source's.

    Windows, session windows, deduplication, stream-stream joins and event-time timers above it obey the source's
    combined watermark: a row that is on time in its own split is never dropped as late.

    Args:
        df: what ``load()`` returned, of one source. Columns may have been added or removed, all but ``marker``. Filter
            afterwards: a filter before this call would remove the marker rows, whose other columns are null, and is
            refused unless it spares them (``marker IS NOT NULL OR ...``). So are ``explode``, an inner join with a
            static table, ``dropDuplicates``, ``limit``. Unions and joins of streams belong after it too: every source
            has a watermark of its own, and Spark takes the lowest of them.
        event_time: the column that is event time for the operators above; a ``timestamp``, its name read as Spark does.
            The watermark is about the source's own event times: a row whose value in another column lies further
            behind than that may be late, and a warning is logged.
        delay: how long ``dropDuplicatesWithinWatermark`` remembers a row beyond its event time; nothing else uses it.
            Allowed disorder is the source's option ``maxOutOfOrderness``.

    Raises:
        UsageError: the DataFrame is not such a stream, or is made of several, or may have lost its marker rows, or the
            column is missing or no timestamp.

    A ``withWatermark`` above it, or a ``WATERMARK`` in SQL, is refused when the query starts (``UsageError``): this
    call takes its place.

    In a function of a declarative pipeline a DataFrame's columns cannot be asked for. There ``event_time`` is taken as
    it is written, Spark reports missing columns, and nothing checks that it is a timestamp of one such stream. What
    lies before the call is seen by name alone: filters, tables, views and SQL are refused there.
    """
    delay_ms = parsed_delay(delay, "follow_watermark")
    if known_columns(df) is None:
        _check_in_pipeline(df, event_time)
        return _clocked(df).drop(CLOCK, MARKER).withMetadata(event_time, {DELAY_KEY: delay_ms})
    _need_markers(df, "follow_watermark")
    plan = steps_of(df)
    need_kept_markers(plan)
    event_time = spelling(df, event_time, "follow_watermark")
    kind = df.schema[event_time].dataType
    # A timestamp_ntz holds local time, the watermark universal time: Spark would compare the bare numbers.
    if not isinstance(kind, TimestampType):
        raise UsageError(
            f"follow_watermark: column {event_time!r} is {kind.simpleString()}, event time must be a timestamp; "
            "cast it first"
        )
    kept = [c for c in df.columns if c != MARKER]
    declared = SourceTime.of_metadata(df.schema[MARKER].metadata)
    if declared and declared.times and has_times_of_its_own(plan, event_time, declared.times):
        _log.warning(
            "follow_watermark: column %s has times of its own, and the watermark of %s is about those of the column "
            "event_time: rows whose %s is further behind are dropped as late without an error. To use them, %s, and "
            "use the column event_time; or ignore this if both are in the same order",
            event_time, declared.source, event_time, declared.words.dated_by.format(column=event_time),
        )  # fmt: skip
    about_time = {DELAY_KEY: delay_ms, **(declared.metadata if declared else {})}
    # A select: under Spark Connect withColumn forgets the metadata of an alias it is given.
    return _clocked(df, declared).select(
        [quoted(c).alias(c, metadata=about_time) if c == event_time else quoted(c) for c in kept]
    )


def _check_in_pipeline(df: DataFrame, event_time: str) -> None:
    # Pipelines alone need it, and the packages of Connect.
    from watermark_source.spark.connect_plan import may_have_times_of_its_own, steps_sent  # noqa: PLC0415

    need_kept_markers(steps_sent(df))
    if may_have_times_of_its_own(df, event_time):
        _log.warning(
            "follow_watermark: in a pipeline nothing shows whether column %s has the source's event times, which the "
            "watermark is about: rows whose %s is further behind are dropped as late without an error. To use them, "
            "%s, and use the column event_time as it comes; or ignore this if both are in the same order",
            event_time, event_time, NO_WORDS.dated_by,
        )  # fmt: skip


def parsed_delay(delay: str, caller: str) -> int:
    """Return a duration in milliseconds; raises ``UsageError`` that names ``caller``."""
    try:
        return durations.parse_duration(delay)
    except ValueError:
        raise UsageError(
            f"{caller}: delay = {delay!r} is not a duration: {durations.ACCEPTED}, for example 10 minutes"
        ) from None


def _clocked(df: DataFrame, declared: SourceTime | None = None) -> DataFrame:
    """Return the data rows above Spark's watermark, with the column that it follows."""
    marked_time = F.when(F.col(f"{MARKER}.type") == "watermark", F.col(f"{MARKER}.watermark"))
    shown = [] if declared is None else [F.lit(declared.in_plan()).alias(DECLARED)]
    # First: in the text of a plan nothing is known behind a name with a parenthesis that none closes.
    clocked = df.select(marked_time.alias(CLOCK), *shown, "*").withWatermark(CLOCK, "0 seconds")
    # An OR cannot be split: as two conjuncts the first one would be pushed below the watermark node.
    return clocked.where(F.col(MARKER).isNull() | (F.expr("spark_partition_id()") < 0))


def data_rows(df: DataFrame) -> DataFrame:
    """Return the data rows alone, in the system's own columns and ``event_time``; without any watermark.

    In a function of a declarative pipeline the column ``marker`` has to be there.
    """
    columns = known_columns(df)
    if columns is not None and MARKER not in columns:
        return df
    return df.where(F.col(MARKER).isNull()).drop(MARKER)


def markers(df: DataFrame) -> DataFrame:
    """Return the marker rows alone, flattened: type, log, split, watermark, status, use_processing_time, reason.

    A watermark of 9999-12-31 is the end of time: Python has no later day.
    """
    _need_markers(df, "markers")
    found = df.where(F.col(MARKER).isNotNull()).select(f"{MARKER}.*")
    last = F.lit(_LAST_DAY).cast("timestamp")
    shown = F.when(F.col("watermark") > last, last).otherwise(F.col("watermark"))
    return found.select(*(shown.alias(n) if n == "watermark" else F.col(n) for n in found.columns))


def _need_markers(df: DataFrame, caller: str) -> None:
    if MARKER not in df.columns:
        raise UsageError(
            f"{caller}: the stream has no column {MARKER!r}. It needs a stream of this project's sources, with "
            "includeMarkers left at true, before the column is dropped; "
            f"the columns are {df.columns}"
        )
    kind = df.schema[MARKER].dataType
    if not isinstance(kind, StructType) or kind.fieldNames() != MARKER_TYPE.fieldNames():
        raise UsageError(f"{caller}: column {MARKER!r} is not this project's marker but {kind.simpleString()}")
    if not df.isStreaming:
        raise UsageError(f"{caller}: needs a stream (spark.readStream); watermarks mean nothing in a batch read")
