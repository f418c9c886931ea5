"""A driver program to be killed: windows over a topic into another by Spark's own Kafka sink, announced.

Run as ``python killed_announcing_driver.py MASTER BOOTSTRAP TOPIC SINK BATCH_ROWS FOLDER``; see killed_driver.py.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter

from pyspark_aligned_kafka import announce_watermark
from services.ivy import spark_kafka_jars
from tests.integration.killed_driver import TopicJob, loaded, session
from watermark_source import follow_watermark

WINDOWS = "windows"
WINDOW_SECONDS = 10
WRITER = "windows-job"


@dataclass(frozen=True)
class AnnouncingJob(TopicJob):
    """One query from a topic into another."""

    sink_topic: str
    batch_rows: str

    program = __file__
    names = (WINDOWS,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.sink_topic, self.batch_rows, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        source = spark.readStream.format("aligned-kafka").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": self.batch_rows,
                "maxOutOfOrderness": "2 seconds",
            }
        )
        rows = follow_watermark(source.load())
        counted = rows.groupBy(F.window("event_time", f"{WINDOW_SECONDS} seconds"), "partition").count()
        value = F.to_json(F.struct(F.unix_millis(F.window_time("window")).alias("t"), "partition", "count"))
        writer = counted.select(value.alias("value")).writeStream.queryName(WINDOWS).format("kafka")
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.sink_topic}
        return {WINDOWS: writer.options(**options, checkpointLocation=str(self.checkpoint(WINDOWS)))}


def main(job: AnnouncingJob) -> None:
    """Run the job's query for ever."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, spark_kafka_jars()))} pyspark-shell"
    query = loaded(job, session(job.master))[WINDOWS].start()
    announce_watermark(query, job.sink_topic, {"kafka.bootstrap.servers": job.bootstrap}, WRITER)
    query.awaitTermination()


if __name__ == "__main__":
    main(AnnouncingJob(sys.argv[1], Path(sys.argv[6]), *sys.argv[2:6]))
