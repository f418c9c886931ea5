"""Streams from file logs, for every test of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.file_log import FileLogDataSource
from tests.spark.queries import Streams


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Queries over file logs; whatever still runs at the end of the test is stopped."""
    spark.dataSource.register(FileLogDataSource)
    made = Streams(spark, tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., DataFrame]:
    """``load`` of streams that no test starts, once for each name and options: each time costs two processes."""
    spark.dataSource.register(FileLogDataSource)
    streams = Streams(spark, tmp_path_factory.mktemp("loaded"))
    known: dict[tuple[Any, ...], DataFrame] = {}

    def load(*, name: str = "data", **options: Any) -> DataFrame:
        key = (name, *sorted(options.items()))
        if key not in known:
            streams.write({0: []}, name=name)
            known[key] = streams.load(name=name, **options)
        return known[key]

    return load
