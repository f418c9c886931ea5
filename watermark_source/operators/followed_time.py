"""The event-time column of a stream that follows its source's watermark, and what cannot be one."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from watermark_source.errors import UsageError
from watermark_source.spark.columns import SourceTime
from watermark_source.spark.follow import DELAY_KEY, spelling

WAITED = "watermark_source.waited"
"""In the metadata of an event-time column: the operator that its rows left once the watermark had passed them."""
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def followed_time(df: DataFrame, name: str, caller: str) -> tuple[str, SourceTime]:
    """Return the column's own spelling, and what its source declares about time.

    Of several sources it is one that goes by event times, if there is one: a clock is never the lowest of watermarks
    (FLIP-326). Spark keeps what the first of a union declares.

    Raises:
        UsageError: the DataFrame is no stream, or the column is not the one that ``follow_watermark`` was given.
    """
    name = spelling(df, name, caller)
    if not df.isStreaming:
        raise UsageError(
            f"{caller}: the DataFrame with the column {name!r} is no stream. A table that does not change is joined "
            "with Spark's own join(); watermarks need spark.readStream"
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
            f"{caller}: column {name!r} has a watermark of Spark's own withWatermark, which knows nothing of its "
            "source's splits; use follow_watermark in its place, on a stream of this project's sources"
        )
    return name, next((each for each in _declared_below(df) if not each.processing_time), declared)


def _declared_below(df: DataFrame) -> list[SourceTime]:
    """Return what all sources below declare about time; nothing under Spark Connect, which shows no plan."""
    plan = getattr(df, "_jdf", None)
    if plan is None:
        return []
    leaves = plan.queryExecution().analyzed().collectLeaves()
    outputs = [leaves.apply(i).output() for i in range(leaves.size()) if leaves.apply(i).isStreaming()]
    told = [output.apply(i).metadata().json() for output in outputs for i in range(output.size())]
    return [found for text in told if (found := SourceTime.of_metadata(json.loads(text))) is not None]


def need_rocksdb(df: DataFrame, caller: str) -> None:
    """Raise ``UsageError`` unless Spark keeps state where transformWithState can."""
    set_to = df.sparkSession.conf.get(STATE_STORE, None)
    if set_to is None or not set_to.rpartition(".")[2].startswith("RocksDB"):
        raise UsageError(
            f"{caller}: {STATE_STORE} is {set_to or 'not set'}, and the operator's state needs RocksDB, which is part "
            f'of Spark: spark.conf.set("{STATE_STORE}", "{ROCKSDB}")'
        )
