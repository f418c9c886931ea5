"""The example with windows in a declarative pipeline: they close by the source's watermark, run after run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from services.kafka import Kafka
from services.kafka_topics import create_topic, delete_topic
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from tests.integration.kafka_streams import write
from tests.spark.queries import START

pytestmark = [pytest.mark.service, pytest.mark.timeout(900), pytest.mark.usefixtures("connect_port")]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "watermarks.md"
MINUTE = 60
# Half an hour lies between the partitions. The second run's first rows close the windows of the first one's last.
FIRST = {0: [0, 10, 61, 200], 1: [1_800, 1_930, 2_000]}
SECOND = {0: [170, 260, 1_900], 1: [1_990, 2_300]}


@pytest.fixture
def orders(kafka: Kafka) -> Iterator[None]:
    """The topic that the example names."""
    create_topic(kafka.bootstrap, "orders", 2)
    yield
    delete_topic(kafka.bootstrap, "orders")


def of_the_page(bootstrap: str) -> list[str]:
    """The command of the page as it stands, except for the address, its variables as words of ``env``."""
    (line,) = re.findall(
        r"^    (KAFKA=.*?spark-pipelines run (?:.*\\\n)*.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    line = line.replace("\\\n", "")
    scripts = f"{Path(sys.executable).parent}/"
    return ["env", *shlex.split(line.replace("localhost:9092", bootstrap).replace(".venv/bin/", scripts))]


def closed(*runs: dict[int, list[int]], until: int) -> dict[int, int]:
    """Count all rows by the minute, of windows that end by a moment."""
    times = [second for run in runs for seconds in run.values() for second in seconds]
    minutes = [second // MINUTE for second in times if second // MINUTE * MINUTE + MINUTE <= until]
    return {minute: minutes.count(minute) for minute in minutes}


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long("the first of them"))])
def test_windows_of_a_pipeline_close_by_the_sources_watermark(kafka: Kafka, tmp_path: Path, runs: int) -> None:
    shutil.copytree(ROOT / "examples" / "pipeline_windows", tmp_path / "examples" / "pipeline_windows")
    spec = tmp_path / "examples" / "pipeline_windows" / "spark-pipeline.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("/tmp/counts-pipeline", f"{tmp_path}/storage"))
    # Java reads settings of Spark from its own options; with a folder of settings it would not map its archive.
    settings = " ".join(
        f"-D{name}={value}" for name, value in {**LOCAL_CHECKPOINTS, "spark.ui.enabled": "false"}.items()
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))} | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": f"{quick_spark()} {settings}",
    }  # fmt: skip
    tables, rows_read = [], []
    for times in (FIRST, SECOND)[:runs]:
        write(kafka.bootstrap, "orders", times)
        # Each run is a process of its own, as it is from a shell.
        done = subprocess.run(
            of_the_page(kafka.bootstrap),
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = pq.read_table(tmp_path / "spark-warehouse" / "counts").to_pylist()
        tables.append({(int(row["start"].timestamp()) - START // 1_000) // MINUTE: row["count"] for row in rows})
        read = pq.read_table(tmp_path / "spark-warehouse" / "orders").to_pylist()
        rows_read.append(sorted((row["partition"], row["offset"]) for row in read))
    assert (
        rows_read
        == [
            [(0, n) for n in range(4)] + [(1, n) for n in range(3)],
            [(0, n) for n in range(7)] + [(1, n) for n in range(5)],
        ][:runs]
    )
    # Of the partition that is behind, the last row less what may come out of order.
    due = [closed(FIRST, until=200 - 30), closed(FIRST, SECOND, until=1_900 - 30)]
    assert tables == due[:runs]
