"""A driver program to be killed: three topics of one query and group, two on one broker and one on another, into files.

Run as ``python killed_group_driver.py MASTER BOOTSTRAP TOPIC OTHER_BOOTSTRAP FOLDER``; the topics begin with ``TOPIC``.
See killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter

from tests.integration.killed_driver import KEEP_ENTRIES, TopicJob, main
from watermark_source import follow_watermark

UNION = "union"
DRIFT_MS = 30_000
SOURCES = ("dense", "sparse", "silent")
MOST_SPARSE = 40
"""Rows of a batch."""


@dataclass(frozen=True)
class GroupJob(TopicJob):
    """One query over three topics; ``sparse`` is on the other broker, and few of its rows are read at a time."""

    other_bootstrap: str

    program = __file__
    names = (UNION,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.other_bootstrap, str(self.folder)]

    def bootstrap_of(self, source: str) -> str:
        return self.other_bootstrap if source == "sparse" else self.bootstrap

    def topic_of(self, source: str) -> str:
        return f"{self.topic}-{source}"

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        spark.conf.set(*KEEP_ENTRIES)

        def rows_of(source: str) -> DataFrame:
            limit = {"maxOffsetsPerTrigger": str(MOST_SPARSE)} if source == "sparse" else {}
            stream = (
                spark.readStream.format("aligned-kafka")
                .options(**{"kafka.bootstrap.servers": self.bootstrap_of(source), "subscribe": self.topic_of(source)})
                .options(startingOffsets="earliest", sourceName=source, idleTimeout="3 seconds", **limit)
                .options(alignmentGroup="union", alignmentMaxDrift=f"{DRIFT_MS} ms")
                .load()
            )
            return follow_watermark(stream).select(F.lit(source).alias("source"), "offset", "event_time")

        return {UNION: self.written(UNION, reduce(DataFrame.union, map(rows_of, SOURCES)))}


if __name__ == "__main__":
    main(GroupJob(sys.argv[1], Path(sys.argv[5]), *sys.argv[2:5]))
