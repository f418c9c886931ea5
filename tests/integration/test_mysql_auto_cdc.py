"""The example with AUTO CDC: a declarative pipeline makes its table equal to the server's, run after run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from services.ivy import MERGE_CATALOG, merge_catalog_jars
from services.mysql import MySql
from services.spark_start import quick_spark
from tests.integration.mysql_streams import PASSWORD, RIGHTS, make_user

pytestmark = [pytest.mark.service, pytest.mark.timeout(900), pytest.mark.usefixtures("connect_port")]

ROOT = Path(__file__).parents[2]
FIRST = (
    "DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(40), amount DECIMAL(10, 2))",
    "INSERT INTO shop.orders VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)",
)  # fmt: skip
SECOND = (
    "UPDATE shop.orders SET amount = 9 WHERE id = 1", "UPDATE shop.orders SET amount = 10 WHERE id = 1",
    "DELETE FROM shop.orders WHERE id = 2", "INSERT INTO shop.orders VALUES (2, 'back', 5)",
    "UPDATE shop.orders SET id = 7 WHERE id = 3", "DELETE FROM shop.orders WHERE id = 4",
)  # fmt: skip
BATCHES = (
    [(1, "a", 1, "insert", 5, 0), (2, "b", 2, "insert", 5, 0), (3, "c", 3, "insert", 5, 0)],
    [
        (1, "a", 1, "update_preimage", 6, 0), (1, "a", 9, "update_postimage", 6, 1), (2, "b", 2, "delete", 7, 0),
        (1, "a", 9, "update_preimage", 8, 0), (1, "a", 10, "update_postimage", 8, 1), (3, "c", 3, "delete", 9, 0),
        (3, "back", 5, "insert", 9, 1), (4, "d", 4, "insert", 10, 0), (4, "d", 4, "delete", 11, 0),
    ],
)  # fmt: skip
"""Of changes: their rows' columns, kind, version and number."""
PIPELINE = """
import json, sys
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run
from pyspark.sql import SparkSession
from services.mysql_client import run
from tests.integration.test_mysql_auto_cdc import BATCHES, FIRST, SECOND
from tests.unit.docs_blocks import ROOT, blocks

host, port, storage, catalog = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.sql.catalog.lake", catalog).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
spark.sql("CREATE NAMESPACE lake.shop")
path = Path("examples/auto_cdc/spark-pipeline.yml")
for statements in (FIRST, SECOND):
    # As `spark-pipelines run` does, in a session that lives on to be asked for the result.
    run(host, int(port), *statements)
    graph = create_dataflow_graph(spark, "lake", "shop", {})
    registry = SparkConnectGraphElementRegistry(spark, graph)
    cli.register_definitions(path, registry, cli.load_pipeline_spec(path), spark, graph)
    events = start_run(
        spark, graph, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=f"file://{storage}"
    )
    handle_pipeline_events(events)
    rows = spark.table("lake.shop.orders").select("id", "customer", "amount").orderBy("id").collect()
    print("rows", json.dumps([[row["id"], row["customer"], str(row["amount"])] for row in rows]))

# The page's own function, for the batches of `foreachBatch`.
spark.sql("CREATE NAMESPACE lake.copy")
spark.sql("USE lake.copy")
spark.sql("CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10, 2))")
exec(list(blocks(ROOT / "docs" / "mysql.md"))[3].code.partition("\\n\\n\\norders.")[0])
of = "id INT, customer STRING, amount INT, _change_type STRING, _commit_version LONG, _change_number INT, marker INT"
for number, changes in enumerate(BATCHES):
    merge(spark.createDataFrame([(*change, None) for change in changes], of), number)
rows = spark.table("orders").orderBy("id").collect()
print("rows", json.dumps([[row["id"], row["customer"], str(row["amount"])] for row in rows]))
spark.stop()
"""


@pytest.mark.long("test_what_was_delivered_is_what_the_server_holds")
def test_the_pipelines_table_is_the_servers_after_each_run(mysql: MySql, tmp_path: Path) -> None:
    make_user(mysql, "cdc", *RIGHTS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    quick = shlex.quote(f"spark.driver.extraJavaOptions={quick_spark()}")
    catalog = merge_catalog_jars()[0]
    submit = f"--driver-class-path {catalog} --conf spark.ui.enabled=false --conf {quick} pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE, mysql.host, str(mysql.port), str(tmp_path / "storage"), MERGE_CATALOG],
        env={
            **environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": submit, "MYSQL_HOST": mysql.host, "MYSQL_PORT": str(mysql.port),
            "MYSQL_USER": "cdc", "MYSQL_PASSWORD": PASSWORD,
        },
        cwd=ROOT, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tables = [json.loads(line.removeprefix("rows ")) for line in done.stdout.splitlines() if line.startswith("rows ")]
    assert tables[0] == [[1, "a", "1.00"], [2, "b", "2.00"], [3, "c", "3.00"], [4, "d", "4.00"]]
    assert tables[1] == [[1, "a", "10.00"], [2, "back", "5.00"], [7, "c", "3.00"]]
    assert tables[2] == [[1, "a", "10.00"], [3, "back", "5.00"]]
    assert PASSWORD not in done.stdout + done.stderr
