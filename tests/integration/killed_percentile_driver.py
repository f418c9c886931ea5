"""A driver program to be killed: a topic read with a bound that is learned, into files.

Run as ``python killed_percentile_driver.py MASTER BOOTSTRAP TOPIC BATCH_ROWS LEARNED_FROM FOLDER``; see
killed_driver.py. Each life cuts its batches into another number of tasks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.integration.killed_driver import TopicJob, main
from tests.integration.killed_runs import batches

LEARNED = "learned"
_TASKS = (1, 7, 2, 16, 5)


@dataclass(frozen=True)
class PercentileJob(TopicJob):
    """One query over a topic."""

    batch_rows: str

    program = __file__
    names = (LEARNED,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.batch_rows, str(self.folder)]

    def options(self, tasks: int) -> dict[str, str]:
        """Return the options of the source."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": self.batch_rows,
            "watermarkStrategy": "percentile",
            "maxOutOfOrderness": "1 hour",
            "columns": "topic,partition,offset",
            "minPartitions": str(tasks),
        }

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        tasks = _TASKS[batches(self, "offsets") % len(_TASKS)]
        source = spark.readStream.format("aligned-kafka").options(**self.options(tasks))
        rows = source.load().where("marker IS NULL").select("partition", "offset")
        return {LEARNED: self.written(LEARNED, rows)}


if __name__ == "__main__":
    main(PercentileJob(sys.argv[1], Path(sys.argv[5]), *sys.argv[2:5]))
