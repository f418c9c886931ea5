"""A driver program to be killed: a table's snapshot, binlog and second reading into files, by a query that starts again
if it fails.

Run as ``python killed_mysql_driver.py MASTER HOST:PORT TABLE FOLDER``; see killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.integration.killed_driver import KilledJob, main

CHANGES = "changes"
AGAIN = "again"
"""The label of the second reading."""
CHUNK_ROWS, CHUNKS = 100, 2
USER, PASSWORD = "killed", "pw"


@dataclass(frozen=True)
class MySqlJob(KilledJob):
    """One query over a table."""

    address: str
    table: str

    program = __file__
    names = (CHANGES,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.address, self.table, str(self.folder)]

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        changes = (
            spark.readStream.format("mysql-cdc-wm")
            .options(
                hostname=self.address.rsplit(":", 1)[0],
                port=self.port,
                username=USER,
                password=PASSWORD,
                tables=self.table,
                rereadTables=f"{self.table}:{AGAIN}",
                snapshotChunkRows=CHUNK_ROWS,
                snapshotParallelism=CHUNKS,
            )
            .load()
        )
        return {CHANGES: self.written(CHANGES, changes)}


if __name__ == "__main__":
    main(MySqlJob(sys.argv[1], Path(sys.argv[4]), *sys.argv[2:4]))
