"""Streams and batch reads from the real broker, for every test of this folder."""

from __future__ import annotations

from tests.conformance.batch_reads import reads
from tests.integration.direct_kafka import direct
from tests.integration.kafka_streams import streams

__all__ = ["direct", "reads", "streams"]
