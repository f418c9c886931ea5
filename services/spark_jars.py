"""Jars that pyspark lacks: its Kafka source and MySQL's driver to compare with, a catalog whose tables take MERGE."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from services.cache import cached
from services.errors import ServiceError
from services.ivy import Module, jars, retrieve

_SPARK = "org.apache.spark"
# Versions that work with a pyspark whose own version of the artifact is not published.
_FALLBACKS = {
    "spark-sql-kafka-0-10_2.13": "4.2.0",
    "spark-token-provider-kafka-0-10_2.13": "4.1.0-preview1",
}
_CATALYST, _CATALYST_FALLBACK = "spark-catalyst_2.13", "4.2.0"
MERGE_CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
"""Class of a catalog in the driver's memory, of Spark's own tests."""
# Spark itself carries what these two depend on.
_CLIENTS = (
    Module("org.apache.kafka", "kafka-clients", "3.9.1"),
    Module("org.apache.commons", "commons-pool2", "2.12.1"),
)
_MYSQL_DRIVER = Module("com.mysql", "mysql-connector-j", "9.4.0")


def mysql_driver_jars() -> tuple[Path, ...]:
    """Jars of MySQL's JDBC driver. Downloaded once.

    Raises:
        ServiceError: the repository cannot be reached.
    """
    return jars(f"mysql-driver-{_MYSQL_DRIVER.revision}", [_MYSQL_DRIVER], size="about 5 MB")


def spark_kafka_jars() -> tuple[Path, ...]:
    """Jars of the built-in source in the installed pyspark's version, or the nearest one known to work with it.

    Use: ``builder.config("spark.jars", ",".join(map(str, spark_kafka_jars())))``. Downloaded once.

    Raises:
        ServiceError: the repository cannot be reached, or no usable version is published there.
    """
    pyspark = version("pyspark")
    folder = cached(f"spark-kafka-source-{pyspark}", lambda empty: _fill(empty, pyspark))
    return tuple(sorted(folder.glob("*.jar")))


def merge_catalog_jars() -> tuple[Path, ...]:
    """Jar of ``MERGE_CATALOG``, for the class path of the driver from its start. Downloaded once (8 MB).

    Raises:
        ServiceError: the repository cannot be reached, or no usable version is published there.
    """
    pyspark = version("pyspark")

    def fill(folder: Path) -> None:
        _retrieve_one_of(_CATALYST, (pyspark, _CATALYST_FALLBACK), folder, classifier="tests")

    return tuple(sorted(cached(f"spark-merge-catalog-{pyspark}", fill).glob("*.jar")))


def _fill(folder: Path, pyspark: str) -> None:
    retrieve(_CLIENTS, folder, transitive=False)
    for name, fallback in _FALLBACKS.items():
        _retrieve_one_of(name, (pyspark, fallback), folder)


def _retrieve_one_of(name: str, revisions: tuple[str, str], folder: Path, *, classifier: str | None = None) -> None:
    own, fallback = revisions
    try:
        retrieve([Module(_SPARK, name, own, classifier)], folder, transitive=False)
    except ServiceError:
        sys.stderr.write(f"  {name} {own} cannot be had; trying {fallback}\n")
        retrieve([Module(_SPARK, name, fallback, classifier)], folder, transitive=False)
