"""Spark's built-in Kafka source is there for comparisons."""

from __future__ import annotations

import zipfile

import pytest

from services.ivy import spark_kafka_jars


@pytest.mark.service
def test_the_jars_register_sparks_own_kafka_source() -> None:
    found = spark_kafka_jars()
    names = sorted(path.name.rsplit("-", 1)[0] for path in found if "preview" not in path.name)
    assert len(found) == 4, names
    (source,) = [path for path in found if path.name.startswith("spark-sql-kafka")]
    registered = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    with zipfile.ZipFile(source) as jar:
        assert b"KafkaSourceProvider" in jar.read(registered)
