"""Another Spark than those that were tried, and none, are named with what is expected and what to write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas import types

from pyspark_aligned_kafka import DefaultSource
from watermark_source.errors import UsageError
from watermark_source.spark.query_plan import steps_of
from watermark_source.supported_spark import need_supported_spark, spark_internals


@pytest.fixture(autouse=True)
def looked_at_anew() -> Iterator[None]:
    need_supported_spark.cache_clear()
    yield
    need_supported_spark.cache_clear()


@pytest.mark.parametrize("version", ["3.5.6", "4.1.1", "4.4.0", "4.20.0", "5.0.0.dev0"])
def test_a_source_is_not_loaded_by_a_version_that_was_not_tried(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(UsageError, match=rf"runs on Spark 4\.2 and 4\.3 \(docs.*\), not Spark {version}"):
        DefaultSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}).schema()


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.1.dev0"])
def test_all_releases_of_the_versions_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    need_supported_spark()


def test_a_name_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(types, "to_arrow_schema")
    with pytest.raises(UsageError, match=r"4\.2 and 4\.3 .*has no pyspark\.sql\.pandas\.types\.to_arrow_schema"):
        need_supported_spark()


@pytest.mark.parametrize(
    "program",
    [
        "from watermark_source import follow_watermark",
        "from watermark_source.connector import AlignedDataSource",
        "import pyspark_mysql_cdc_wm",
        "from watermark_source.command_line import main; sys.exit(main(['doctor', '--kafka']))",
    ],
)
def test_where_there_is_no_spark_the_line_that_installs_it_is_named(program: str) -> None:
    script = f"import sys; sys.modules['pyspark'] = None; {program}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert "watermark_source needs the package pyspark" in done.stderr.splitlines()[-1]
    assert "install it with: pip install 'pyspark" in done.stderr.splitlines()[-1]


@pytest.mark.spark
def test_a_class_of_spark_that_has_other_methods_is_named(spark: SparkSession) -> None:
    rows = spark.range(1)
    assert steps_of(rows).kind == "Range"
    # As the class of another Spark, which has no such method.
    jvm: Any = spark._jvm
    rows._jdf = jvm.java.util.ArrayList()
    with pytest.raises(UsageError, match=r"runs on Spark 4\.2 and 4\.3 .*classes: Method queryExecution.* exist$"):
        steps_of(rows)


def test_other_errors_are_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError), spark_internals():
        _ = 1 / 0
