"""``order_by_event_time``: emits the rows of each key in event-time order, once the watermark has passed them.

It follows Pravega's EventTimeOrdering (PDP-26), which sends late records to a side output; here a column marks them.

Keys are hash-partitioned into buckets. The rows of a bucket reach the operator, and wait in its state, as Arrow columns
in binary packs (``packs``). A pack has no event-time column, so Spark drops no late row before the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from watermark_source.errors import UsageError, listed
from watermark_source.operators.followed_time import WAITED, followed_time, need_rocksdb
from watermark_source.operators.ordering_processor import OrderingProcessor
from watermark_source.operators.packs import (
    EMITTED,
    ORDERING_BUCKET,
    ORDERING_PACKED,
    RowUnpacker,
    arrow_field,
    need_buckets,
    row_packer,
)
from watermark_source.operators.waiting_rows import RowLayout
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.follow import quoted, spelling
from watermark_source.spark.query_plan import steps_of

_CALLER = "order_by_event_time"
LATE = "late"


def order_by_event_time(
    df: DataFrame, key: str | Sequence[str], time: str = EVENT_TIME, *, late: str = LATE, buckets: int = 64
) -> DataFrame:
    """Emit the rows of each key in event-time order.

    A row waits until Spark's watermark has passed its event time, and is emitted after all earlier rows of its key.
    Rows of one key and one event time keep their order of arrival: by batch, and within a batch by their place in the
    log. Each row is emitted exactly once, with one additional column:

    - ``late`` is false for rows in order.
    - ``late`` is true for a row whose event time the watermark of its batch had already passed, or that has no event
      time: it is emitted at once. ``where("late")`` and ``where("NOT late")`` in ``foreachBatch`` are the two outputs.

    A waiting row takes about its own size in Spark's state. A task holds in memory at most a bucket's new rows of a
    batch, and 16 MiB of the rows it emits.

    Args:
        df: a stream that ``follow_watermark`` returned, of one source or a union; filters and added columns are fine.
        key: the column, or columns, by whose values rows are ordered; any type except a map, and strings with the
            collation UTF8_BINARY only.
        time: the column ``follow_watermark`` was given. It stays event time for operators downstream: rows in order are
            on time for them, and late rows late.
        late: the name of the added column.
        buckets: the number of hash partitions of the keys, which bounds the number of tasks. Each batch rewrites the
            buckets that it has rows for. It cannot change while rows wait.

    Raises:
        UsageError: the DataFrame is no stream that follows a watermark, a column is missing or exists already, or
            Spark's state store is not RocksDB.
    """
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in (*names, time, late)):
        raise UsageError(f'{_CALLER}: key, time and late must be names of columns, as in key="user"')
    need_buckets(buckets, _CALLER)
    keys = [spelling(df, name, _CALLER) for name in names]
    if not df.isStreaming:
        raise UsageError(
            f"{_CALLER}: needs a stream (spark.readStream); for a batch use Spark's own "
            f"orderBy({', '.join(map(repr, [*keys, time]))})"
        )
    time, _ = followed_time(df, steps_of(df), time, _CALLER)
    _refuse_rows_that_waited(df, time)
    need_rocksdb(df, _CALLER)
    _check(df, keys, late)
    layout = RowLayout(pa.schema([arrow_field(field, _CALLER) for field in df.schema]), df.columns.index(time))
    described = f"{df.schema.simpleString()}, ordered by {time} for each {', '.join(keys)}, in {buckets} buckets"
    bucket = F.pmod(F.hash(*map(quoted, keys)), F.lit(buckets)).alias(ORDERING_BUCKET)
    packs = df.select(bucket, *map(quoted, df.columns)).mapInArrow(row_packer(layout), ORDERING_PACKED)
    emitted = packs.groupBy(ORDERING_BUCKET).transformWithStateInPandas(
        OrderingProcessor(layout, described), EMITTED, outputMode="append", timeMode="eventTime"
    )
    fields = [StructField(field.name, field.dataType, field.nullable) for field in df.schema]
    rows = emitted.mapInArrow(RowUnpacker(layout, late), StructType(fields).add(late, "boolean", nullable=False))
    metadata = {**df.schema[time].metadata, WAITED: _CALLER}
    return rows.select([quoted(c).alias(c, metadata=metadata) if c == time else quoted(c) for c in rows.columns])


def _refuse_rows_that_waited(df: DataFrame, time: str) -> None:
    """Refuse the output of an operator that emits rows after the watermark has passed them: all would be late."""
    if operator := df.schema[time].metadata.get(WAITED):
        raise UsageError(
            f"{_CALLER}: {operator} emits rows once the watermark has passed {time!r}, so that all of them would be "
            f"late here. Call {_CALLER} before {operator}, or in a second query that reads what this one writes"
        )


def _check(df: DataFrame, keys: Sequence[str], late: str) -> None:
    lowered = [name.lower() for name in df.columns]
    if not keys:
        raise UsageError(f"{_CALLER}: key names no column; name one or more of {df.columns}")
    if maps := [name for name in keys if isinstance(df.schema[name].dataType, MapType)]:
        raise UsageError(f"{_CALLER}: key {listed(maps)} is a map, which has no hash; use one of its values")
    if collated := [name for name in keys if _is_collated(df.schema[name].dataType)]:
        raise UsageError(
            f"{_CALLER}: key {listed(collated)} has strings with a collation, and keys are compared by their bytes: "
            'equal ones would not be in order. Cast it first, as in .withColumn("key", lower("key").cast("string"))'
        )
    if len(set(lowered)) < len(lowered):
        raise UsageError(f"{_CALLER}: column names must be unique; the columns are {df.columns}")
    if late.lower() in lowered:
        raise UsageError(f'{_CALLER}: the stream has a column {late!r} already; name another, as in late="is_late"')


def _is_collated(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_collated(kind.elementType)
    if isinstance(kind, StructType):
        return any(_is_collated(field.dataType) for field in kind)
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"
