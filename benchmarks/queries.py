"""Queries the benchmarks time: a stream into the noop sink, read to its end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

OURS = "aligned-kafka"
BUILT_IN = "kafka"
MYSQL = "mysql-cdc-wm"
ALIGNED = {"alignmentGroup": "benchmark", "alignmentMaxDrift": "10 seconds"}


@dataclass(frozen=True, slots=True)
class Run:
    """One AvailableNow query."""

    wall: float
    """Seconds from ``start()`` to its end."""
    add_batch: float
    """Seconds in the batches themselves."""
    rows: int
    progress: tuple[dict[str, Any], ...]


def read_all(
    spark: SparkSession, bootstrap: str, source: str, topic: str, options: Mapping[str, str] | None = None
) -> Run:
    """Read a topic from its beginning to its end into noop."""
    frame = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**(options or {}))
        .load()
    )
    return run_to_end(frame)


def run_to_end(frame: DataFrame) -> Run:
    """Read a stream into noop, to where it ends now."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as checkpoint:
        began = time.perf_counter()
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        wall = time.perf_counter() - began
    progress = tuple(dict(p) if isinstance(p, dict) else p.__dict__ for p in query.recentProgress)
    return Run(
        wall=wall,
        add_batch=sum(p["durationMs"].get("addBatch", 0) for p in progress) / 1_000,
        rows=sum(p["numInputRows"] for p in progress),
        progress=progress,
    )
