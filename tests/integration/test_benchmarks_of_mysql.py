"""The benchmarks that read MySQL, on a thousandth of their data: they run to their end, and every reader reads all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mysql import BINLOG, SNAPSHOT, VERIFY
from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.spark]


@pytest.mark.timeout(600)
@pytest.mark.long("tests of the readers it compares")
def test_the_readers_of_mysql_are_measured_side_by_side(tmp_path: Path) -> None:
    chosen = [SNAPSHOT, VERIFY, BINLOG, "--scale", "0.001", "--rounds", "1", "--results", str(tmp_path)]
    quick = ["--without-debezium", "--warm-up", "0", "--conf", f"spark.driver.extraJavaOptions={quick_spark()}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *chosen, *quick], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    with_target = [figure["name"] for figure in figures if figure["at_least"] is not None]
    assert with_target == [
        "snapshot, Spark's JDBC with cursor fetch / ours",
        "snapshot, Spark's JDBC with streaming fetch / ours",
        *(f"binlog {name}, mysql-replication / ours" for name in "LST"),
    ]
    assert all(figure["value"] > 0 for figure in figures)
