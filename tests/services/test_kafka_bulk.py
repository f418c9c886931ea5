"""What the bulk producer writes is what another client reads, for every codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer, TopicPartition

from services.errors import ServiceError
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce, bulk_produce_partitions
from services.kafka_record_batch import CODECS, crc32c, encode_batch, numbered_values

_START = 1_700_000_000_000


def _read(kafka: Kafka, topic: str, partition: int) -> list[Any]:
    """All records of a partition, by a client that shares no code with the producer and checks every checksum."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, enable_auto_commit=False, check_crcs=True)
    split = TopicPartition(topic, partition)
    consumer.assign([split])
    consumer.seek_to_beginning(split)
    end = consumer.end_offsets([split])[split]
    found: list[Any] = []
    while consumer.position(split) < end:
        found.extend(consumer.poll(timeout_ms=1000).get(split, []))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_what_was_written(codec: str, kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    timestamps = _START + np.arange(5_003, dtype=np.int64) * 7
    bulk_produce(kafka.bootstrap, topic, 0, timestamps, codec=codec, batch_records=500)
    records = _read(kafka, topic, 0)
    assert [record.timestamp for record in records] == timestamps.tolist()
    assert [record.offset for record in records] == list(range(5_003))
    assert [record.value for record in records] == [row.tobytes() for row in numbered_values(0, 5_003, 100)]
    assert {record.key for record in records} == {None}


def test_timestamps_may_go_back_and_keys_and_values_may_be_given(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    generator = np.random.default_rng(1)
    timestamps = _START + generator.integers(-(10**9), 10**9, size=700)
    keys = generator.integers(0, 256, size=(700, 5), dtype=np.uint8)
    values = generator.integers(0, 256, size=(700, 300), dtype=np.uint8)
    records = {0: PartitionRecords(timestamps, values=values, keys=keys)}
    bulk_produce_partitions(kafka.bootstrap, topic, records, batch_records=64)
    found = _read(kafka, topic, 0)
    assert [record.timestamp for record in found] == timestamps.tolist()
    assert [record.key for record in found] == [row.tobytes() for row in keys]
    assert [record.value for record in found] == [row.tobytes() for row in values]


def test_partitions_of_different_length_are_written_side_by_side(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    lengths = {0: 2_500, 1: 10, 3: 1}
    records = {p: PartitionRecords(_START + np.arange(n, dtype=np.int64), value_size=p) for p, n in lengths.items()}
    bulk_produce_partitions(kafka.bootstrap, topic, records, batch_records=300)
    assert [len(_read(kafka, topic, p)) for p in range(4)] == [2_500, 10, 0, 1]
    assert _read(kafka, topic, 3)[0].value == numbered_values(0, 1, 3).tobytes()


def test_the_brokers_time_index_finds_the_records(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    bulk_produce(kafka.bootstrap, topic, 0, _START + np.arange(10_000, dtype=np.int64) * 1000)
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap)
    split = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({split: _START + 4_321_500})
    consumer.close()
    assert found[split].offset == 4_322


def test_a_topic_that_does_not_exist_is_refused(kafka: Kafka, topic_name: str) -> None:
    with pytest.raises(ServiceError, match=r"no leader for partitions \[0\]; create it first"):
        bulk_produce(kafka.bootstrap, topic_name, 0, np.array([_START]))


def test_a_batch_the_broker_refuses_is_an_error(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(config={"max.message.bytes": "1000"})
    with pytest.raises(ServiceError, match="refused a batch"):
        bulk_produce(kafka.bootstrap, topic, 0, np.full(100, _START))


def test_checksum_is_crc32c_of_the_rfc() -> None:
    # RFC 3720 B.4, and the usual check value.
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ServiceError, match="codec 'brotli': accepted are none, gzip, snappy, lz4, zstd"):
        encode_batch(np.array([1]), numbered_values(0, 1, 10), codec="brotli")


def test_rows_that_do_not_match_the_timestamps_are_refused() -> None:
    with pytest.raises(ServiceError, match="values: a 2-D uint8 array with 3 rows is expected"):
        PartitionRecords(np.arange(3), values=np.zeros((2, 10), dtype=np.uint8))
