"""A driver program to be killed: rows of a topic put in event-time order, into files.

Run as ``python killed_ordering_driver.py MASTER BOOTSTRAP TOPIC BATCH_ROWS FOLDER``; see killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.integration.killed_driver import KEEP_ENTRIES, TopicJob, main
from watermark_source import follow_watermark, order_by_event_time
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE

ORDERED = "ordered"
KEYS = 7
DISORDER_SECONDS = 30
BUCKETS = 4


@dataclass(frozen=True)
class OrderingJob(TopicJob):
    """One query over a topic."""

    batch_rows: str

    program = __file__
    names = (ORDERED,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.batch_rows, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        spark.conf.set(STATE_STORE, ROCKSDB)
        spark.conf.set(*KEEP_ENTRIES)
        source = spark.readStream.format("aligned-kafka").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": self.batch_rows,
                "maxOutOfOrderness": f"{DISORDER_SECONDS} seconds",
            }
        )
        rows = follow_watermark(source.load()).selectExpr(
            f"offset % {KEYS} AS key", "event_time", "partition", "offset"
        )  # fmt: skip
        return {ORDERED: self.written(ORDERED, order_by_event_time(rows, "key", buckets=BUCKETS))}


if __name__ == "__main__":
    main(OrderingJob(sys.argv[1], Path(sys.argv[5]), *sys.argv[2:5]))
