"""A MySQL table into noop: Spark's JDBC reader, which fetches in two ways, and this project's snapshot in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure, ratio, spread
from benchmarks.orders import DATABASE, TABLE
from benchmarks.queries import MYSQL, run_to_end
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS
from services.mysql import MySql

PARTITIONS = 2
_CURSOR, _STREAMING = "cursor fetch", "streaming fetch"
_ROW_BY_ROW = -(2**31)
"""The fetch size by which the JDBC driver streams (its manual: ``Integer.MIN_VALUE``)."""
_AT_LEAST = {_CURSOR: 2.2, _STREAMING: 1.5}
_ALONE = f"{MYSQL}, the tables' columns alone"
_OURS: Mapping[str, Mapping[str, str]] = {
    MYSQL: {},
    _ALONE: {"excludeColumns": ",".join(CHANGE_COLUMNS), "includeMarkers": "false"},
}
"""Options by what figures call it. JDBC's reader delivers what the second does, but for event time."""


def tables(spark: SparkSession, server: MySql, table: str, **options: str) -> DataFrame:
    """Load a stream of a table."""
    given = {"hostname": server.host, "port": str(server.port), "username": "root"}
    named = spark.readStream.format(MYSQL).options(**given, **options)
    return named.option("tables", f"{DATABASE}.{table}").load()


def snapshot(spark: SparkSession, server: MySql, rows: int, rounds: int, *, warm_up: int) -> Iterator[Figure]:
    """Run the readers in turn, ``warm_up`` times uncounted, then time them, from the call to its end."""
    readers: dict[str, Callable[[], float]] = {
        _CURSOR: partial(_jdbc, spark, server, rows, 10_000, "?useCursorFetch=true"),
        _STREAMING: partial(_jdbc, spark, server, rows, _ROW_BY_ROW, ""),
        **{name: partial(_whole_query, spark, server, rows, options) for name, options in _OURS.items()},
    }
    seconds: dict[str, list[float]] = {reader: [] for reader in readers}
    for turn in range(warm_up + rounds):
        for reader, read in readers.items():
            wall = read()
            if turn >= warm_up:
                seconds[reader].append(wall)
    for reader, taken in seconds.items():
        yield Figure(
            f"snapshot, {reader}: rows/s, whole query", rows / statistics.median(taken) / 1e6, "M/s",
            detail=f"{rows / 1e6:g} M rows; wall s min/med/max {spread(taken)}",
        )  # fmt: skip
    for reader, at_least in _AT_LEAST.items():
        yield Figure(
            f"snapshot, Spark's JDBC with {reader} / ours", ratio(seconds[reader], seconds[MYSQL]), "x",
            at_least=at_least,
        )  # fmt: skip
        yield Figure(
            f"snapshot, Spark's JDBC with {reader} / the same columns of ours",
            ratio(seconds[reader], seconds[_ALONE]), "x",
        )  # fmt: skip


def _whole_query(spark: SparkSession, server: MySql, rows: int, options: Mapping[str, str]) -> float:
    run = run_to_end(tables(spark, server, TABLE, startingOffsets="snapshot", **options))
    if run.rows < rows:
        raise RuntimeError(f"{run.rows} rows of {rows} read")
    return run.wall


def _jdbc(spark: SparkSession, server: MySql, rows: int, fetch_size: int, properties: str) -> float:
    reader = spark.read.format("jdbc").options(
        url=f"jdbc:mysql://{server.host}:{server.port}/{DATABASE}{properties}",
        driver="com.mysql.cj.jdbc.Driver",
        user="root",
        dbtable=TABLE,
        fetchsize=fetch_size,
        partitionColumn="id",
        lowerBound=0,
        upperBound=rows,
        numPartitions=PARTITIONS,
    )
    began = time.perf_counter()
    reader.load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
