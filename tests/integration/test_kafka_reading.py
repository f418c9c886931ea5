"""Reading ranges from a real broker: the rows kafka-python's own consumer sees, whatever happens on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pyspark_aligned_kafka.reading.connection import BrokerConnection
from services.kafka import Kafka
from services.kafka_wire import BrokerConnection as WireConnection
from tests.integration.kafka_reads import Row, number_topic, offsets, reader, rows
from tests.unit.kafka.batches import Rec, batch
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service
CODECS = ["gzip", "snappy", "lz4", "zstd", None]
NewTopic = Callable[..., str]


def as_row(record: Any) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def by_consumer(bootstrap: str, topic: str, ends: dict[int, int], *, read_committed: bool) -> list[Row]:
    """All rows below ``ends`` as kafka-python's consumer delivers them, in the shape of ours."""
    level = "read_committed" if read_committed else "read_uncommitted"
    seen: list[Row] = []
    for partition, end in sorted(ends.items()):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level=level,
            max_partition_fetch_bytes=32 << 20,
            fetch_max_bytes=64 << 20,
        )
        at = TopicPartition(topic, partition)
        consumer.assign([at])
        consumer.seek(at, 0)
        until = time.monotonic() + 60
        while consumer.position(at) < end and time.monotonic() < until:
            seen += map(as_row, consumer.poll(timeout_ms=500).get(at, []))
        consumer.close()
    return seen


def comparable(row: Row) -> Row:
    stamp = row["timestamp"]
    return {**row, "timestamp": round(stamp.timestamp() * 1000)}  # type: ignore[attr-defined]


def ends_of(bootstrap: str, topic: str, *, read_committed: bool = False) -> dict[int, int]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed" if read_committed else "read_uncommitted"
    )
    parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    found = {part.partition: end for part, end in consumer.end_offsets(parts).items()}
    consumer.close()
    return found


def ranges_to(topic: str, ends: dict[int, int]) -> list[SplitRange]:
    return [SplitRange(Split(topic, number), 0, end) for number, end in sorted(ends.items())]


def test_every_codec_null_header_and_kind_of_timestamp_reads_like_the_consumer(
    kafka: Kafka, new_topic: NewTopic
) -> None:
    for config in ({}, {"message.timestamp.type": "LogAppendTime"}):
        topic = new_topic(2, config=config)
        for codec in CODECS:
            producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, compression_type=codec, linger_ms=50)
            for i in range(300):
                producer.send(
                    topic,
                    value=None if i % 7 == 0 else b"value %d " % i * (i % 50),
                    key=None if i % 5 == 0 and i % 7 else b"key %d" % i,
                    headers=[(f"h{n}", b"%d" % n) for n in range(i % 4)] + [("h0", b"again")] * (i % 2),
                    partition=i % 2,
                    timestamp_ms=1_700_000_000_000 + i * 1000,
                )
            producer.close()
        ends = ends_of(kafka.bootstrap, topic)
        assert sum(ends.values()) == 1500
        ours = rows(reader(kafka.bootstrap).read(ranges_to(topic, ends)))
        assert sorted(map(comparable, ours), key=lambda row: (row["partition"], row["offset"])) == by_consumer(
            kafka.bootstrap, topic, ends, read_committed=False
        )


def test_records_of_nulls_only_and_headers_without_a_value(kafka: Kafka, new_topic: NewTopic) -> None:
    # kafka-python's producer refuses to write these; other producers do.
    topic = new_topic()
    recs = [Rec(0, None, None), Rec(1, None, None, headers=[(b"h", None), (b"h", b"")]), Rec(2, b"", b"")]
    host, _, port = kafka.bootstrap.partition(":")
    with WireConnection(host, int(port)) as wire:
        wire.send_produce(topic, {0: batch(0, recs, base_time=5)})
        wire.receive_produce()
    ours = [comparable(row) for row in rows(reader(kafka.bootstrap).read(ranges_to(topic, {0: 3})))]
    assert ours == by_consumer(kafka.bootstrap, topic, {0: 3}, read_committed=False)
    assert ours[1]["headers"] == [{"key": "h", "value": None}, {"key": "h", "value": b""}]


@pytest.mark.parametrize("read_committed", [True, False])
def test_transactions_read_like_the_consumer(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, read_committed: bool
) -> None:
    topic = new_topic(1, config={"segment.bytes": "1048576"})
    producers = [
        KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=f"{topic_name}-{i}") for i in range(2)
    ]
    plain = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for producer in producers:
        producer.init_transactions()
    for turn in range(6):
        for producer in producers:
            producer.begin_transaction()
        for i in range(20):
            producers[i % 2].send(topic, b"%d-%d" % (turn, i)).get(30)
        plain.send(topic, b"outside %d" % turn).get(30)
        producers[0].abort_transaction() if turn % 2 else producers[0].commit_transaction()
        producers[1].abort_transaction() if turn % 3 else producers[1].commit_transaction()
    for producer in [*producers, plain]:
        producer.close()
    ends = ends_of(kafka.bootstrap, topic, read_committed=True)
    expected = by_consumer(kafka.bootstrap, topic, ends, read_committed=read_committed)
    level = "read_committed" if read_committed else "read_uncommitted"
    ours = reader(kafka.bootstrap, **{"kafka.isolation.level": level})
    whole = [comparable(row) for row in rows(ours.read(ranges_to(topic, ends)))]
    assert whole == expected
    assert len(expected) == (56 if read_committed else 126)
    # Ranges that begin and end anywhere, in the middle of transactions and on markers too.
    split = Split(topic, 0)
    for size in (1, 7):
        pieces = [SplitRange(split, at, min(at + size, ends[0])) for at in range(0, ends[0], size)]
        assert [comparable(row) for row in rows(ours.read(pieces))] == expected


def test_an_open_transaction_is_invisible_to_committed_readers_and_visible_to_others(
    kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic_name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open").get(30)
    assert ends_of(kafka.bootstrap, topic, read_committed=True) == {0: 0}
    assert offsets(reader(kafka.bootstrap, ("offset",)).read([SplitRange(Split(topic, 0), 0, 1)])) == [0]
    producer.abort_transaction()
    producer.close()
    ours = reader(kafka.bootstrap, ("offset",), **{"kafka.isolation.level": "read_committed"})
    assert offsets(ours.read([SplitRange(Split(topic, 0), 0, 2)])) == []


LARGE = {0: [10, 10], 1: [10, 9_000_000, 10], 2: [10, 15_900_000, 10]}
"""Sizes of records by partition."""


def test_a_record_of_nine_megabytes_beside_small_ones(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3, config={"max.message.bytes": "20000000"})
    for codec in (None, "zstd"):
        producer = KafkaProducer(
            bootstrap_servers=kafka.bootstrap,
            max_request_size=20_000_000,
            compression_type=codec,
        )
        for partition, sizes in LARGE.items():
            for size in sizes:
                producer.send(topic, np.random.default_rng(size).bytes(size), partition=partition).get(60)
        producer.close()
    ends = ends_of(kafka.bootstrap, topic)
    # Treated as small ranges at first, so that a large batch comes up in a partition that is not the request's first.
    ours = rows(reader(kafka.bootstrap).read(ranges_to(topic, ends)))
    for partition, sizes in LARGE.items():
        assert [len(row["value"]) for row in ours if row["partition"] == partition] == sizes * 2  # type: ignore[arg-type]
    for row in ours:
        size = len(row["value"])  # type: ignore[arg-type]
        assert row["value"] == np.random.default_rng(size).bytes(size)


def test_small_ranges_of_one_leader_are_fetched_with_one_request(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [new_topic(4), new_topic(4)]
    wanted = [number_topic(kafka, topic, 50, partition) for topic in topics for partition in range(4)]
    ours = reader(kafka.bootstrap, ("topic", "partition", "offset"))
    sent: list[int] = []
    send = BrokerConnection.send
    monkeypatch.setattr(BrokerConnection, "send", lambda self, *args: (sent.append(1), send(self, *args))[1])
    assert len(rows(ours.read(wanted), ours.columns)) == 400
    assert len(sent) == 1


@pytest.mark.spark_case(
    "KafkaDataConsumerSuite", "multiple tasks in the same executor reading the same topic-partition"
)
def test_ranges_of_the_same_split_and_empty_ranges(kafka: Kafka, new_topic: NewTopic) -> None:
    split = number_topic(kafka, new_topic(), 1000, batch_records=64).split
    pieces = [
        SplitRange(split, 0, 300),
        SplitRange(split, 300, 300),
        SplitRange(split, 300, 301),
        SplitRange(split, 500, 1000),
    ]
    seen = offsets(reader(kafka.bootstrap, ("offset",)).read(pieces))
    assert sorted(seen) == [*range(301), *range(500, 1000)]
    assert offsets(reader(kafka.bootstrap, ("offset",)).read([])) == []


def test_a_read_given_up_halfway_does_not_disturb_the_next(kafka: Kafka, new_topic: NewTopic) -> None:
    wanted = number_topic(kafka, new_topic(), 200_000)
    ours = reader(kafka.bootstrap, ("offset",))
    begun = ours.read([wanted])
    assert next(begun).rows > 0
    begun.close()  # type: ignore[attr-defined]
    assert offsets(ours.read([wanted])) == list(range(200_000))


@pytest.mark.spark_case("KafkaDataConsumerSuite", "new KafkaDataConsumer instance in case of Task retry")
def test_connections_are_kept_for_the_next_read_and_thrown_away_for_a_retry(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [number_topic(kafka, new_topic(), 100)]
    made: list[int] = []
    init = BrokerConnection.__init__
    monkeypatch.setattr(
        BrokerConnection, "__init__", lambda self, *args, **named: (made.append(1), init(self, *args, **named))[1]
    )
    for _ in range(3):
        assert len(offsets(reader(kafka.bootstrap, ("offset",)).read(wanted))) == 100
    assert len(made) == 1
    monkeypatch.setattr("pyspark_aligned_kafka.reading.range_reader._is_retry", lambda: True)
    assert len(offsets(reader(kafka.bootstrap, ("offset",)).read(wanted))) == 100
    assert len(made) == 2


def test_a_forked_process_does_not_use_its_parents_connections(kafka: Kafka, new_topic: NewTopic) -> None:
    wanted = [number_topic(kafka, new_topic(), 100_000)]
    ours = reader(kafka.bootstrap, ("offset",))
    assert len(offsets(ours.read(wanted))) == 100_000
    child = os.fork()
    if child == 0:
        fine, made = False, []
        init = BrokerConnection.__init__

        def noted(self: BrokerConnection, *args: Any, **named: Any) -> None:
            made.append(1)
            init(self, *args, **named)

        try:
            BrokerConnection.__init__ = noted  # type: ignore[method-assign]
            fine = offsets(ours.read(wanted)) == list(range(100_000)) and len(made) == 1
        finally:
            # The child must not continue with the tests, whatever happens.
            os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert offsets(ours.read(wanted)) == list(range(100_000))
