"""A driver program to be killed: clicks joined with users while the snapshot of these is read, into files.

Run as ``python killed_join_driver.py MASTER BOOTSTRAP TOPIC HOST:PORT DATABASE CHUNK_ROWS FOLDER``; see
killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from examples.clickstream_enrichment import click_event, enriched, user_info
from tests.integration.killed_driver import TopicJob, main
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


if __name__ == "__main__":
    main(JoinJob(sys.argv[1], Path(sys.argv[7]), *sys.argv[2:7]))
