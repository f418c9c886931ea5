"""A job on a platform's Spark with Delta: a topic in windows of a Delta table, with what is complete in its commits.

Run as ``python platform_complete_job.py JARS SETTINGS BOOTSTRAP TOPIC FOLDER``, it streams to the end and prints what
the table has, and up to when it is complete: after the stream, after OPTIMIZE, and after a rewrite of the whole table.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from watermark_source import complete_until, completeness_of, follow_watermark


def main(jars: str, settings: str, bootstrap: str, topic: str, folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").config(map=json.loads(settings)).config("spark.jars", jars)
    spark, table = builder.getOrCreate(), f"{folder}/complete"
    # A batch without rows has a commit of its own.
    spark.conf.set("spark.databricks.delta.skipRecordingEmptyCommits", "false")

    def write(batch: DataFrame, _: int) -> None:
        mark = str(completeness_of(batch, "minutes"))
        batch.write.format("delta").mode("append").option("userMetadata", mark).save(table)

    def until() -> int:
        found = complete_until(table)
        assert found is not None
        return round(found.timestamp() * 1_000)

    reader = spark.readStream.format("aligned-kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = follow_watermark(reader.option("subscribe", topic).option("startingOffsets", "earliest").load())
    counted = rows.groupBy(F.window("event_time", "1 minute").alias("w")).count()
    minutes = counted.select((F.unix_timestamp("w.start") / 60).cast("long").alias("minute"), "count")
    writer = minutes.writeStream.option("checkpointLocation", f"{folder}/complete-checkpoint").foreachBatch(write)
    writer.trigger(availableNow=True).start().awaitTermination()
    streamed = until()
    spark.sql(f"OPTIMIZE delta.`{table}`")
    optimized = until()
    whole = spark.read.format("delta").load(table).repartition(1)
    whole.write.format("delta").mode("overwrite").option("dataChange", "false").save(table)
    held = sorted(map(tuple, spark.read.format("delta").load(table).collect()))
    print(json.dumps([held, streamed, optimized, until()]))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
