"""``verify_copy`` of a MySQL table's copy in Parquet, and by a certificate, beside a full read by the source."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.figures import Figure, ratio, spread
from benchmarks.orders import DATABASE, TABLE
from benchmarks.queries import run_to_end
from benchmarks.snapshot import tables
from pyspark_mysql_cdc_wm import certify, verify_certified, verify_copy
from services.mysql import MySql


def verify(spark: SparkSession, server: MySql, rows: int, rounds: int) -> Iterator[Figure]:
    """Copy the table by a query, then verify the copy and read the table again in turn."""
    options = {"hostname": server.host, "port": str(server.port), "username": "root", "tables": f"{DATABASE}.{TABLE}"}
    verified, made, certified, read = (list[float]() for _ in range(4))
    with tempfile.TemporaryDirectory() as folder:
        copy, checkpoint = str(Path(folder, "copy")), str(Path(folder, "checkpoint"))
        writer = tables(spark, server, TABLE, includeMarkers="false").writeStream.format("parquet")
        writer.trigger(availableNow=True).option("checkpointLocation", checkpoint).start(copy).awaitTermination()
        for number in range(rounds):
            began = time.perf_counter()
            verdict = verify_copy(lambda: spark.read.parquet(copy), checkpoint=checkpoint, options=options)
            verified.append(time.perf_counter() - began)
            if not verdict.accepted or f"the {rows} rows" not in verdict.summary:
                raise RuntimeError(verdict.summary)
            certificate = Path(folder, f"{number}.json")
            made.append(_seconds(lambda: certify(certificate, checkpoint=checkpoint, options=options)))  # noqa: B023
            certified.append(_seconds(lambda: verify_certified(spark.read.parquet(copy), certificate)))  # noqa: B023
            read.append(run_to_end(tables(spark, server, TABLE, startingOffsets="snapshot")).wall)
    yield Figure(
        "verify, a copy: rows/s", rows / statistics.median(verified) / 1e6, "M/s",
        detail=f"{rows / 1e6:g} M rows; wall s min/med/max {spread(verified)}",
    )  # fmt: skip
    yield Figure("verify, a copy / a full read by the source", ratio(verified, read), "x")
    for name, taken in (("certify, a table", made), ("verify, by a certificate", certified)):
        yield Figure(f"{name} / a full read by the source", ratio(taken, read), "x", detail=f"wall s {spread(taken)}")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
