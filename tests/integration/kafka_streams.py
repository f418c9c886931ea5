"""Queries over Kafka topics: write records at chosen times, read them with this source or Spark's own, compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.pacing import rest
from tests.spark.queries import START, Streams

Seconds = Sequence[float] | np.ndarray
"""Record times, in seconds after ``START``."""

Ranges = dict[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> [first, end)"""

POSITION = ("topic", "partition", "offset")


def write(bootstrap: str, topic: str, times: Mapping[int, Seconds], **options: Any) -> None:
    """Append one record for each time to each partition."""
    records = {
        partition: PartitionRecords(START + np.round(np.asarray(seconds) * 1_000).astype(np.int64), value_size=20)
        for partition, seconds in times.items()
        if len(seconds)
    }
    bulk_produce_partitions(bootstrap, topic, records, **options)


def wait_for(condition: Callable[[], object], query: StreamingQuery, *, seconds: float = 200) -> None:
    """Wait until the condition holds; fail at once if the query ends before it does."""
    begun = time.monotonic()
    end = begun + seconds
    while not condition():
        if not query.isActive:
            query.awaitTermination()
            raise AssertionError("the query ended")
        assert time.monotonic() < end, f"not within {seconds} s"
        rest(time.monotonic() - begun, 0.05)
        begun = time.monotonic()


def batches_of(offsets: Sequence[Mapping[str, Any]]) -> list[Ranges]:
    """Return the ranges that batches read that ended there.

    Spark's own batches, which only take the watermark in, repeat the offset before and have none.
    """
    return [
        {
            (log, int(number)): (fields[0] - fields[1], fields[0])
            for log, numbers in offset["splits"].items()
            for number, fields in numbers.items()
            if fields[1] and offset != before
        }
        for before, offset in zip([None, *offsets], offsets, strict=False)
    ]


@dataclass
class KafkaStreams(Streams):
    """What a test needs to stream from a broker."""

    bootstrap: str = ""

    def source(self, kind: str = "aligned-kafka", **options: Any) -> DataFrame:
        """Load a stream; it begins at earliest unless the options say otherwise."""
        starting = {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}
        reader = self.spark.readStream.format(kind).option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in {**starting, **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def write(self, topic: str, times: Mapping[int, Seconds], **options: Any) -> None:  # type: ignore[override]
        write(self.bootstrap, topic, times, **options)

    def data(self, name: str, columns: Sequence[str] = POSITION) -> list[Row]:
        """Return the data rows of a file sink, in order of position; none while it holds no file."""
        log = self.sink(name) / "_spark_metadata"
        if not any('"add"' in file.read_text() for file in log.glob("[0-9]*")):
            return []
        found = self.result(name)
        if "marker" in found.columns:
            found = found.where("marker IS NULL")
        order = [column for column in POSITION if column in found.columns] or list(columns)
        return found.orderBy(*order).select(*columns).collect()

    def die_in(self, name: str, batch: int) -> None:
        """Leave what a driver leaves that died in a batch: it is logged, and neither Spark nor a file sink know it."""
        done, planned = self.checkpoint(name) / "commits", self.checkpoint(name) / "offsets"
        for number in range(batch, len(self.offsets(name))):
            gone = [done, self.sink(name) / "_spark_metadata"] + ([planned] if number > batch else [])
            for folder in gone:
                for file in (f"{number}", f".{number}.crc"):
                    (folder / file).unlink(missing_ok=True)

    def last_with_rows(self, name: str) -> int:
        """Return the number of the last batch of a checkpoint that read anything."""
        return max(number for number, ranges in enumerate(self.batches(name)) if ranges)

    def batches(self, name: str) -> list[Ranges]:
        """Return the ranges each batch of a checkpoint read."""
        return batches_of(self.offsets(name))


@pytest.fixture
def streams(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[KafkaStreams]:
    """Queries over topics of the run's broker; whatever still runs at the end of the test is stopped."""
    made = KafkaStreams(spark, tmp_path, bootstrap=kafka.bootstrap)
    yield made
    made.stop()
