"""The example with windows in a declarative pipeline: they close by the source's watermark, run after run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from services.kafka import Kafka
from services.kafka_topics import create_topic
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark

pytestmark = [pytest.mark.service, pytest.mark.timeout(900), pytest.mark.usefixtures("connect_port")]

ROOT = Path(__file__).parents[2]
MINUTE = 60
# Half an hour lies between the partitions. The second run's first rows close the windows of the first one's last.
FIRST = {0: [0, 10, 61, 200], 1: [1_800, 1_930, 2_000]}
SECOND = {0: [170, 260, 1_900], 1: [1_990, 2_300]}
PIPELINE = """
import json, sys
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run
from pyspark.sql import SparkSession
from tests.integration.kafka_streams import write
from tests.integration.test_pipeline_windows import FIRST, SECOND

kafka, storage = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
path = Path("examples/pipeline_windows/spark-pipeline.yml")
for times in (FIRST, SECOND):
    # As `spark-pipelines run` does, in a session that lives on to be asked for the result.
    write(kafka, "orders", times)
    graph = create_dataflow_graph(spark, "spark_catalog", "default", {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    cli.register_definitions(path, registry, cli.load_pipeline_spec(path), spark, graph)
    events = start_run(
        spark, graph, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=f"file://{storage}"
    )
    handle_pipeline_events(events)
    rows = spark.sql("SELECT unix_seconds(start), count FROM counts").collect()
    print("rows", json.dumps([list(row) for row in rows]))
    print("orders", json.dumps([list(row) for row in spark.sql("SELECT partition, offset FROM orders").collect()]))
spark.stop()
"""


def closed(*runs: dict[int, list[int]], until: int) -> dict[int, int]:
    """Count all rows by the minute, of windows that end by a moment."""
    times = [second for run in runs for seconds in run.values() for second in seconds]
    minutes = [second // MINUTE for second in times if second // MINUTE * MINUTE + MINUTE <= until]
    return {minute: minutes.count(minute) for minute in minutes}


def test_windows_of_a_pipeline_close_by_the_sources_watermark(kafka: Kafka, tmp_path: Path) -> None:
    create_topic(kafka.bootstrap, "orders", 2)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    settings = (
        f"spark.driver.extraJavaOptions={quick_spark()}", "spark.ui.enabled=false",
        *(f"{name}={value}" for name, value in LOCAL_CHECKPOINTS.items()),
        f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}", "spark.sql.session.timeZone=UTC",
    )  # fmt: skip
    submit = " ".join(f"--conf {shlex.quote(each)}" for each in settings)
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE, kafka.bootstrap, str(tmp_path / "storage")],
        env={
            **environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell", "KAFKA": kafka.bootstrap,
        },
        cwd=ROOT, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    from tests.spark.queries import START

    tables = [
        {(second - START // 1_000) // MINUTE: count for second, count in json.loads(line.removeprefix("rows "))}
        for line in done.stdout.splitlines()
        if line.startswith("rows ")
    ]
    orders = [sorted(json.loads(line[7:])) for line in done.stdout.splitlines() if line.startswith("orders ")]
    assert orders == [
        [[0, n] for n in range(4)] + [[1, n] for n in range(3)],
        [[0, n] for n in range(7)] + [[1, n] for n in range(5)],
    ]
    # Of the partition that is behind, the last row less what may come out of order.
    assert tables[0] == closed(FIRST, until=200 - 30)
    assert tables[1] == closed(FIRST, SECOND, until=1_900 - 30)
