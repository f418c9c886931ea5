"""A driver program to be killed: windows of a file log in a Delta table, with what is complete in its commits.

Run as ``python killed_delta_driver.py MASTER ROWS_OF_A_BATCH FOLDER``, by a Spark that Delta is for; see
killed_driver.py. While ``FOLDER/trap`` is there, it stops between the commit of a batch to the table and that of the
query, and writes ``FOLDER/trapped``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.integration.delta_tables import SETTINGS, delta_jars
from tests.integration.killed_driver import main
from tests.integration.killed_publishing_driver import CountingJob
from watermark_source import completeness_of

TABLE = "delta"


@dataclass(frozen=True)
class DeltaJob(CountingJob):
    """One query from a file log."""

    python: str = sys.executable
    """Of the Spark that Delta is for."""

    program = __file__
    names = (TABLE,)

    @property
    def settings(self) -> Mapping[str, str]:
        # A batch without rows has a commit of its own, and a small table's log is read by two tasks, not by fifty.
        recorded = {
            "spark.databricks.delta.skipRecordingEmptyCommits": "false",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
        return {**SETTINGS, "spark.jars": delta_jars(), **recorded}

    @property
    def command(self) -> list[str]:
        return [self.python, self.program, *self.arguments]

    @property
    def environment(self) -> Mapping[str, str]:
        """With what the test imports and the project as it is installed beside that Spark."""
        path = self.folder / "imports"
        return {**os.environ, "PYTHONPATH": str(path), "PYSPARK_PYTHON": self.python}

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        writer = (
            self.counts(spark).writeStream.queryName(TABLE).option("checkpointLocation", str(self.checkpoint(TABLE)))
        )
        return {TABLE: writer.foreachBatch(self.write)}

    def write(self, batch: DataFrame, number: int) -> None:
        mark = completeness_of(batch, TABLE)
        once = {"txnAppId": mark.query, "txnVersion": str(number)}
        writer = batch.write.format("delta").mode("append").options(**once)
        writer.option("userMetadata", str(mark)).save(str(self.sink(TABLE)))
        self.stop_in_the_trap()


if __name__ == "__main__":
    main(DeltaJob(sys.argv[1], Path(sys.argv[3]), sys.argv[2]))
