"""The kit's harness of ``aligned-kafka``: a topic of each check's own on the run's broker."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
from kafka import KafkaProducer

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from services.kafka_topics import add_partitions, create_topic, delete_records, delete_topic
from watermark_source_testing import Ability, Harness, Row


class KafkaHarness(Harness):
    source = DefaultSource
    abilities = frozenset(
        {
            Ability.CHOSEN_TIMES, Ability.SEVERAL_SPLITS, Ability.NEW_SPLITS, Ability.LOSS, Ability.QUIET,
            Ability.BUILT_OFFLINE, Ability.REMOTE, Ability.TIME_INDEX, Ability.PREVIEW,
            Ability.BATCHES, Ability.MARKS,
        }
    )  # fmt: skip
    mark_options: ClassVar[Mapping[str, str]] = {"watermarkStrategy": "punctuated", "watermarkColumn": "timestamp"}
    unreachable_options: ClassVar = {
        "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "2000",
        "kafka.request.timeout.ms": "1000",
    }  # fmt: skip

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.topic = f"conformance-{uuid.uuid4().hex[:8]}"
        create_topic(kafka.bootstrap, self.topic, 2, config={"retention.ms": "-1"})
        self.partitions = 2

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "kafka.metadata.max.age.ms": "500",
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }

    @property
    def options_at_end(self) -> Mapping[str, str]:
        return {**self.options, "startingOffsets": "latest"}

    def write(self, split: int, rows: Sequence[Row]) -> None:
        if split >= self.partitions:
            self.partitions = split + 1
            add_partitions(self.kafka.bootstrap, self.topic, self.partitions)
        with contextlib.closing(KafkaProducer(bootstrap_servers=self.kafka.bootstrap.split(","))) as producer:
            sent = [
                producer.send(self.topic, b"%d" % row.value, partition=split, timestamp_ms=row.event_time)
                for row in rows
            ]
            for each in sent:
                each.get(timeout=30)

    def lose(self, split: int) -> None:
        delete_records(self.kafka.bootstrap, self.topic, {split: -1})

    def values(self, rows: pa.Table) -> Sequence[int]:
        return [int(value) for value in rows["value"].to_pylist()]

    def close(self) -> None:
        delete_topic(self.kafka.bootstrap, self.topic)
