"""The topics the benchmarks read, produced once in bulk with event times of their own."""

from __future__ import annotations

import numpy as np

from services.kafka_bulk import PartitionRecords, bulk_produce, bulk_produce_partitions
from services.kafka_topics import create_topic

START = 1_700_000_000_000
RECORDS = 10_000_000
PARTITIONS = 8
HOURS = 10
VALUE_SIZE = 100
BATCH_RECORDS = 150
"""In a batch of 16 KiB, a Java producer's default."""

SKEWED_RECORDS = 1_000_000
"""Records in each of the skewed topic's partitions."""
SKEWED_PARTITIONS = 4
FAST_STEP, STEP = 100, 10
"""Milliseconds between records: partition 0's event time runs ten times faster."""


def even_topic(bootstrap: str, name: str, *, records: int = RECORDS, codec: str = "none") -> None:
    """Produce records whose event times span ``HOURS`` in every partition."""
    create_topic(bootstrap, name, partitions=PARTITIONS)
    count = records // PARTITIONS
    times = START + (np.arange(count, dtype=np.int64) * (HOURS * 3_600_000)) // count
    for partition in range(PARTITIONS):
        bulk_produce(bootstrap, name, partition, times, value_size=VALUE_SIZE, codec=codec, batch_records=BATCH_RECORDS)


def long_topic(bootstrap: str, name: str, *, records: int) -> None:
    """Produce records into one partition."""
    create_topic(bootstrap, name, partitions=1)
    bulk_produce(bootstrap, name, 0, START + np.arange(records, dtype=np.int64), batch_records=BATCH_RECORDS)


def skewed_times(partition: int) -> np.ndarray:
    """Return the event times of one partition of the skewed topic."""
    return START + np.arange(SKEWED_RECORDS, dtype=np.int64) * (FAST_STEP if partition == 0 else STEP)


def skewed_topic(bootstrap: str, name: str) -> None:
    """Produce the skewed backlog."""
    create_topic(bootstrap, name, partitions=SKEWED_PARTITIONS)
    for partition in range(SKEWED_PARTITIONS):
        bulk_produce(bootstrap, name, partition, skewed_times(partition), batch_records=BATCH_RECORDS)


def skewed_payload_topic(bootstrap: str, name: str) -> None:
    """Produce the skewed backlog with its times in JSON; the records' own timestamps are all of one moment."""
    create_topic(bootstrap, name, partitions=SKEWED_PARTITIONS)
    written = np.full(SKEWED_RECORDS, START, dtype=np.int64)
    for partition in range(SKEWED_PARTITIONS):
        texts = np.char.mod('{"at":%d}', skewed_times(partition)).astype("S")
        values = texts.view(np.uint8).reshape(len(texts), -1)
        bulk_produce_partitions(bootstrap, name, {partition: PartitionRecords(written, values=values)})
