"""Rows in event-time order: ``order_by_event_time`` and the same written by hand, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Figure, ratio, spread
from benchmarks.handwritten_ordering import ordered_by_hand
from benchmarks.queries import Run, run_to_end
from benchmarks.topics import BATCH_RECORDS, PARTITIONS, START, VALUE_SIZE
from services.kafka_bulk import bulk_produce
from services.kafka_topics import create_topic
from watermark_source import follow_watermark, order_by_event_time
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE

ORDERING_RECORDS = 2_000_000
KEYS = 1_000
BATCH = 400_000
DISORDER = 20_000
"""Milliseconds; a batch spans two hundred seconds."""
_SETTINGS = {STATE_STORE: ROCKSDB}


def disordered_topic(bootstrap: str, name: str) -> None:
    """Produce records each of which is up to ``DISORDER`` late."""
    create_topic(bootstrap, name, partitions=PARTITIONS)
    count = ORDERING_RECORDS // PARTITIONS
    for partition in range(PARTITIONS):
        chance = np.random.default_rng(partition)
        times = START + np.arange(count) * 4 - chance.integers(0, DISORDER, count)
        bulk_produce(bootstrap, name, partition, times, value_size=VALUE_SIZE, batch_records=BATCH_RECORDS)


def ordering(spark: SparkSession, bootstrap: str, topic: str, pairs: int) -> Iterator[Figure]:
    """Order the topic by both, and read it without."""
    source = (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOutOfOrderness", f"{DISORDER} milliseconds")
        .option("maxOffsetsPerTrigger", str(BATCH))
    )
    variants: dict[str, Callable[[DataFrame], DataFrame]] = {
        "not ordered": lambda rows: rows,
        "ordered": lambda rows: order_by_event_time(rows, "user"),
        "ordered by hand": lambda rows: ordered_by_hand(rows, "user"),
    }
    for setting, value in _SETTINGS.items():
        spark.conf.set(setting, value)
    taken: dict[str, list[Run]] = {name: [] for name in variants}
    for turn in range(pairs + 1):
        for name, build in variants.items():
            rows = follow_watermark(source.load()).selectExpr("offset % 1000 AS user", "value", "event_time", "offset")
            run = run_to_end(build(rows))
            if turn:
                taken[name].append(run)
    for setting in _SETTINGS:
        spark.conf.unset(setting)
    seconds = {name: [run.add_batch for run in runs] for name, runs in taken.items()}
    for name in variants:
        yield Figure(
            f"{name}: rows/s in batches of {BATCH:,}", ORDERING_RECORDS / statistics.median(seconds[name]) / 1e6, "M/s",
            detail=f"{ORDERING_RECORDS / 1e6:g} M records, {KEYS} keys; addBatch s {spread(seconds[name])}",
        )  # fmt: skip
    yield Figure("addBatch, ordered by hand / ordered", ratio(seconds["ordered by hand"], seconds["ordered"]), "x")
