"""The Python processes that Spark's JVM has started."""

from __future__ import annotations

import contextlib

import psutil
from pyspark.sql import SparkSession


def runner_processes(spark: SparkSession) -> list[psutil.Process]:
    """Return the runner processes of this session's sources."""
    return [p for p in _jvm(spark).children() if _runs(p, "python_streaming_source_runner")]


def newest_runner(spark: SparkSession) -> psutil.Process:
    """Return the runner of the only source of the query that was started last.

    Those of queries that have stopped end a moment later; of one that was stopped while it started Spark leaves it.
    """
    return max(runner_processes(spark), key=psutil.Process.create_time)


def worker_processes(spark: SparkSession) -> list[psutil.Process]:
    """Return the Python workers of a local session, at work or not."""
    daemons = [p for p in _jvm(spark).children() if _runs(p, "pyspark.daemon")]
    found: list[psutil.Process] = []
    for daemon in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += daemon.children()
    return found


def _jvm(spark: SparkSession) -> psutil.Process:
    return psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def _runs(process: psutil.Process, module: str) -> bool:
    # One that ends while it is looked at is none, nor is one its parent has not yet buried.
    with contextlib.suppress(psutil.NoSuchProcess):
        return module in " ".join(process.cmdline())
    return False
