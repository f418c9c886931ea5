"""What the pure packages may not touch, seen in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LOADED = """
import importlib, pkgutil, sys
def everything(name):
    package = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(package, "__path__", []), name + "."):
        everything(found.name)
before = set(sys.modules)
everything(sys.argv[1])
print(*(name.partition(".")[0] for name in sys.modules.keys() - before))
"""
IMPURE = {"pyspark", "kafka", "pymysql", "pyarrow", "numba", "numpy", "socket", "asyncio", "time", "logging"}


@pytest.mark.parametrize(
    "package",
    [
        "planning",
        "monitor.source_status",
        "monitor.status_json",
        "monitor.status_reasons",
        "monitor.watermark_warnings",
    ],
)
def test_pure_packages_load_nothing_that_does_io_or_reads_a_clock(package: str) -> None:
    command = [sys.executable, "-c", _LOADED, f"watermark_source.{package}"]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split())
    assert "watermark_source" in loaded
    assert not loaded & IMPURE


def test_the_public_names_are_there_without_being_imported() -> None:
    import watermark_source

    assert {"data_rows", "follow_watermark", "markers", "temporal_join"} <= set(dir(watermark_source))
    assert watermark_source.follow_watermark.__module__ == "watermark_source.spark.follow"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = watermark_source.nothing
