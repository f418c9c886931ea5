"""Spark's daemon of Python workers, which has loaded what tasks of these sources need before it forks a worker.

Spark's own daemon imports nothing, for what it imports may start threads, which a fork does not copy. Each worker then
imports for a second and a half of a core before its first row. Spark starts one for each task that runs beside others,
and ends it after a minute without a task. ``recommended_conf(installed_on_executors=True)`` names this module in
``spark.python.daemon.module``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import socket
import sys
from collections.abc import Callable

import pyspark.daemon

from watermark_source.installation import format_packages

_OF_SPARK = ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read")


def preload() -> None:
    """Import what tasks of all installed connectors need, and keep it from garbage collections.

    Machine code is loaded as far as an earlier process has kept it. Nothing is compiled: tasks would wait for what they
    need not have.
    """
    # Spark reads the daemon's port from its standard output.
    with contextlib.redirect_stdout(sys.stderr):
        for name in _OF_SPARK:
            importlib.import_module(name)
        importlib.import_module("watermark_source.spark.executor.reading")
        for package in format_packages():
            _preload(package)
        if (native := sys.modules.get("watermark_source.machine_code.native")) is not None:
            native.load_kept()
    gc.freeze()


def _preload(package: str) -> None:
    # What cannot be imported here is reported by the task that needs it: another project's package, or a connector
    # whose own packages are not installed.
    with contextlib.suppress(Exception):
        module = getattr(importlib.import_module(package).DefaultSource, "task_module", "")
        if module:
            importlib.import_module(module)


def without_broken_pipes(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Return Spark's worker, which fails in silence where Spark has closed its connection.

    It wants no more of the task: it was killed, or had what it needed. Spark's own daemon prints a traceback then.
    """

    def work(connection: socket.socket, authenticated: bool) -> int:
        try:
            return worker(connection, authenticated)
        except BrokenPipeError:
            return 1

    return work


if __name__ == "__main__":
    preload()
    pyspark.daemon.worker = without_broken_pipes(pyspark.daemon.worker)  # type: ignore[assignment]
    pyspark.daemon.manager()
