"""How old rows are in the sink while 40 000 a second are written, to Kafka and to MySQL."""

from __future__ import annotations

import statistics
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure
from benchmarks.orders import DATABASE
from benchmarks.queries import BUILT_IN, OURS
from benchmarks.snapshot import tables
from benchmarks.until_the_sink import until_the_sink, with_both_checkpoints
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.mysql import MySql
from services.mysql_client import connect, run

RATE, EVERY = 40_000, 0.025
"""Rows a second, and seconds between two writes."""
WARM_UP, SECONDS = 15.0, 20.0
P99_MS = 1_000.0
_ROWS = int(RATE * EVERY)
"""Of one write."""
_TABLE = "fresh"


class _Writer(threading.Thread):
    """Writes at a steady rate until it is stopped; what it cannot write in time it writes as soon as it can."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stop_now = threading.Event()
        self.rate = 0.0
        """Rows that it wrote, a second."""

    @abstractmethod
    def write(self) -> None:
        """Write ``_ROWS`` rows."""

    def run(self) -> None:
        begin, writes = time.perf_counter(), 0
        while not self._stop_now.wait(max(0.0, begin + writes * EVERY - time.perf_counter())):
            self.write()
            writes += 1
        self.rate = writes * _ROWS / (time.perf_counter() - begin)

    def stop(self) -> None:
        self._stop_now.set()
        self.join()


class _Producer(_Writer):
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self._brokers, self._topic, self._partitions = bootstrap, topic, partitions

    def write(self) -> None:
        times = np.full(_ROWS // self._partitions, time.time_ns() // 1_000_000)
        records = dict.fromkeys(range(self._partitions), PartitionRecords(times))
        bulk_produce_partitions(self._brokers, self._topic, records)


class _Committer(_Writer):
    def __init__(self, server: MySql) -> None:
        super().__init__()
        self._connection = connect(server.host, server.port, database=DATABASE)
        self._statement = f"INSERT INTO {_TABLE} (note) VALUES {', '.join(['(%r)' % ('n' * 40)] * _ROWS)}"

    def write(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(self._statement)

    def stop(self) -> None:
        super().stop()
        self._connection.close()


def freshness(spark: SparkSession, bootstrap: str, topic: str, partitions: int, rounds: int) -> Iterator[Figure]:
    """Measure Spark's source and ours, from the timestamp of a record to the sink."""

    def rows_of(source: str) -> DataFrame:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", topic).option("startingOffsets", "latest").load()
        return rows.where("value IS NOT NULL").selectExpr("CAST(unix_millis(timestamp) AS DOUBLE) AS at")

    for source, target in ((BUILT_IN, None), (OURS, P99_MS)):

        def once(source: str = source) -> tuple[DataFrame, _Writer]:
            return rows_of(source), _Producer(bootstrap, topic, partitions)

        measure = partial(_figures, once=once, rounds=rounds, target=target)
        yield from with_both_checkpoints(spark, f"record to sink at {RATE:,} records/s, {source}", measure)


def mysql_freshness(spark: SparkSession, server: MySql, rounds: int) -> Iterator[Figure]:
    """Measure from the commit of a transaction of a thousand rows to the sink."""
    run(
        server.host, server.port, f"USE {DATABASE}",
        f"CREATE TABLE {_TABLE} (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(64))",
    )  # fmt: skip

    def once() -> tuple[DataFrame, _Writer]:
        changes = tables(spark, server, _TABLE, startingOffsets="latest").where("marker IS NULL")
        return changes.selectExpr("unix_micros(_commit_timestamp) / 1e3 AS at"), _Committer(server)

    measure = partial(_figures, once=once, rounds=rounds, target=P99_MS)
    yield from with_both_checkpoints(spark, f"commit to sink at {RATE:,} changes/s", measure)


def _figures(
    name: str, once: Callable[[], tuple[DataFrame, _Writer]], rounds: int, target: float | None
) -> Iterator[Figure]:
    taken, rates = [], []
    for _ in range(rounds):
        rows, writer = once()
        found = until_the_sink(rows, writer, warm_up=WARM_UP, seconds=SECONDS)
        if not found:
            raise SystemExit(f"{name}: no batch ended in the {SECONDS:g} s that are measured; is the machine busy?")
        taken += found
        rates.append(writer.rate)
    detail = f"{len(taken):,} rows in {rounds} runs; written {min(rates):,.0f} rows/s"
    p99 = float(np.percentile(taken, 99))
    yield Figure(f"{name}: median", statistics.median(taken), "ms", detail=detail)
    yield Figure(f"{name}: p99", p99, "ms", at_most=target, detail=detail)
