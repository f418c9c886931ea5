"""A driver program to be killed: clicks joined with users while the snapshot of these is read, into files.

Run as ``python killed_join_driver.py MASTER BOOTSTRAP TOPIC HOST:PORT DATABASE CHUNK_ROWS FOLDER`` for clicks of a
topic; for those of Spark's ``rate`` source as ``python killed_join_driver.py MASTER HOST:PORT DATABASE USERS
CHUNK_ROWS wait|no-wait FOLDER``; and for users of a topic, too, as ``python killed_join_driver.py MASTER BOOTSTRAP
TOPIC USERS_TOPIC ROWS_OF_A_BATCH FOLDER``; see killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from examples.clickstream_enrichment import TOGETHER, click_event, enriched, user_info
from examples.rate_enrichment import answered
from tests.integration.killed_driver import KEEP_ENTRIES, KilledJob, TopicJob, main
from watermark_source import follow_watermark
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE

JOINED = "joined"


@dataclass(frozen=True)
class JoinJob(TopicJob):
    """One query over a topic and a table."""

    address: str
    database: str
    chunk_rows: str

    program = __file__
    names = (JOINED,)

    @property
    def arguments(self) -> list[str]:
        what = (self.bootstrap, self.topic, self.address, self.database, self.chunk_rows)
        return [self.master, *what, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        spark.conf.set(STATE_STORE, ROCKSDB)
        users = user_info(
            spark, self.address, self.database, snapshotChunkRows=self.chunk_rows, snapshotParallelism=2
        )  # fmt: skip
        return {JOINED: self.written(JOINED, enriched(click_event(spark, self.bootstrap, self.topic), users))}


@dataclass(frozen=True)
class RateJob(KilledJob):
    """One query over Spark's ``rate`` source and a table."""

    address: str
    database: str
    users: str
    chunk_rows: str
    waits: str
    """``wait`` or ``no-wait``."""

    program = __file__
    names = (JOINED,)

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    @property
    def arguments(self) -> list[str]:
        what = (self.address, self.database, self.users, self.chunk_rows, self.waits)
        return [self.master, *what, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        spark.conf.set(STATE_STORE, ROCKSDB)
        spark.conf.set(*KEEP_ENTRIES)
        joined = answered(
            spark, self.address, int(self.users), self.database, rows_per_batch=100, wait=self.waits == "wait",
            snapshotChunkRows=self.chunk_rows, snapshotParallelism=1,
        )  # fmt: skip
        return {JOINED: self.written(JOINED, joined)}


@dataclass(frozen=True)
class TopicsJob(TopicJob):
    """One query over a topic of clicks and a compacted one of users."""

    users: str
    batch_rows: str

    program = __file__
    names = (JOINED,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.users, self.batch_rows, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        spark.conf.set(STATE_STORE, ROCKSDB)
        rows = (
            spark.readStream.format("aligned-kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.users})
            .options(startingOffsets="earliest", whenCaughtUp="watermark", maxOffsetsPerTrigger=self.batch_rows)
            .options(**TOGETHER, sourceName="users")
            .load()
        )
        users = follow_watermark(rows).selectExpr(
            "CAST(CAST(key AS STRING) AS INT) AS user_id", "CAST(value AS STRING) AS gender",
            "IF(value IS NULL, 'delete', 'upsert') AS _change_type", "offset", "event_time",
        )  # fmt: skip
        return {JOINED: self.written(JOINED, enriched(click_event(spark, self.bootstrap, self.topic), users))}


if __name__ == "__main__":
    if len(sys.argv) == 7:
        main(TopicsJob(sys.argv[1], Path(sys.argv[6]), *sys.argv[2:6]))
    if sys.argv[-2] in ("wait", "no-wait"):
        main(RateJob(sys.argv[1], Path(sys.argv[7]), *sys.argv[2:7]))
    main(JoinJob(sys.argv[1], Path(sys.argv[7]), *sys.argv[2:7]))
