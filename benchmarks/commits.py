"""Latency from a commit in MySQL to the sink at 200 changes a second, by the commit times of the binlog."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure
from benchmarks.orders import DATABASE
from benchmarks.snapshot import tables
from services.mysql import MySql
from services.mysql_client import connect, run

RATE = 200
WARM_UP, SECONDS = 10.0, 20.0
_TABLE = "steady"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_PROCESSES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's own manager for local files lets Hadoop start a process to look for links, for each file it writes."""


class _Writer(threading.Thread):
    """Commits one row after another at a steady rate until stopped."""

    def __init__(self, server: MySql) -> None:
        super().__init__(daemon=True)
        self._connection = connect(server.host, server.port, database=DATABASE)
        self._stop_now = threading.Event()

    def run(self) -> None:
        begin, written = time.perf_counter(), 0
        with self._connection.cursor() as cursor:
            while not self._stop_now.wait(0.002):
                due = int((time.perf_counter() - begin) * RATE)
                for _ in range(written, due):
                    cursor.execute(f"INSERT INTO {_TABLE} (note) VALUES ('a row of this size')")
                written = due

    def stop(self) -> None:
        self._stop_now.set()
        self.join()
        self._connection.close()


def commits(spark: SparkSession, server: MySql, rounds: int) -> Iterator[Figure]:
    """Measure as often as told, and put all commits together: as Spark is, and with a lighter checkpoint."""
    run(
        server.host, server.port, f"USE {DATABASE}",
        f"CREATE TABLE {_TABLE} (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64))",
    )  # fmt: skip
    name = f"commit to sink at {RATE} changes/s"
    yield from _figures(name, spark, server, rounds)
    spark.conf.set(_CHECKPOINTS, _WITHOUT_PROCESSES)
    yield from _figures(f"{name}, no processes for a checkpoint", spark, server, rounds)
    spark.conf.unset(_CHECKPOINTS)


def _figures(name: str, spark: SparkSession, server: MySql, rounds: int) -> Iterator[Figure]:
    taken = sorted(each for _ in range(rounds) for each in _latencies(spark, server))
    detail = f"{len(taken)} commits in {rounds} runs"
    yield Figure(f"{name}: median", statistics.median(taken), "ms", at_most=250, detail=detail)
    yield Figure(f"{name}: p99", taken[int(len(taken) * 0.99)], "ms", at_most=600, detail=detail)


def _latencies(spark: SparkSession, server: MySql) -> list[float]:
    taken: list[float] = []
    measure_from = time.time() + WARM_UP

    def sink(batch: DataFrame, _: int) -> None:
        rows = batch.collect()
        now = time.time()
        if now >= measure_from:
            taken.extend((now - row.committed) * 1e3 for row in rows)

    stream = tables(spark, server, _TABLE, startingOffsets="latest").where("marker IS NULL")
    seconds = stream.selectExpr("unix_micros(_commit_timestamp) / 1e6 AS committed")
    writer = _Writer(server)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint:
        query = seconds.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
        writer.start()
        time.sleep(WARM_UP + SECONDS)
        writer.stop()
        query.stop()
    return taken
