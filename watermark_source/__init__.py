"""Spark Structured Streaming sources with per-split watermarks, idleness and alignment groups."""

from __future__ import annotations

from watermark_source.spark.follow import data_rows, follow_watermark, markers

__all__ = ["data_rows", "follow_watermark", "markers"]
