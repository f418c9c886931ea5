"""Ranges of numbered records, read as a task reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from services.kafka import Kafka
from services.kafka_bulk import bulk_produce
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import Split, SplitRange

Row = dict[str, object]
SMALL_FETCHES = {"kafka.max.partition.fetch.bytes": 1 << 20}


def reader(bootstrap: str, columns: Sequence[str] = tuple(KAFKA_COLUMNS), **options: object) -> KafkaRangeReader:
    limits = {name: str(value) for name, value in options.items() if name.startswith("kafka.")}
    settings = parse_settings({"kafka.bootstrap.servers": bootstrap, **limits})
    given = {name: value for name, value in options.items() if name not in limits}
    made = KafkaRangeReader(settings, tuple(columns), fail_on_data_loss=True, poll_timeout_ms=120_000)
    return dataclasses.replace(made, **given)  # type: ignore[arg-type]


def rows(
    batches: Iterator[ReadBatch] | Sequence[ReadBatch], columns: Sequence[str] = tuple(KAFKA_COLUMNS)
) -> list[Row]:
    tables = [pa.Table.from_arrays(list(batch.columns), names=list(columns)) for batch in batches]
    return [row for table in tables for row in table.to_pylist()]


def number_topic(kafka: Kafka, name: str, count: int, partition: int = 0, **options: object) -> SplitRange:
    stamps = 1_700_000_000_000 + np.arange(count, dtype=np.int64)
    bulk_produce(kafka.bootstrap, name, partition, stamps, **options)  # type: ignore[arg-type]
    return SplitRange(Split(name, partition), 0, count)


def offsets(batches: Iterator[ReadBatch]) -> list[int]:
    return [row["offset"] for row in rows(batches, ("offset",))]  # type: ignore[misc]
