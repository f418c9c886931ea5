"""Batch reads of the same topics with this source and with Spark's own, side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession

from services.kafka import Kafka
from watermark_source import data_rows

OURS, BUILT_IN = "aligned-kafka", "kafka"


def by_position(row: Row) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


@dataclass(frozen=True)
class Pair:
    """The same read twice, as two frames that can be run again and again."""

    ours: DataFrame
    theirs: DataFrame

    def rows(self) -> list[Row]:
        """Run both; they must agree in every column. Return the rows, in order of position."""
        found, expected = (sorted(frame.collect(), key=by_position) for frame in (self.ours, self.theirs))
        assert found == expected
        return found

    def answer(self) -> list[int]:
        """Run both and return the numbers that were sent, in order."""
        return sorted(int(row.value) for row in self.rows())


@dataclass
class BatchReads:
    """What a test needs to write numbers and read them back."""

    spark: SparkSession
    bootstrap: str
    producer: KafkaProducer

    def frame(self, kind: str, **options: Any) -> DataFrame:
        """Load a batch read."""
        # Spark's own source waits for this after every look at the log's end.
        common = {"kafka.bootstrap.servers": self.bootstrap, "kafka.fetch.max.wait.ms": "20"}
        reader = self.spark.read.format(kind).options(**common)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def pair(self, **options: Any) -> Pair:
        """Load with both sources; of ours the columns that Spark's own has."""
        ours = data_rows(self.frame(OURS, **options)).drop("event_time")
        return Pair(ours, self.frame(BUILT_IN, **options))

    def send(self, topic: str, numbers: Iterable[int], partition: int | None = None, **more: Any) -> None:
        """Send numbers as text and wait until all are there."""
        for number in numbers:
            self.producer.send(topic, str(number).encode(), partition=partition, **more)
        self.producer.flush(30)

    def wait_for_end(self, topic: str, end: int) -> None:
        """Wait until partition 0 ends at this offset for those who read only what is committed."""
        at, until = TopicPartition(topic, 0), time.monotonic() + 120
        with closing(KafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed")) as consumer:
            while consumer.end_offsets([at])[at] < end:
                assert time.monotonic() < until, "the end of a transaction does not appear"
                time.sleep(0.02)


def numbered(topic: str, values: Mapping[int, int]) -> str:
    """Return Spark's JSON of numbers by partition."""
    return json.dumps({topic: {str(partition): value for partition, value in values.items()}})


def everywhere(topic: str, value: int) -> str:
    """Return the same number for three partitions."""
    return numbered(topic, dict.fromkeys(range(3), value))


@pytest.fixture(scope="module")
def reads(spark: SparkSession, kafka: Kafka, built_in_kafka: str) -> Iterator[BatchReads]:
    """Batch reads from the run's broker."""
    assert built_in_kafka == BUILT_IN
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        yield BatchReads(spark, kafka.bootstrap, producer)
