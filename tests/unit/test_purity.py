"""What the pure packages may not touch, seen in a fresh interpreter."""

from __future__ import annotations

import ast
import importlib
import inspect
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
    ["planning", "status_model"],
)
def test_pure_packages_load_nothing_that_does_io_or_reads_a_clock(package: str) -> None:
    command = [sys.executable, "-c", _LOADED, f"watermark_source.{package}"]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split())
    assert "watermark_source" in loaded
    assert not loaded & IMPURE


def test_the_public_names_are_there_without_being_imported() -> None:
    import watermark_source

    assert {"data_rows", "follow_watermark", "markers", "temporal_join"} <= set(dir(watermark_source))
    assert watermark_source.follow_watermark.__module__ == "watermark_source.spark.follow"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = watermark_source.nothing


def loaded_by(module: str, *heavy: str) -> list[str]:
    code = f"import sys, {module}; print(*(name for name in {heavy} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "watermark_source.connector",
        "watermark_source.spark.option_rows",
        "pyspark_aligned_kafka",
        "pyspark_aligned_kafka.options.kafka_options",
        "pyspark_mysql_cdc_wm",
        "pyspark_mysql_cdc_wm.options.mysql_options",
    ],
)
def test_checking_options_loads_no_compiler_and_no_client(module: str) -> None:
    assert loaded_by(module, "numba", "kafka", "pymysql", "pandas") == []


@pytest.mark.parametrize("module", ["watermark_source", "watermark_source.connector"])
def test_a_type_checker_sees_every_public_name_where_it_is_found_when_it_is_used(module: str) -> None:
    public = importlib.import_module(module)
    imports = (each for each in ast.walk(ast.parse(inspect.getsource(public))) if isinstance(each, ast.ImportFrom))
    seen = {name.asname: each.module for each in imports for name in each.names if name.asname is not None}
    assert seen == {name: f"watermark_source.{home}" for name, home in public._HOMES.items()}


def test_every_public_name_of_a_connector_is_there_and_comes_when_it_is_used() -> None:
    assert loaded_by("watermark_source.connector", "pyarrow", "pyspark", "numpy") == []
    from watermark_source import connector

    exported: dict[str, object] = {}
    exec("from watermark_source.connector import *", exported)
    assert set(connector._HOMES) == exported.keys() - {"__builtins__"} <= set(dir(connector))
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'; docs/"):
        _ = connector.nothing
