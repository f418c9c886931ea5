"""What Spark's daemon of Python workers loads before it forks them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from watermark_source.machine_code.built_library import CHOICE
from watermark_source.spark.executor.worker_daemon import without_broken_pipes

PRELOADED = """
import json, sys
from watermark_source.machine_code import native
from watermark_source.spark.executor import worker_daemon
worker_daemon.preload()
loaded = [each.function.__name__ for each in native._functions if each._run != each._first]
print(json.dumps([loaded, "pyspark_mysql_cdc_wm.reading.range_reader" in sys.modules]))
"""
DECODED = """
import numpy as np
from pyspark_aligned_kafka.records import record_batches
record_batches.survey(None, np.zeros(4, np.uint8), 0, 0)
"""


def python(program: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, CHOICE: "numba", "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_imports_what_tasks_need_compiles_nothing_and_loads_what_is_compiled(tmp_path: Path) -> None:
    assert json.loads(python(PRELOADED, tmp_path)) == [[], True]
    assert not list(tmp_path.rglob("*.nbi"))
    python(PRELOADED + DECODED, tmp_path)
    # The connector of MySQL is installed, too: a job of Kafka compiles nothing of it.
    kept = {found.relative_to(tmp_path).parts[0].partition("-")[0] for found in tmp_path.rglob("*.nbi")}
    assert kept == {"pyspark_aligned_kafka"}
    assert json.loads(python(PRELOADED, tmp_path)) == [["_survey"], True]


def test_a_worker_whose_connection_spark_has_closed_ends_without_a_traceback() -> None:
    def fails(error: Exception) -> Callable[[socket.socket, bool], int]:
        def worker(_: socket.socket, __: bool) -> int:
            raise error

        return without_broken_pipes(worker)

    with socket.socket() as connection:
        assert fails(BrokenPipeError())(connection, True) == 1
        assert without_broken_pipes(lambda *_: 0)(connection, False) == 0
        with pytest.raises(ZeroDivisionError):
            fails(ZeroDivisionError())(connection, True)
