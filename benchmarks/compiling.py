"""What a first run spends on compiling the MySQL source: its code loaded with an empty cache, and with a full one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.figures import Figure

_LOADED = """
import time
began, cpu = time.perf_counter(), time.process_time()
import pyspark_mysql_cdc_wm.reading.range_reader
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def compiling() -> Iterator[Figure]:
    """Load it twice, each time in a new process."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as cache:
        wall, cpu = _load(cache)
        warm, _ = _load(cache)
    yield Figure("loading the MySQL source: nothing compiled yet", wall, "s", detail=f"{cpu:.1f} s of CPU")
    yield Figure("loading the MySQL source: all compiled before", warm, "s")


def _load(cache: str) -> tuple[float, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    found = subprocess.run([sys.executable, "-c", _LOADED], check=True, capture_output=True, text=True, env=environment)
    wall, cpu = map(float, found.stdout.split())
    return wall, cpu
