"""Latency from a commit in MySQL to the sink at 200 changes a second, by the commit times of the binlog."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial

from pyspark.sql import SparkSession

from benchmarks.figures import Figure
from benchmarks.orders import DATABASE
from benchmarks.snapshot import tables
from benchmarks.until_the_sink import until_the_sink, with_both_checkpoints
from services.mysql import MySql
from services.mysql_client import connect, run

RATE = 200
WARM_UP, SECONDS = 10.0, 20.0
_TABLE = "steady"


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
    measure = partial(_figures, spark=spark, server=server, rounds=rounds)
    yield from with_both_checkpoints(spark, f"commit to sink at {RATE} changes/s", measure)


def _figures(name: str, spark: SparkSession, server: MySql, rounds: int) -> Iterator[Figure]:
    taken = sorted(each for _ in range(rounds) for each in _latencies(spark, server))
    detail = f"{len(taken)} commits in {rounds} runs"
    yield Figure(f"{name}: median", statistics.median(taken), "ms", at_most=250, detail=detail)
    yield Figure(f"{name}: p99", taken[int(len(taken) * 0.99)], "ms", at_most=600, detail=detail)


def _latencies(spark: SparkSession, server: MySql) -> list[float]:
    stream = tables(spark, server, _TABLE, startingOffsets="latest").where("marker IS NULL")
    moments = stream.selectExpr("unix_micros(_commit_timestamp) / 1e3 AS at")
    return until_the_sink(moments, _Writer(server), warm_up=WARM_UP, seconds=SECONDS)
