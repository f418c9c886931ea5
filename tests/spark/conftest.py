"""Streams from file logs, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.file_log import FileLogDataSource
from tests.spark.queries import Streams


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries over file logs; whatever still runs at the end of the test is stopped."""
    spark.dataSource.register(FileLogDataSource)
    made = Streams(spark, tmp_path)
    yield made
    made.stop()
