"""A declarative pipeline that counts a topic's rows by the minute, by the source's own watermark.

Run with ``spark-pipelines run --spec examples/pipeline_windows/spark-pipeline.yml --conf
spark.sql.catalogImplementation=hive``: the catalog has to outlive a run, for the next one to continue.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from watermark_source import data_rows, follow_watermark


def stream() -> DataFrame:
    """The topic, with the source's markers in it."""
    return (
        SparkSession.active()
        .readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", os.environ["KAFKA"])
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOutOfOrderness", "30 seconds")
        .load()
    )


@dp.table
def counts() -> DataFrame:
    """Windows that have closed, each once. The next run resumes where this one ends."""
    rows = follow_watermark(stream())
    return rows.groupBy(F.window("event_time", "1 minute")).count().select("window.start", "count")


@dp.table
def orders() -> DataFrame:
    """All rows, as they come."""
    return data_rows(stream()).select("partition", "offset", "event_time", "value")
