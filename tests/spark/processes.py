"""The Python processes that Spark's JVM has started."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
from pyspark.sql import SparkSession


def runner_processes(spark: SparkSession) -> list[psutil.Process]:
    """Return the runner processes of this session's sources."""
    found: list[psutil.Process] = []
    for started in _jvm(spark).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [_copy_for(started)] if _runs(started, "python_streaming_source_runner") else []
    return found


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


def _copy_for(program: psutil.Process) -> psutil.Process:
    """Return the copy that a program of ``forked_python`` has been given, or Python itself."""
    given = Path(program.cmdline()[2]).parent / f"{program.pid}.copy"
    return psutil.Process(int(given.read_text(encoding="ascii"))) if given.exists() else program
