"""A copy as commands name it: by its format and path, or as a table of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from watermark_source.errors import UsageError, reason_of


@contextmanager
def loading(copy: str) -> Iterator[Callable[[], DataFrame]]:
    """Yield what loads a copy named as FORMAT:PATH or table:NAME; raises ``UsageError`` where Spark cannot read it."""
    form, colon, place = copy.partition(":")
    if not colon or not place:
        raise UsageError(
            f"--copy {copy}: expected the copy's format and path, such as parquet:/lake/orders, or table:NAME"
        )
    spark = SparkSession.builder.getOrCreate()
    try:
        yield lambda: spark.table(place) if form == "table" else spark.read.format(form).load(place)
    except PySparkException as error:
        raise UsageError(f"--copy {copy} cannot be read: {reason_of(error)}") from error
