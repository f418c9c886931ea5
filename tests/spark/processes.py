"""The Python processes that Spark's JVM has started."""

from __future__ import annotations

import contextlib

import psutil
from pyspark.sql import SparkSession

from services.wait_until import wait_until


def runner_processes(spark: SparkSession) -> list[psutil.Process]:
    """Return the runner processes of this session's sources."""
    return [p for p in _jvm(spark).children() if _runs(p, "python_streaming_source_runner")]


def only_runner(spark: SparkSession) -> psutil.Process:
    """Return the runner of the only source; those of queries that have stopped end a moment later."""
    found: list[psutil.Process] = []

    def is_alone() -> bool:
        found[:] = runner_processes(spark)
        return len(found) == 1

    wait_until(is_alone, 120, "one runner alone")
    return found[0]


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
