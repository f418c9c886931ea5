"""Spark's built-in Kafka source is there for comparisons, and for readers of the docs."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from services.ivy import SPARK_KAFKA, retrieve, spark_kafka_jars
from services.kafka import Kafka
from services.kafka_local import KAFKA_VERSION, _locked, _unlocked
from services.kafka_topics import create_topic

pytestmark = pytest.mark.service
SINKS = Path(__file__).parents[2] / "docs" / "sinks.md"
_WRITE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]"){config}.getOrCreate()
row = spark.sql("SELECT 'one' AS value")
row.write.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "of-the-docs").save()
read = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "of-the-docs")
print([bytes(row.value) for row in read.load().collect()])
"""


def test_the_jars_register_sparks_own_kafka_source() -> None:
    found = spark_kafka_jars()
    assert len(found) == 4, found
    (source,) = [path for path in found if path.name.startswith("spark-sql-kafka")]
    registered = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    with zipfile.ZipFile(source) as jar:
        assert b"KafkaSourceProvider" in jar.read(registered)


@pytest.mark.long("test_a_package_of_spark_is_named_in_the_release_that_is_published")
def test_the_line_of_the_docs_gets_sparks_sink_for_kafka(kafka: Kafka) -> None:
    (config,) = re.findall(r"`(\.config\(\"spark\.jars\.packages\".*?\))`", SINKS.read_text(encoding="utf-8"))
    assert str(SPARK_KAFKA) in config
    create_topic(kafka.bootstrap, "of-the-docs", partitions=1)
    command = [sys.executable, "-c", _WRITE.format(config=config), kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "[b'one']\n", done.stderr


@pytest.mark.long("test_what_is_written_is_read_back")
def test_the_jars_of_a_broker_are_those_that_it_depends_on(tmp_path: Path) -> None:
    retrieve(_unlocked(KAFKA_VERSION), tmp_path)
    assert {path.name for path in tmp_path.glob("*.jar")} == {f"{m.name}-{m.revision}.jar" for m in _locked()}
