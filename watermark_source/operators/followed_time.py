"""Checks of the event-time column and the state store of an operator's input."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from watermark_source.errors import UsageError
from watermark_source.spark.follow import DELAY_KEY, spelling
from watermark_source.spark.plan_steps import Step
from watermark_source.spark.source_time import SourceTime

WAITED = "watermark_source.waited"
"""Metadata key of an event-time column: the operator that emitted its rows after the watermark had passed them."""
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def followed_time(df: DataFrame, plan: Step, name: str, caller: str) -> tuple[str, SourceTime]:
    """Return the column's name as the schema spells it, and what its source declares about time.

    In a union of sources the declaration is that of a source on event time, if there is one: a watermark that is the
    clock's is never the lowest (FLIP-326). Spark's metadata alone has the declaration of the union's first source.

    Raises:
        UsageError: the DataFrame is no stream, or the column is not the one that ``follow_watermark`` was given.
    """
    name = spelling(df, name, caller)
    if not df.isStreaming:
        raise UsageError(
            f"{caller}: the DataFrame with the column {name!r} is a batch, and not a stream. A table that does "
            "not change is joined with Spark's own join(); watermarks need spark.readStream"
        )
    field = df.schema[name]
    if not isinstance(field.dataType, TimestampType) or DELAY_KEY not in field.metadata:
        raise UsageError(
            f"{caller}: column {name!r} ({field.dataType.simpleString()}) follows no watermark. Name the column that "
            'follow_watermark was given, as in follow_watermark(stream, "event_time"), possibly renamed since; one '
            "that was computed from it is another column"
        )
    declared = SourceTime.of_metadata(field.metadata)
    if declared is None:
        raise UsageError(
            f"{caller}: column {name!r} has a watermark of Spark's own withWatermark, which ignores its source's "
            "splits; use follow_watermark in its place, on a stream of this project's sources"
        )
    return name, next((source for source in declarations(plan) if not source.processing_time), declared)


def declarations(plan: Step) -> list[SourceTime]:
    """Return what sources declare about time that ``follow_watermark`` and ``follow_clock`` were given."""
    return [source for step in plan.all() if (source := SourceTime.of_plan(step)) is not None]


def need_rocksdb(df: DataFrame, caller: str) -> None:
    """Raise ``UsageError`` unless Spark's state store is RocksDB, which transformWithState requires."""
    provider = df.sparkSession.conf.get(STATE_STORE, None)
    if provider is None or not provider.rpartition(".")[2].startswith("RocksDB"):
        raise UsageError(
            f"{caller}: {STATE_STORE} is {provider or 'not set'}, and the operator's state needs RocksDB, which is "
            f'part of Spark: spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )
