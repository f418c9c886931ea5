"""``split_late``: the rows on time and the late ones, as two streams."""

from __future__ import annotations

from pyspark.sql import DataFrame

from watermark_source.errors import UsageError
from watermark_source.spark.columns.column_names import LATE
from watermark_source.spark.frames.named_column import quoted


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
    # Of a marker row the column is null.
    return df.where(late.isNull() | ~late).drop(LATE), df.where(late).drop(LATE)
