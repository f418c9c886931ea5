"""Streams from the real servers, for every test of this folder."""

from __future__ import annotations

from tests.integration.kafka_streams import streams
from tests.integration.mysql_streams import mysql_database, mysql_streams

__all__ = ["mysql_database", "mysql_streams", "streams"]
