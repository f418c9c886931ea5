"""What Spark sees of ``mysql-cdc-wm`` before it connects: a light module."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import pyspark_mysql_cdc_wm
from pyspark_mysql_cdc_wm import DefaultSource
from watermark_source.errors import UsageError

GIVEN = {"hostname": "localhost", "port": "1", "username": "u", "password": "hidden", "tables": "shop.orders"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_module_imports_no_client_and_no_compiler() -> None:
    heavy = ("pymysql", "numba", "pyarrow", "numpy", "pyspark_mysql_cdc_wm.source")
    assert run(f"import sys, pyspark_mysql_cdc_wm; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_what_a_driver_needs_brings_no_compiler() -> None:
    # Three processes are started for a query that read no row; each would take half a second more.
    assert run("import sys, pyspark_mysql_cdc_wm.source; print('numba' in sys.modules)") == "False"


def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    program = f"""
import sys
sys.modules["pymysql"] = None
from pyspark_mysql_cdc_wm import DefaultSource
try:
    DefaultSource({GIVEN}).schema()
except Exception as error:
    print(type(error).__name__, error)
"""
    logged = run(program)
    assert logged.startswith('MissingPackageError format("mysql-cdc-wm") needs the package pymysql')
    assert "pip install 'pymysql" in logged


def test_every_package_the_connector_imports_is_looked_for() -> None:
    texts = [path.read_text() for path in Path(pyspark_mysql_cdc_wm.__file__).parent.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)}
    if any("watermark_source.machine_code" in text for text in texts):
        # The engine compiles for its connectors, and asks for no compiler by itself.
        found.add("numba")
    # What comes with Python, with Spark, or with another of those that are looked for.
    always = sys.stdlib_module_names | {"pyspark", "watermark_source", "pyspark_mysql_cdc_wm", "numpy", "llvmlite"}
    assert found - always == {"pyarrow", *DefaultSource.needed_packages}


def test_there_is_no_batch_read() -> None:
    with pytest.raises(UsageError, match="AvailableNow"):
        DefaultSource(GIVEN).reader(StructType())
