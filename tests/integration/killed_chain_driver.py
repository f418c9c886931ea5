"""A driver program to be killed: three jobs in a row that count clicks, two of which announce their watermark.

The second and the third read what they count beside the rows that it was counted from, together in an alignment group.

Run as ``python killed_chain_driver.py MASTER BOOTSTRAP CLICKS MINUTES TENS ROWS_A_BATCH FOLDER``; see killed_driver.py.
Spark's Kafka sink writes a batch again that was killed, so the jobs behind it drop copies by the counted window.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from pyspark_aligned_kafka import announce_watermark
from services.ivy import spark_kafka_jars
from tests.integration.killed_driver import TopicJob, main
from watermark_source import follow_watermark

MINUTES, TENS, HOURS = "minutes", "tens", "hours"
WRITERS = ("fast", "slow")
IN_PAYLOAD = {"eventTimeColumn": "value:$.at", "eventTimeFormat": "millis"}
AWAITED = {"alignmentHold": "firstWatermark"}
"""What is beside a job's results waits until there are some."""
DRIFT_MS = 600_000


@dataclass(frozen=True)
class ChainJob(TopicJob):
    """Clicks to minutes, to ten minutes, to hours."""

    minutes: str
    """The topic between the first two jobs."""
    tens: str
    """The topic between the last two."""
    rows_a_batch: str

    program = __file__
    names = (HOURS,)

    @property
    def settings(self) -> Mapping[str, str]:
        return {"spark.jars": ",".join(map(str, spark_kafka_jars()))}

    @property
    def arguments(self) -> list[str]:
        topics = [self.topic, self.minutes, self.tens]
        return [self.master, self.bootstrap, *topics, self.rows_a_batch, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        clicks = follow_watermark(self._read(spark, self.topic, ",".join(WRITERS)))
        beside_minutes = follow_watermark(self._read(spark, self.topic, ",".join(WRITERS), **aligned(TENS)))
        beside_tens = follow_watermark(self._read(spark, self.minutes, MINUTES, **IN_PAYLOAD, **aligned(HOURS)))
        counted_minutes = self._once(spark, self.minutes, MINUTES, **aligned(TENS), **AWAITED)
        counted_tens = self._once(spark, self.tens, TENS, **aligned(HOURS), **AWAITED)
        tens = counted_minutes.unionByName(uncounted(beside_minutes))
        hours = counted_tens.unionByName(uncounted(beside_tens))
        return {
            MINUTES: self._to_topic(counted(clicks, "1 minute", F.count("*")), MINUTES, self.minutes),
            TENS: self._to_topic(counted(tens, "10 minutes", F.sum("clicks")), TENS, self.tens),
            HOURS: self.written(HOURS, counted(hours, "1 hour", F.sum("clicks"))),
        }

    def started(self, name: str, query: StreamingQuery) -> None:
        topic = {MINUTES: self.minutes, TENS: self.tens}.get(name)
        if topic is not None:
            kafka = {"kafka.bootstrap.servers": self.bootstrap}
            announce_watermark(query, topic=topic, kafka=kafka, writer=name)

    def _once(self, spark: SparkSession, topic: str, writer: str, **options: str) -> DataFrame:
        return once(self._read(spark, topic, writer, **IN_PAYLOAD, **options)).select("event_time", "clicks")

    def _to_topic(self, rows: DataFrame, name: str, topic: str) -> DataStreamWriter:
        return to_topic(rows, self.bootstrap, topic, self.checkpoint(name))

    def _read(self, spark: SparkSession, topic: str, writers: str, **options: str) -> DataFrame:
        return (
            spark.readStream.format("aligned-kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.rows_a_batch)
            .option("watermarkStrategy", "announced")
            .option("announcedBy", writers)
            .options(**options)
            .load()
        )


def aligned(group: str) -> dict[str, str]:
    return {"alignmentGroup": group, "alignmentMaxDrift": f"{DRIFT_MS} milliseconds"}


def uncounted(rows: DataFrame) -> DataFrame:
    """Return rows that add nothing to what is counted beside them."""
    return rows.select("event_time", F.lit(0).cast("long").alias("clicks"))


def once(rows: DataFrame) -> DataFrame:
    """Return what a job before has counted, without the copies of batches that it wrote again."""
    document = F.from_json(F.col("value").cast("string"), "clicks LONG, at LONG").alias("json")
    counts = follow_watermark(rows).select("event_time", document).select("event_time", "json.*")
    return counts.dropDuplicates(["event_time", "at"])


def to_topic(rows: DataFrame, bootstrap: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    """Return a query that writes rows as JSON into a topic, by Spark's own sink."""
    writer = rows.select(F.to_json(F.struct("*")).alias("value")).writeStream.format("kafka")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    return writer.options(**options, checkpointLocation=str(checkpoint))


def counted(rows: DataFrame, length: str, clicks: Column) -> DataFrame:
    """Return the clicks of each window; ``at`` is its last millisecond."""
    window = F.window("event_time", length)
    found = rows.groupBy(window).agg(clicks.alias("clicks"))
    return found.select("clicks", (F.unix_millis("window.end") - 1).alias("at"))


if __name__ == "__main__":
    main(ChainJob(sys.argv[1], Path(sys.argv[7]), *sys.argv[2:7]))
