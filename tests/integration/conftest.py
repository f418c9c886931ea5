"""Streams from the real servers, for every test of this folder, and no connection that outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_aligned_kafka.reading import kept_sessions as sessions
from tests.integration.direct_kafka import direct
from tests.integration.kafka_streams import streams
from tests.integration.mysql_streams import mysql_database, mysql_streams
from tests.integration.mysql_tables import looks_often

__all__ = ["direct", "looks_often", "mysql_database", "mysql_streams", "streams"]


@pytest.fixture(autouse=True)
def _no_connection_survives_its_test() -> Iterator[None]:
    yield
    sessions._kept.clear()
