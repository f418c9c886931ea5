"""A driver program to be killed: a job that counts clicks into a topic and announces its watermark, and one behind it.

Run as ``python killed_chain_driver.py MASTER BOOTSTRAP CLICKS MINUTES ROWS_A_BATCH FOLDER``; see killed_driver.py.
Spark's Kafka sink writes a batch again that was killed, so the second job drops copies by the minute that they count.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from pyspark_aligned_kafka import announce_watermark
from services.ivy import spark_kafka_jars
from tests.integration.killed_driver import TopicJob, main
from watermark_source import follow_watermark

MINUTES, HOURS = "minutes", "hours"
WRITERS = ("fast", "slow")
IN_PAYLOAD = {"eventTimeColumn": "value:$.at", "eventTimeFormat": "millis"}


@dataclass(frozen=True)
class ChainJob(TopicJob):
    """Clicks to minutes, minutes to hours."""

    minutes: str
    """The topic between the two."""
    rows_a_batch: str

    program = __file__
    names = (HOURS,)
    settings = MappingProxyType({"spark.jars": ",".join(map(str, spark_kafka_jars()))})

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.minutes, self.rows_a_batch, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        clicks = counted(follow_watermark(self._read(spark, self.topic, ",".join(WRITERS))), "1 minute", F.count("*"))
        rows = follow_watermark(self._read(spark, self.minutes, MINUTES, **IN_PAYLOAD))
        document = F.from_json(F.col("value").cast("string"), "clicks LONG, at LONG").alias("json")
        once = rows.select("event_time", document).select("event_time", "json.*").dropDuplicates(["event_time", "at"])
        hours = counted(once, "1 hour", F.sum("clicks"))
        return {
            MINUTES: clicks.select(F.to_json(F.struct("*")).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", self.minutes)
            .option("checkpointLocation", str(self.checkpoint(MINUTES))),
            HOURS: self.written(HOURS, hours),
        }

    def started(self, name: str, query: StreamingQuery) -> None:
        if name == MINUTES:
            kafka = {"kafka.bootstrap.servers": self.bootstrap}
            announce_watermark(query, topic=self.minutes, kafka=kafka, writer=MINUTES)

    def _read(self, spark: SparkSession, topic: str, writers: str, **event_time: str) -> DataFrame:
        return (
            spark.readStream.format("aligned-kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.rows_a_batch)
            .option("watermarkStrategy", "announced")
            .option("announcedBy", writers)
            .options(**event_time)
            .load()
        )


def counted(rows: DataFrame, length: str, clicks: Column) -> DataFrame:
    """Return the clicks of each window; ``at`` is its last millisecond."""
    window = F.window("event_time", length)
    found = rows.groupBy(window).agg(clicks.alias("clicks"))
    return found.select("clicks", (F.unix_millis("window.end") - 1).alias("at"))


if __name__ == "__main__":
    main(ChainJob(sys.argv[1], Path(sys.argv[6]), *sys.argv[2:6]))
