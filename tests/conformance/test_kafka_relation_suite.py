"""Spark's KafkaRelationSuite, case by case: what a batch reads, and when it looks at the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaProducer

from services.topics import delete_records
from tests.conformance.batch_reads import BatchReads, numbered

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]


@pytest.fixture
def topic(reads: BatchReads, new_topic: NewTopic) -> str:
    """Three partitions with the numbers 0 to 9, 10 to 19, and 20."""
    name = new_topic(3)
    reads.send(name, range(10), 0)
    reads.send(name, range(10, 20), 1)
    reads.send(name, [20], 2)
    return name


def test_explicit_earliest_to_latest_offsets(reads: BatchReads, topic: str) -> None:
    """explicit earliest to latest offsets"""
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert pair.answer() == [*range(21)]
    # The same plan again: latest is bound when it is read.
    reads.send(topic, range(21, 30), 2)
    assert pair.answer() == [*range(30)]


def test_default_starting_and_ending_offsets(reads: BatchReads, topic: str) -> None:
    """default starting and ending offsets"""
    assert reads.pair(subscribe=topic).answer() == [*range(21)]


def test_explicit_offsets(reads: BatchReads, topic: str) -> None:
    """explicit offsets"""
    pair = reads.pair(
        subscribe=topic,
        startingOffsets=numbered(topic, {0: -2, 1: -2, 2: 0}),
        endingOffsets=numbered(topic, {0: -1, 1: -1, 2: 1}),
    )
    assert pair.answer() == [*range(21)]
    reads.send(topic, range(31, 40), 2)
    assert pair.answer() == [*range(21)]
    reads.send(topic, range(21, 31), 1)
    assert pair.answer() == [*range(31)]


def test_default_starting_and_ending_offsets_with_headers(reads: BatchReads, new_topic: NewTopic) -> None:
    """default starting and ending offsets with headers"""
    topic = new_topic(3)
    reads.send(topic, [1], 0)
    reads.send(topic, [2], 1, headers=[("a", b"b"), ("c", b"d")])
    reads.send(topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    rows = reads.pair(subscribe=topic, includeHeaders="true").rows()
    assert [row.headers if row.headers is None else [tuple(header) for header in row.headers] for row in rows] == [
        None,
        [("a", b"b"), ("c", b"d")],
        [("e", b"f"), ("e", b"g")],
    ]


def test_reuse_same_dataframe_in_query(reads: BatchReads, topic: str) -> None:
    """reuse same dataframe in query"""
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    for frame in (pair.ours, pair.theirs):
        numbers = [int(row.value) for row in frame.union(frame).collect()]
        assert sorted(numbers) == sorted([*range(21), *range(21)])


def test_late_binding_start_offsets(reads: BatchReads, topic: str) -> None:
    """test late binding start offsets"""
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert pair.answer() == [*range(21)]
    delete_records(reads.bootstrap, topic, {0: 10, 1: 10, 2: 1})
    reads.send(topic, range(30, 40), 0)
    assert pair.answer() == [*range(30, 40)]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_read_kafka_transactional_messages(reads: BatchReads, new_topic: NewTopic, level: str) -> None:
    """read Kafka transactional messages: read_committed, and ... read_uncommitted"""
    topic = new_topic(1)
    pair = reads.pair(subscribe=topic, **{"kafka.isolation.level": level})
    committed = level == "read_committed"
    producer = KafkaProducer(bootstrap_servers=reads.bootstrap, transactional_id=topic)
    producer.init_transactions()

    def transaction(numbers: range) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.send(topic, str(number).encode()).get(30)

    transaction(range(1, 6))
    assert pair.answer() == ([] if committed else [*range(1, 6)])
    producer.commit_transaction()
    reads.wait_for_end(topic, 6)
    assert pair.answer() == [*range(1, 6)]
    transaction(range(6, 11))
    producer.abort_transaction()
    reads.wait_for_end(topic, 12)
    assert pair.answer() == [*range(1, 6 if committed else 11)]
    transaction(range(11, 16))
    producer.commit_transaction()
    reads.wait_for_end(topic, 18)
    assert pair.answer() == ([*range(1, 6), *range(11, 16)] if committed else [*range(1, 16)])
    producer.close()


def test_spark_30656_min_partitions(reads: BatchReads, topic: str) -> None:
    """SPARK-30656: minPartitions"""
    pair = reads.pair(subscribe=topic, minPartitions=6)
    rdds = [frame.rdd.glom() for frame in (pair.ours, pair.theirs)]

    def numbers(parts: list[list[object]]) -> list[int]:
        return sorted(int(row.value) for part in parts for row in part)  # type: ignore[attr-defined]

    for rdd in rdds:
        parts = rdd.collect()
        assert len(parts) >= 6
        assert numbers(parts) == [*range(21)]
    # What was cut is bound late all the same.
    reads.send(topic, range(21, 31))
    for rdd in rdds:
        assert numbers(rdd.collect()) == [*range(31)]
    for frame in (pair.ours, pair.theirs):
        assert numbers(frame.rdd.glom().collect()) == [*range(31)]
