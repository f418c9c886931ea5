"""A query over one topic, called as Spark's runner process calls it, whose plans must not take long."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pytest

from pyspark_aligned_kafka import DefaultSource
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_local import LocalKafka
from watermark_source.spark.stream_reader import AlignedStreamReader

_SPARK_ASKS_AFTER = 0.02
START = 1_700_000_000_000
_STARTED: list[Query] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Stop the queries of a test: their threads would ask brokers that are gone, beside all later tests."""
    former = signal.getsignal(signal.SIGTERM)
    yield
    while _STARTED:
        _STARTED.pop().reader.stop()
    signal.signal(signal.SIGTERM, former)


class Query:
    """A query over one topic; its tasks run here."""

    def __init__(self, cluster: LocalKafka, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
        self.reader = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
        self.topic = topic
        _STARTED.append(self)
        self.offset: Mapping[str, Any] = self.reader.initialOffset()

    def plan(self, *, within: float) -> dict[str, int]:
        """Plan a batch and run it; return how many rows it reads, by partition."""
        begun = time.monotonic()
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        assert time.monotonic() - begun < within
        rows = {number: fields[1] for number, fields in end["splits"][self.topic].items() if fields[1]}
        if end == self.offset:
            return {}
        for pack in self.reader.partitions(dict(self.offset), dict(end)):
            list(self.reader.read(pack))
        self.offset = end
        return rows

    def settle(self, seconds: float) -> dict[str, int]:
        """Plan for a while, once at least; return how many rows were read."""
        read: dict[str, int] = {}
        until = time.monotonic() + seconds
        while True:
            rows = self.plan(within=60)
            read.update(rows)
            if time.monotonic() >= until:
                return read
            if not rows:
                time.sleep(_SPARK_ASKS_AFTER)

    def read(self, numbers: set[str]) -> None:
        """Plan until each of these partitions has had rows, which are all that there are."""
        read: set[str] = set()
        until = time.monotonic() + 120
        while not read >= numbers:
            assert time.monotonic() < until, (read, numbers)
            # A busy broker may answer later than one plan waits.
            read |= self.settle(0.1).keys()
        assert read == numbers

    def until(self, condition: Callable[[], bool]) -> None:
        """Plan until the condition holds; nothing may be read."""
        until = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < until, self.offset
            assert self.settle(0.1) == {}

    def statuses(self) -> dict[str, str]:
        report = self.reader.reportLatestOffset()
        assert report is not None
        return {number: fields["status"] for number, fields in report["splits"][self.topic].items()}


def write(cluster: LocalKafka, topic: str, numbers: set[str], second: int) -> None:
    records = PartitionRecords(np.array([START + second * 1_000], dtype=np.int64), value_size=8)
    bulk_produce_partitions(cluster.bootstrap, topic, {int(number): records for number in numbers})
