"""A driver program for a cluster: queries over one topic, each run to its end, and what was seen while they ran.

Run as ``python cluster_driver.py JOB QUERY...``, by Spark's own script or not, where JOB is a ``Job`` as JSON. It needs
the project and nothing else of this repository, since its place may be far from it. To ``Job.seen`` it writes where
tasks and driver found the project, and each query's progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

import watermark_source
from watermark_source import follow_watermark

WINDOWS = "windows"
UNREACHABLE = "unreachable"
"""Windows, with no one at the address tasks are to report to."""
TRAPPED = "trapped"
"""Rows; the task that takes ``Job.trap`` away in the second batch hangs until it is killed."""
SPECULATED = "speculated"
"""Rows; the first attempt of one task of the second batch takes long after its last row."""
OUT_OF_ORDERNESS_MS = 2_000
WINDOW_MS = 10_000
ROW_COLUMNS = ("partition", "offset", "event_time")
_HANGS_SECONDS = 120.0
_SLOW_SECONDS = 120.0
"""Longer than any machine needs for the other tasks; the attempt that takes its place ends it."""


@dataclass(frozen=True)
class Job:
    """What the queries read, where they write, and at which address no one can be reported to."""

    bootstrap: str
    topic: str
    folder: str
    black_hole: tuple[str, int] = ("127.0.0.1", 1)

    def checkpoint(self, query: str) -> Path:
        return Path(self.folder, "checkpoints", query)

    def sink(self, query: str) -> Path:
        return Path(self.folder, "sinks", query)

    @property
    def events(self) -> Path:
        return Path(self.folder, "events")

    @property
    def seen(self) -> Path:
        return Path(self.folder, "seen.json")

    @property
    def trap(self) -> Path:
        return Path(self.folder, "trap")

    def run(self, spark: SparkSession, query: str) -> list[dict[str, Any]]:
        """Run a query until everything is read; return the progress of its batches."""
        hole, port = self.black_hole
        unreachable = {"reportAddress": f"{hole}:{port}"} if query == UNREACHABLE else {}
        source = spark.readStream.format("aligned-kafka").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "200000",
                "maxOutOfOrderness": f"{OUT_OF_ORDERNESS_MS} ms",
                **unreachable,
            }
        )
        followed = follow_watermark(source.load())
        if query == TRAPPED:
            frame = _through(followed, _trap(str(self.trap)))
        elif query == SPECULATED:
            frame = _through(followed, _slow)
        else:
            window = F.window("event_time", f"{WINDOW_MS} milliseconds").alias("window")
            frame = followed.groupBy(window).count().select("window.start", "count")
        writer = frame.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
        started = writer.option("checkpointLocation", str(self.checkpoint(query))).start(str(self.sink(query)))
        started.awaitTermination()
        return [json.loads(progress.json) for progress in started.recentProgress]


Batches = Iterator[pa.RecordBatch]


def _through(rows: DataFrame, function: Callable[[Batches], Batches]) -> DataFrame:
    chosen = rows.select(*ROW_COLUMNS)
    return chosen.mapInArrow(function, chosen.schema)


def _trap(path: str) -> Callable[[Batches], Batches]:
    def hang_once(batches: Batches) -> Batches:
        for batch in batches:
            yield batch
            if _of_batch(1):
                # Only one task can rename it: that one is caught, and shows where it runs.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, f"{path}.{os.environ['SPARK_LOCAL_IP']}")
                    time.sleep(_HANGS_SECONDS)

    return hang_once


def _slow(batches: Batches) -> Batches:
    # By now every row is read and reported: anyone who does it again reports it again.
    yield from batches
    task = TaskContext.get()
    assert task is not None
    if _of_batch(1) and task.partitionId() == 0 and task.attemptNumber() == 0:
        time.sleep(_SLOW_SECONDS)


def _of_batch(number: int) -> bool:
    task = TaskContext.get()
    assert task is not None
    return task.getLocalProperty("streaming.sql.batchId") == str(number)


def session(job: Job) -> SparkSession:
    settings = {
        "spark.eventLog.dir": job.events.as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.cores.max": "2",
        "spark.executor.memory": "700m",
        "spark.log.level": "WARN",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName("cluster")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _place(_: Iterable[int]) -> Iterator[str]:
    import watermark_source as found

    yield str(found.__file__)


def main(job: Job, queries: list[str]) -> None:
    spark = session(job)
    context = spark.sparkContext
    found = context.parallelize(range(4), 4).mapPartitions(_place).collect()
    seen = {
        "application": context.applicationId,
        "driver": {"host": context.getConf().get("spark.driver.host"), "project": watermark_source.__file__},
        "tasks": found,
        "progress": {query: job.run(spark, query) for query in queries},
    }
    job.seen.write_text(json.dumps(seen))
    spark.stop()


def command(job: Job, *queries: str) -> list[str]:
    """Return the program and its arguments, without the interpreter."""
    return [__file__, json.dumps(asdict(job)), *queries]


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])), sys.argv[2:])
