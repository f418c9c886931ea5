"""A range of the binlog to its end: mysql-replication's bare reader, Debezium, the bytes alone, and this source.

A change is a row that was inserted, updated or deleted.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.debezium import DebeziumRange, Pass, debezium_range
from benchmarks.figures import Figure, ratio, spread
from benchmarks.orders import DATABASE, Range
from benchmarks.queries import MYSQL, run_to_end
from benchmarks.snapshot import tables
from pyspark_mysql_cdc_wm.binlog.event_headers import START, STOP
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from services.mysql import MySql

_LIBRARY, _BYTES, _QUERY = "mysql-replication, bare reader", "bytes, found and not checked", f"{MYSQL}, addBatch"
_DEBEZIUM = "Debezium's engine, steady"
_AT_LEAST = {"L": (30.0, 12.0), "S": (25.0, 10.0), "T": (25.0, 8.0)}
"""For mysql-replication and for Debezium."""


def binlog(
    spark: SparkSession,
    server: MySql,
    wanted: Range,
    start: FilePosition,
    rounds: int,
    *,
    warm_up: int,
    debezium: bool = True,
) -> Iterator[Figure]:
    """Time all readers in turn; ``debezium=False`` leaves it out.

    Those that run in a JVM, this project's and Debezium's, first read the range ``warm_up`` times uncounted, and once
    more before each counted time. Debezium counts from its first batch on, as this project's batches do not count the
    start of their query.
    """
    readers: dict[str, Callable[[], float]] = {
        _LIBRARY: partial(_timed, partial(mysql_replication, server, start), wanted.images),
        _BYTES: partial(_timed, partial(received, server, start), None),
    }
    in_jvm: dict[str, Callable[[], float]] = {_QUERY: partial(_add_batch, spark, server, wanted, start)}
    passes: list[Pass] = []
    with ExitStack() as open_readers:
        if debezium:
            engine = open_readers.enter_context(debezium_range(server, wanted, start))
            in_jvm[_DEBEZIUM] = partial(_steady, engine, passes)
        for read in in_jvm.values():
            for _ in range(warm_up):
                read()
        readers.update({reader: partial(_second, read) for reader, read in in_jvm.items()})
        seconds: dict[str, list[float]] = {reader: [] for reader in readers}
        for _ in range(rounds):
            for reader, read in readers.items():
                seconds[reader].append(read())
    details = dict.fromkeys(readers, "")
    if debezium:
        whole = spread([each.whole for each in passes[warm_up + 1 :: 2]])
        details[_DEBEZIUM] = f"; with its start {whole}, in a new JVM {passes[0].whole:.2f}"
    size = f"{wanted.changes} changes in {wanted.transactions} transactions"
    for reader, taken in seconds.items():
        yield Figure(
            f"binlog {wanted.name}, {reader}: changes/s", wanted.changes / statistics.median(taken) / 1e3, "k/s",
            detail=f"{size}; s min/med/max {spread(taken)}{details[reader]}",
        )  # fmt: skip
    for name, reader, at_least in zip(
        ("mysql-replication", "Debezium"), (_LIBRARY, _DEBEZIUM), _AT_LEAST[wanted.name], strict=True
    ):
        if reader in seconds:
            yield Figure(
                f"binlog {wanted.name}, {name} / ours", ratio(seconds[reader], seconds[_QUERY]), "x", at_least=at_least
            )
    yield Figure(f"binlog {wanted.name}, ours / the bytes alone", ratio(seconds[_QUERY], seconds[_BYTES]), "x")


def mysql_replication(server: MySql, start: FilePosition) -> int:
    """Return the number of row images that mysql-replication reads."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    settings: dict[str, Any] = {"host": server.host, "port": server.port, "user": "root", "password": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        reader = BinLogStreamReader(
            connection_settings=settings,
            server_id=4711,
            log_file=start.file,
            log_pos=start.position,
            resume_stream=True,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        found = sum(len(event.rows) * (2 if isinstance(event, UpdateRowsEvent) else 1) for event in reader)
        reader.close()
    return found


def received(server: MySql, start: FilePosition) -> int:
    """Return the number of bytes of all events."""
    settings = LoginSettings(server.host, server.port, "root", "")
    with closing(BinlogDump(settings, start, check=False)) as dump:
        return sum(int(block.events[-1, STOP]) - int(block.events[0, START]) for block in dump.blocks())


def _timed(read: Callable[[], int], expected: int | None) -> float:
    began = time.perf_counter()
    found = read()
    taken = time.perf_counter() - began
    if expected is not None and found != expected:
        raise RuntimeError(f"{found} row images of {expected} read")
    return taken


def _steady(engine: DebeziumRange, passes: list[Pass]) -> float:
    passes.append(engine.read())
    return passes[-1].steady


def _second(read: Callable[[], float]) -> float:
    """Read twice: Spark ends Python processes that had nothing to do for a minute, and the library takes longer."""
    read()
    return read()


def _add_batch(spark: SparkSession, server: MySql, wanted: Range, start: FilePosition) -> float:
    place = json.dumps({"file": start.file, "position": start.position})
    run = run_to_end(tables(spark, server, wanted.table, startingOffsets=place))
    rows, seconds = 0, 0.0
    for progress in run.progress:
        rows += progress["numInputRows"]
        seconds += float(progress["durationMs"].get("addBatch", 0)) / 1_000
        # Markers are rows too. What comes after is a batch that tells the last watermark.
        if rows >= wanted.images:
            return seconds
    raise RuntimeError(f"{rows} row images of {wanted.images} read from {DATABASE}.{wanted.table}")
