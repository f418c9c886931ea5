"""Topics are usable the moment the call returns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import add_partitions, delete_records, delete_topic

_ONE = PartitionRecords(np.array([1_700_000_000_000]))


def test_every_partition_of_a_new_topic_can_be_written_at_once(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(20)
    bulk_produce_partitions(kafka.bootstrap, topic, dict.fromkeys(range(20), _ONE))
    assert _ends(kafka, topic, 20) == [1] * 20


def test_every_added_partition_can_be_written_at_once(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    add_partitions(kafka.bootstrap, topic, 12)
    bulk_produce_partitions(kafka.bootstrap, topic, dict.fromkeys(range(12), _ONE))
    assert _ends(kafka, topic, 12) == [1] * 12


def test_deleted_records_move_the_beginning_offset(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    ten = PartitionRecords(np.arange(10, dtype=np.int64))
    bulk_produce_partitions(kafka.bootstrap, topic, {0: ten, 1: ten})
    delete_records(kafka.bootstrap, topic, {1: 4})
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap)
    beginning = consumer.beginning_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    consumer.close()
    assert {split.partition: offset for split, offset in beginning.items()} == {0: 0, 1: 4}


def test_a_topic_is_configured_as_asked(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"message.timestamp.type": "LogAppendTime"})
    stamped = PartitionRecords(np.array([5], dtype=np.int64))
    bulk_produce_partitions(kafka.bootstrap, topic, {0: stamped})
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap)
    found = consumer.offsets_for_times({TopicPartition(topic, 0): 6})
    consumer.close()
    assert found[TopicPartition(topic, 0)].timestamp > 1_600_000_000_000


def test_a_deleted_topic_is_gone(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    delete_topic(kafka.bootstrap, topic)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    names = admin.list_topics()
    admin.close()
    assert topic not in names


def _ends(kafka: Kafka, topic: str, partitions: int) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap)
    ends = consumer.end_offsets([TopicPartition(topic, partition) for partition in range(partitions)])
    consumer.close()
    return [ends[TopicPartition(topic, partition)] for partition in range(partitions)]
