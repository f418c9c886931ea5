"""Spark's state in RocksDB, which transformWithState needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """For the time of a test; the others' queries are faster without."""
    spark.conf.set(STATE_STORE, ROCKSDB)
    yield
    spark.conf.unset(STATE_STORE)
