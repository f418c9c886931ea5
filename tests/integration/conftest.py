"""Streams from the real broker, for every test of this folder."""

from __future__ import annotations

from tests.integration.kafka_streams import streams

__all__ = ["streams"]
