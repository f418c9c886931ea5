"""The kill test's writer: a batch whose acknowledgement was lost is in the log once, wherever it got lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition

from services.errors import ServiceError
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords
from services.kafka_wire import BrokerConnection
from tests.integration.sure_writer import SureWriter


def records(first: int) -> PartitionRecords:
    values = np.arange(first, first + 3, dtype=">i8").view(np.uint8).reshape(-1, 8)
    return PartitionRecords(np.arange(3, dtype=np.int64), values)


def in_the_log(kafka: Kafka, topic: str) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        found: list[int] = []
        while len(found) < end:
            for polled in consumer.poll(timeout_ms=1_000).values():
                found += [int.from_bytes(record.value, "big") for record in polled]
        return found
    finally:
        consumer.close()


@pytest.fixture
def writer(kafka: Kafka, new_topic: Callable[..., str]) -> SureWriter:
    return SureWriter(kafka.bootstrap, new_topic(1), {0: 0})


def once(method: Callable[..., object], *, done: bool) -> Callable[..., object]:
    """Return a method that fails the first time, having done its work or not."""
    failed = False

    def first_fails(*arguments: object) -> object:
        nonlocal failed
        if failed:
            return method(*arguments)
        failed = True
        if done:
            method(*arguments)
        raise ServiceError("the broker is gone")

    return first_fails


@pytest.mark.parametrize(("lost", "arrived"), [("send_produce", False), ("receive_produce", True)])
def test_a_batch_in_doubt_is_in_the_log_once(
    writer: SureWriter, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, lost: str, *, arrived: bool
) -> None:
    writer.write({0: records(0)})
    monkeypatch.setattr(BrokerConnection, lost, once(getattr(BrokerConnection, lost), done=arrived))
    writer.write({0: records(3)})
    writer.write({0: records(6)})
    assert writer.doubtful == [arrived]
    assert in_the_log(kafka, writer.topic) == list(range(9))


def test_acknowledged_records_that_are_gone_are_noticed(writer: SureWriter) -> None:
    writer.ends[0] = 5
    with pytest.raises(AssertionError):
        writer.write({0: records(5)})
