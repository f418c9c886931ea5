"""Partitions that are created while a topic is read: their first rows are on time, called as Spark calls the source."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import add_partitions
from watermark_source.spark.stream_reader import AlignedStreamReader

pytestmark = pytest.mark.service
FIRST = 8


class Writer:
    """Writes the present into all partitions that there are, all the time; creates more of them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.partitions, self.written = FIRST, 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write)

    def write(self, partition: int) -> None:
        # Under one lock: the times in the topic are in the order of writing, whatever the partition.
        with self._lock:
            now = np.array([time.time_ns() // 1_000_000], dtype=np.int64)
            bulk_produce_partitions(self.bootstrap, self.topic, {partition: PartitionRecords(now, value_size=10)})
            self.written += 1

    def widen(self) -> None:
        """Create a partition and write its first row."""
        add_partitions(self.bootstrap, self.topic, self.partitions + 1)
        self.write(self.partitions)
        self.partitions += 1

    def _write(self) -> None:
        while not self._over.is_set():
            for partition in range(self.partitions):
                self.write(partition)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def test_first_rows_of_new_partitions_are_on_time(
    kafka: Kafka, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    added_partitions = request.config.getoption("--partitions-added")
    topic = new_topic(FIRST)
    # So old may be what is known of the partitions: without looks of its own a batch finds each of them late.
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    reader = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
    offset: Mapping[str, Any] = reader.initialOffset()
    rows: dict[int, int] = {}
    late: list[tuple[int, int, int]] = []
    raised = 0
    chance = random.Random(1)

    def batch() -> None:
        nonlocal offset, raised
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            return
        passed = offset.get("wm")
        raised += end.get("wm") != passed
        for pack in reader.partitions(dict(offset), dict(end)):
            for read in reader.read(pack):
                _take(read, passed)
        offset = end

    def _take(read: pa.RecordBatch, passed: int | None) -> None:
        for partition, at in zip(
            read.column("partition").to_pylist(), read.column("event_time").cast(pa.int64()).to_pylist(), strict=True
        ):
            if partition is None:
                continue  # a marker
            rows[partition] = rows.get(partition, 0) + 1
            if passed is not None and at <= passed * 1_000:
                late.append((partition, at, passed))

    with Writer(kafka.bootstrap, topic) as writer:
        for _ in range(added_partitions):
            widening = threading.Thread(target=writer.widen)
            until = time.monotonic() + chance.uniform(0.1, 0.6)
            widening.start()
            while widening.is_alive() or time.monotonic() < until:
                batch()
            widening.join()
        deadline = time.monotonic() + 150
        # On a busy machine there were few batches so far.
        while raised <= added_partitions:
            assert time.monotonic() < deadline, offset
            batch()
    deadline = time.monotonic() + 150
    while sum(rows.values()) < writer.written:
        assert time.monotonic() < deadline, (rows, writer.written)
        batch()
    reader.stop()
    assert late == []
    assert len(rows) == FIRST + added_partitions


def test_in_silence_the_clock_does_not_pass_the_first_row_of_a_new_partition(
    kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # Nothing but the clock asks for looks.
        "kafka.metadata.max.age.ms": "600000",
        "watermarkStrategy": "ingestion",
        "maxWatermarkLag": "300 ms",
        "watermarkInterval": "100 ms",
    }
    reader = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
    offset: Mapping[str, Any] = reader.initialOffset()
    deadline = time.monotonic() + 150

    def write(partition: int) -> int:
        now = time.time_ns() // 1_000_000
        times = np.array([now], dtype=np.int64)
        bulk_produce_partitions(kafka.bootstrap, topic, {partition: PartitionRecords(times, value_size=10)})
        return now

    def until(condition: Callable[[Mapping[str, Any]], bool]) -> int | None:
        """Continue until the end of a batch is so; return the watermark that its rows are judged by."""
        nonlocal offset
        while True:
            assert time.monotonic() < deadline, offset
            before, offset = offset, reader.latestOffset(offset, reader.getDefaultReadLimit())
            if offset != before:
                for pack in reader.partitions(dict(before), dict(offset)):
                    list(reader.read(pack))
                if condition(offset):
                    return before.get("wm")

    written = write(0)
    until(lambda end: end.get("wm", 0) > written)
    add_partitions(kafka.bootstrap, topic, 2)
    written = write(1)
    passed = until(lambda end: end["splits"][topic].get("1", [0])[0] == 1)
    assert passed is not None
    assert passed < written
    # And continues.
    until(lambda end: end["wm"] > written)
    reader.stop()
