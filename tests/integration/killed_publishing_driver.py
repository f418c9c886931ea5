"""A driver program to be killed: windows of a file log, in files and in a database, with what is complete of each.

Run as ``python killed_publishing_driver.py MASTER ROWS_OF_A_BATCH FOLDER``; see killed_driver.py. While ``FOLDER/trap``
is there, it stops between the rows of a batch and what it states of them, and writes ``FOLDER/trapped``.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tests.integration.killed_driver import KilledJob, main
from tests.spark.file_log import FileLogDataSource
from watermark_source import completeness_of, follow_watermark, publish_completeness, publish_in
from watermark_source.publishing.table_target import TableTarget

FILES = "files"
DATABASE = "database"
WINDOW_SECONDS = 10
DISORDER_SECONDS = 2


@dataclass(frozen=True)
class CountingJob(KilledJob):
    """Queries that count the rows of a file log in windows, and stop in a trap while it is there."""

    batch_rows: str

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.batch_rows, str(self.folder)]

    @property
    def port(self) -> int:
        raise NotImplementedError("its rows are in files")

    def counts(self, spark: SparkSession) -> DataFrame:
        """Return the windows with their rows, by the end of each in milliseconds."""
        spark.dataSource.register(FileLogDataSource)
        source = spark.readStream.format("file-log").option("directory", str(self.folder / "data"))
        source = source.option("startingOffsets", "earliest").option("maxRowsPerTrigger", self.batch_rows)
        rows = follow_watermark(source.option("maxOutOfOrderness", f"{DISORDER_SECONDS} seconds").load())
        counted = rows.groupBy(F.window("event_time", f"{WINDOW_SECONDS} seconds")).count()
        return counted.select(F.unix_millis("window.end").alias("end"), "count")

    def stop_in_the_trap(self) -> None:
        if (self.folder / "trap").exists():
            (self.folder / "trapped").touch()
            time.sleep(3_600)


@dataclass(frozen=True)
class PublishingJob(CountingJob):
    """Two queries from a file log."""

    program = __file__
    names = (FILES, DATABASE)

    @property
    def database(self) -> Path:
        return self.folder / "shop.db"

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        counts = self.counts(spark)
        checkpoint = str(self.checkpoint(DATABASE))
        in_database = counts.writeStream.queryName(DATABASE).foreachBatch(self.insert)
        return {
            FILES: self.written(FILES, counts),
            DATABASE: in_database.option("checkpointLocation", checkpoint),
        }

    def insert(self, batch: DataFrame, _: int) -> None:
        """Insert a batch and what is complete with it, in one transaction; a batch that is repeated changes nothing."""
        mark = completeness_of(batch, DATABASE)
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, connection:
            found = [(row["end"], row["count"]) for row in batch.collect()]
            connection.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?)", found)
            self.stop_in_the_trap()
            publish_in(connection, mark, "counts")

    def started(self, name: str, query: StreamingQuery) -> None:
        if name == FILES:
            publish_completeness(query, self.sink(FILES), FILES)


if __name__ == "__main__":
    job = PublishingJob(sys.argv[1], Path(sys.argv[3]), sys.argv[2])
    announce = TableTarget.announce

    def announced(*given: object) -> None:
        """State it, unless the trap is there."""
        job.stop_in_the_trap()
        announce(*given)  # type: ignore[arg-type]

    TableTarget.announce = announced  # type: ignore[method-assign,assignment]
    main(job)
