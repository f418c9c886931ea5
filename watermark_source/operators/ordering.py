"""``order_by_event_time``: the rows of each key in event-time order, once the watermark has passed them.

After Pravega's EventTimeOrdering (PDP-26), in which late records go to a side output: here, a column tells them apart.

How it works: the keys are laid into buckets by their hash, and a bucket's rows travel and wait as Arrow columns packed
into bytes (``ordering_packs``). Packs have no event-time column: Spark takes no late rows out before the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from watermark_source.errors import UsageError, listed
from watermark_source.operators.followed_time import WAITED, followed_time, need_rocksdb
from watermark_source.operators.ordering_processor import OrderingProcessor
from watermark_source.operators.packs import LEFT, ORDERING_BUCKET, ORDERING_PACKED, RowPacker, Unpacking
from watermark_source.operators.waiting_rows import RowLayout
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.follow import quoted, spelling

_CALLER = "order_by_event_time"
LATE = "late"


def order_by_event_time(
    df: DataFrame, key: str | Sequence[str], time: str = EVENT_TIME, *, late: str = LATE, buckets: int = 64
) -> DataFrame:
    """Return a stream's rows such that those of a key come in event-time order.

    A row waits until Spark's watermark has passed its event time, and then leaves behind all rows of its key that are
    older. Rows of one key and one event time leave as they came: by batch, in a batch as they stand in their log. Each
    row comes out exactly once, with one column more:

    - ``late`` is false for rows in order;
    - ``late`` is true for a row that came when the watermark of its batch had passed it, or that has no event time: it
      leaves at once. ``where("late")`` and ``where("NOT late")`` in ``foreachBatch`` are the two outputs.

    A row is written once more than it is read, to Spark's state: about its own size for as long as it waits. A task
    holds at most the rows of a bucket that are new in a batch, and 16 MiB of those that leave.

    Args:
        df: what ``follow_watermark`` returned, of one source or a union; rows may have been filtered and columns added.
        key: the column, or columns, within whose equal values rows are put in order; any type but a map, and texts of
            UTF8_BINARY alone.
        time: the column ``follow_watermark`` was given. It stays event time for operators above, to which rows in order
            are on time, and late rows late.
        late: the name of the column that is added.
        buckets: into how many parts keys are laid; each batch touches each that it has rows for, and no more tasks than
            these share the work. Fixed while rows wait.

    Raises:
        UsageError: the DataFrame is no stream that follows a watermark, a column is missing or there already, or
            Spark's state is not kept in RocksDB.
    """
    keys = [spelling(df, name, _CALLER) for name in ([key] if isinstance(key, str) else key)]
    if not df.isStreaming:
        raise UsageError(
            f"{_CALLER}: needs a stream (spark.readStream); the rows of a batch are put in order by Spark's own "
            f"orderBy({', '.join(map(repr, [*keys, time]))})"
        )
    time, _ = followed_time(df, time, _CALLER)
    _refuse_rows_that_waited(df, time)
    need_rocksdb(df, _CALLER)
    _check(df, keys, late, buckets)
    place = df.columns.index(time)
    # Spark's own way to Arrow, in one time zone: what waits must not depend on the session's.
    layout = RowLayout(to_arrow_schema(df.schema, timezone="UTC"), place)
    described = f"{df.schema.simpleString()}, ordered by {time} for each {', '.join(keys)}, in {buckets} buckets"
    bucket = F.pmod(F.hash(*map(quoted, keys)), F.lit(buckets)).alias(ORDERING_BUCKET)
    packs = df.select(bucket, *map(quoted, df.columns)).mapInArrow(RowPacker(layout), ORDERING_PACKED)
    left = packs.groupBy(ORDERING_BUCKET).transformWithStateInPandas(
        OrderingProcessor(layout, described), LEFT, outputMode="append", timeMode="eventTime"
    )
    fields = [StructField(field.name, field.dataType, field.nullable) for field in df.schema]
    rows = left.mapInArrow(Unpacking(layout, late), StructType(fields).add(late, "boolean", nullable=False))
    about_time = {**df.schema[time].metadata, WAITED: _CALLER}
    return rows.select([quoted(c).alias(c, metadata=about_time) if c == time else quoted(c) for c in rows.columns])


def _refuse_rows_that_waited(df: DataFrame, time: str) -> None:
    """Refuse rows that come when the watermark of their batch has passed them: all would be late."""
    if waited := df.schema[time].metadata.get(WAITED):
        raise UsageError(
            f"{_CALLER}: rows leave {waited} once the watermark has passed {time!r}, so that here all of them would be "
            f"late. Call {_CALLER} below it or in a query of its own, which reads what this one writes"
        )


def _check(df: DataFrame, keys: Sequence[str], late: str, buckets: int) -> None:
    lowered = [name.lower() for name in df.columns]
    if not keys:
        raise UsageError(f"{_CALLER}: key names no column; name one or more of {df.columns}")
    if maps := [name for name in keys if isinstance(df.schema[name].dataType, MapType)]:
        raise UsageError(f"{_CALLER}: key {listed(maps)} is a map, which has no hash; use one of its values")
    if collated := [name for name in keys if _is_collated(df.schema[name].dataType)]:
        raise UsageError(
            f"{_CALLER}: key {listed(collated)} has texts with a collation, and keys are told apart by their bytes: "
            'equal ones would not come in order. Cast it first, as in .withColumn("key", lower("key").cast("string"))'
        )
    if len(set(lowered)) < len(lowered):
        raise UsageError(f"{_CALLER}: each column needs a name of its own; the columns are {df.columns}")
    if late.lower() in lowered:
        raise UsageError(f'{_CALLER}: there is a column {late!r} already; name another one, as in late="is_late"')
    if buckets < 1:
        raise UsageError(f"{_CALLER}: buckets = {buckets}: must be a whole number of at least 1, for example 64")


def _is_collated(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_collated(kind.elementType)
    if isinstance(kind, StructType):
        return any(_is_collated(field.dataType) for field in kind)
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"
