"""A driver program to be killed: two queries over one topic into files, which start again whenever they fail.

Run as ``python killed_driver.py MASTER BOOTSTRAP TOPIC FOLDER``; it never ends by itself. It writes what Spark reports
of each batch, and every failure of a query, to ``FOLDER/progress.jsonl``, a line each. As ``python killed_driver.py
MASTER BOOTSTRAP TOPIC ROWS_OF_A_BATCH FOLDER`` it has one query, whose time is that of the events and then the clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from services.spark_start import quick_executor, quick_spark
from watermark_source import follow_watermark
from watermark_source.errors import UnreachableError
from watermark_source.status_model.status_json import parse_progress

ROWS = "rows"
WINDOWS = "windows"
QUERIES = (ROWS, WINDOWS)
OUT_OF_ORDERNESS_MS = 5_000
WINDOW_MS = 60_000
HISTORY_WINDOW_MS = 5_000
_BROKEN_BY_SPARK = ("Illegal size", "Task not serializable")
"""What queries fail with once two of them have broken the table of environment variables Spark keeps for both."""
KEEP_LOGS = ("spark.sql.streaming.minBatchesToRetain", "100000")
"""Spark deletes old entries of a checkpoint's logs; what they say is the evidence."""
KEEP_ENTRIES = ("spark.sql.streaming.fileSink.log.compactInterval", "100000")
"""An entry of a file sink's log names the files of its own batch, as long as no compacted one replaces it. Spark reads
such a sink only where this is set, too."""


@dataclass(frozen=True)
class KilledJob(ABC):
    """Where queries run, what they read and where they write."""

    master: str
    folder: Path

    program: ClassVar[str]
    """The file that is run."""
    names: ClassVar[tuple[str, ...]]
    """Of the queries."""

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """What the program is started with."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of Spark that it needs beside those of every job."""
        return {}

    @property
    def command(self) -> list[str]:
        """What starts the program."""
        return [sys.executable, self.program, *self.arguments]

    @property
    def environment(self) -> Mapping[str, str] | None:
        """All variables that it has; ``None``: those of the test."""
        return None

    @property
    @abstractmethod
    def port(self) -> int:
        """Of the server that all workers connect to."""

    @abstractmethod
    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        """Return the queries, ready to be started."""

    def started(self, name: str, query: StreamingQuery) -> None:
        """Called after each start of a query."""
        del name, query

    def checkpoint(self, query: str) -> Path:
        return self.folder / "checkpoints" / query

    def sink(self, query: str) -> Path:
        return self.folder / "sinks" / query

    @property
    def progress_log(self) -> Path:
        return self.folder / "progress.jsonl"

    def written(self, name: str, frame: DataFrame) -> DataStreamWriter:
        """Return a query that writes a DataFrame into files."""
        return (
            frame.writeStream.queryName(name)
            .format("parquet")
            .outputMode("append")
            .option("checkpointLocation", str(self.checkpoint(name)))
            .option("path", str(self.sink(name)))
        )


@dataclass(frozen=True)
class TopicJob(KilledJob):
    """Queries of which all connect to a broker."""

    bootstrap: str
    topic: str

    @property
    def port(self) -> int:
        return int(self.bootstrap.rsplit(":", 1)[1])


@dataclass(frozen=True)
class Job(TopicJob):
    """Two queries over a topic."""

    program = __file__
    names = QUERIES

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        """Return both queries, ready to be started.

        All rows with their markers and decoded values, by the event time in these; and windows over the watermark, by
        timestamps.
        """
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "latest",
            "maxOffsetsPerTrigger": "20000",
            "maxOutOfOrderness": f"{OUT_OF_ORDERNESS_MS} ms",
            # Longer than any outage.
            "idleTimeout": "30 seconds",
        }

        def load(**more: str) -> DataFrame:
            # A reader keeps the options it was given: one for each.
            return spark.readStream.format("aligned-kafka").options(**options, **more).load()

        rows = load(
            eventTimeColumn="value:$.at", valueFormat="json", columns="value,partition,offset",
            valueSchema="row STRING, n INT, at BIGINT, _corrupt_record STRING",
        )  # fmt: skip
        aligned = load(alignmentGroup="all", alignmentMaxDrift="2 minutes")
        window = F.window("event_time", f"{WINDOW_MS} milliseconds").alias("window")
        frames = {
            ROWS: rows.select("partition", "offset", "value", "event_time", "marker", "payload"),
            WINDOWS: follow_watermark(aligned).groupBy(window).count().select("window.start", "count"),
        }
        return {name: self.written(name, frame) for name, frame in frames.items()}


@dataclass(frozen=True)
class HistoryJob(TopicJob):
    """Windows over a topic, by event time and then by the clock."""

    batch_rows: str

    program = __file__
    names = (WINDOWS,)

    @property
    def arguments(self) -> list[str]:
        return [self.master, self.bootstrap, self.topic, self.batch_rows, str(self.folder)]

    def queries(self, spark: SparkSession) -> dict[str, DataStreamWriter]:
        rows = (
            spark.readStream.format("aligned-kafka")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic})
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=self.batch_rows)
            .options(whenCaughtUp="clock", maxOutOfOrderness=f"{OUT_OF_ORDERNESS_MS} ms")
            .load()
        )
        window = F.window("event_time", f"{HISTORY_WINDOW_MS} milliseconds")
        counted = follow_watermark(rows).groupBy(window).count().select("window.start", "count")
        return {WINDOWS: self.written(WINDOWS, counted)}


class Lines:
    """A log whose lines are whole however this process ends: each is one write to the end of the file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class ProgressLog(StreamingQueryListener):
    """Writes each batch's watermark, late rows and end offset."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        self._lines.write(
            {
                "query": progress.name,
                "batch": progress.batchId,
                "watermark": progress.eventTime.get("watermark"),
                "late": sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators),
                "end": progress.sources[0].endOffset,
                "ends": [source.endOffset for source in progress.sources],
                "troubles": [s.group and s.group.trouble for s in parse_progress(progress.json)],
            }
        )


def session(master: str, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("killed")
    settings = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Driver and executor live as shortly as the kills let them.
        "spark.driver.extraJavaOptions": quick_spark(),
        "spark.executor.extraJavaOptions": quick_executor(),
        "spark.executor.memory": "700m",
        # Nodes of a cluster have the project installed.
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # As often as it likes: only the kills of this test make one fail.
        "spark.task.maxFailures": "10",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        KEEP_LOGS[0]: KEEP_LOGS[1],
        **more,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def loaded(job: KilledJob, spark: SparkSession) -> dict[str, DataStreamWriter]:
    """Return a job's queries, as soon as its server is there: the driver may begin while that is killed."""
    while True:
        try:
            return job.queries(spark)
        except AnalysisException as failure:
            if UnreachableError.__name__ not in str(failure):
                raise
        time.sleep(0.5)


def main(job: KilledJob) -> None:
    """Run a job's queries for ever."""
    spark = session(job.master, job.settings)
    lines = Lines(job.progress_log)
    spark.streams.addListener(ProgressLog(lines))
    queries = loaded(job, spark)
    running = {}
    for name, query in queries.items():
        running[name] = query.start()
        # Two at once can break what Spark keeps for all queries of a source: docs/watermarks.md, "Several queries".
        while running[name].status["message"].startswith("Initializing"):
            time.sleep(0.02)
        job.started(name, running[name])
    while True:
        try:
            spark.streams.awaitAnyTermination()
        except StreamingQueryException as failure:
            if any(text in str(failure) for text in _BROKEN_BY_SPARK):
                # Only a new application cures it, as docs/watermarks.md states. The JVM ends with this program's pipe.
                os.execv(sys.executable, [sys.executable, *sys.argv])
            lines.write({"failure": str(failure)})
        spark.streams.resetTerminated()
        for name in [name for name, query in running.items() if not query.isActive]:
            running[name] = queries[name].start()
            job.started(name, running[name])


if __name__ == "__main__":
    if len(sys.argv) == 6:
        main(HistoryJob(sys.argv[1], Path(sys.argv[5]), *sys.argv[2:5]))
    main(Job(sys.argv[1], Path(sys.argv[4]), *sys.argv[2:4]))
