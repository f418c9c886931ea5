"""Compiling without a place to keep compiled code."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import logging
from numba.core import caching
caching.CacheImpl._locator_classes = []
logging.basicConfig(format="%(message)s")
from pyspark_aligned_kafka import native
add = native.compiled("int64(int64, int64)")(eval("lambda a, b: a + b"))
print(add(20, 22))
"""


def test_a_read_only_installation_compiles_anew_and_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "42", done.stderr
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in done.stderr
