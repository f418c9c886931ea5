"""A driver program to be killed: both queries of examples/early_and_final.py over one topic, into its table.

Run as ``python killed_answers_driver.py MASTER BOOTSTRAP TOPIC BATCH_ROWS FOLDER``; see killed_driver.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from examples.early_and_final import EARLY, FINAL, AnswerTable, early_answers, final_answers, topic_options
from tests.integration.killed_driver import TopicJob, main


@dataclass(frozen=True)
class AnswersJob(TopicJob):
    """Two queries over a topic, one table."""

    batch_rows: str

    program = __file__
    names = (EARLY, FINAL)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.batch_rows, str(self.folder)]

    @property
    def table(self) -> AnswerTable:
        return AnswerTable(self.folder / "answers.sqlite")

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        options = topic_options(self.bootstrap, self.topic, int(self.batch_rows))
        frames = {EARLY: early_answers(spark, options), FINAL: final_answers(spark, options)}
        table = self.table
        return {
            name: frame.writeStream.queryName(name)
            .option("checkpointLocation", str(self.checkpoint(name)))
            .foreachBatch(table.sink(name))
            for name, frame in frames.items()
        }


if __name__ == "__main__":
    main(AnswersJob(sys.argv[1], Path(sys.argv[5]), *sys.argv[2:5]))
