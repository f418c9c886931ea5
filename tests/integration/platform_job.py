"""A job on a managed platform: a program of Connect that sets nothing, and whose session refuses what platforms refuse.

Run as a process of its own, beside a Spark that has the project installed, it streams a topic into windows of a Delta
table and prints what the table has, and what a batch read of the topic gives: minutes since 1970 with their counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.connect.conf import RuntimeConf
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
from pyspark.sql.connect.session import SparkSession as ConnectSession

from watermark_source import data_rows, follow_watermark, recommended_conf


@contextmanager
def as_on_a_platform() -> Iterator[None]:
    """Refuse settings, files, and what keeps rows on executors, as serverless sessions do."""

    def refused(*arguments: object, **more: object) -> None:
        raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] {arguments[1:]} {more}")

    kinds = {
        RuntimeConf: ("set", "unset"), ConnectSession: ("addArtifacts",),
        ConnectDataFrame: ("cache", "persist", "checkpoint", "localCheckpoint"),
    }  # fmt: skip
    with ExitStack() as stack:
        for kind, names in kinds.items():
            for name in names:
                stack.enter_context(patch.object(kind, name, refused))
        yield


def minutes(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.window("event_time", "1 minute").alias("w")).count()
    return counted.select((F.unix_timestamp("w.start") / 60).cast("long").alias("minute"), "count")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("remote", "bootstrap", "topic", "folder"):
        parser.add_argument(name)
    given = parser.parse_args()
    # Its settings are for the start of Java's process: Spark passes over what a server that runs refuses.
    spark = SparkSession.builder.remote(given.remote).config(map=recommended_conf()).getOrCreate()
    assert [name for name in recommended_conf() if spark.conf.get(name, None) is not None] == []
    topic = {"kafka.bootstrap.servers": given.bootstrap, "subscribe": given.topic, "startingOffsets": "earliest"}
    with as_on_a_platform():
        counted = minutes(follow_watermark(spark.readStream.format("aligned-kafka").options(**topic).load()))
        writer = counted.writeStream.format("delta").option("checkpointLocation", f"{given.folder}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{given.folder}/minutes")
        query.awaitTermination()
        streamed = spark.read.format("delta").load(f"{given.folder}/minutes")
        whole = minutes(data_rows(spark.read.format("aligned-kafka").options(**topic).load()))
        print(json.dumps([sorted(map(tuple, frame.collect())) for frame in (streamed, whole)]))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
