"""Spark's KafkaRelationSuite, case by case: what a batch reads, and when it looks at the log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import pytest
from kafka import KafkaProducer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from services.kafka_topics import create_topic, delete_records
from tests.conformance.batch_reads import BUILT_IN, OURS, BatchReads, everywhere, numbered
from watermark_source.errors import OptionError

pytestmark = [pytest.mark.service, pytest.mark.spark]

SUITE = "KafkaRelationSuite"

NewTopic = Callable[..., str]
Timed = tuple[str, list[int]]
START = 1_700_000_000_000


@pytest.fixture
def topic(reads: BatchReads, new_topic: NewTopic) -> str:
    """Three partitions with the numbers 0 to 9, 10 to 19, and 20."""
    name = new_topic(3)
    reads.send(name, range(10), 0)
    reads.send(name, range(10, 20), 1)
    reads.send(name, [20], 2)
    return name


@pytest.mark.spark_case(SUITE, "explicit earliest to latest offsets")
def test_explicit_earliest_to_latest_offsets(reads: BatchReads, topic: str) -> None:
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert pair.answer() == [*range(21)]
    # The same plan again: latest is bound when it is read.
    reads.send(topic, range(21, 30), 2)
    assert pair.answer() == [*range(30)]


@pytest.mark.spark_case(SUITE, "default starting and ending offsets")
def test_default_starting_and_ending_offsets(reads: BatchReads, topic: str) -> None:
    assert reads.pair(subscribe=topic).answer() == [*range(21)]


@pytest.mark.spark_case(SUITE, "explicit offsets")
def test_explicit_offsets(reads: BatchReads, topic: str) -> None:
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


@pytest.mark.spark_case(SUITE, "default starting and ending offsets with headers")
def test_default_starting_and_ending_offsets_with_headers(reads: BatchReads, new_topic: NewTopic) -> None:
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


@pytest.fixture(scope="module")
def timed(reads: BatchReads, kafka: Kafka) -> tuple[str, list[int]]:
    """Thirty numbers, each in the partition of its remainder by three; ten at each of three times. And a time after."""
    name = f"timed-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.bootstrap, name, 3, config={"retention.ms": "-1"})
    times = [START + 1_000 * n for n in range(4)]
    for number in range(30):
        reads.send(name, [number], number % 3, timestamp_ms=times[number // 10])
    return name, times


@pytest.mark.spark_case(SUITE, "timestamp provided for starting and ending")
def test_timestamp_provided_for_starting_and_ending(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(
        subscribe=topic,
        startingOffsetsByTimestamp=everywhere(topic, times[1]),
        endingOffsetsByTimestamp=everywhere(topic, times[2]),
    )
    assert pair.answer() == [*range(10, 20)]


@pytest.mark.spark_case(SUITE, "timestamp provided for starting, offset provided for ending")
def test_timestamp_provided_for_starting_offset_provided_for_ending(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(
        subscribe=topic,
        startingOffsetsByTimestamp=everywhere(topic, times[0]),
        endingOffsets=numbered(topic, {0: -1, 1: -1, 2: 1}),
    )
    assert pair.answer() == [n for n in range(30) if n % 3 != 2 or n == 2]


@pytest.mark.spark_case(SUITE, "timestamp provided for ending, offset provided for starting")
def test_timestamp_provided_for_ending_offset_provided_for_starting(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(
        subscribe=topic,
        startingOffsets=numbered(topic, {0: -2, 1: -2, 2: 0}),
        endingOffsetsByTimestamp=everywhere(topic, times[2]),
    )
    assert pair.answer() == [*range(20)]


@pytest.mark.spark_case(SUITE, "timestamp provided for starting, ending not provided")
def test_timestamp_provided_for_starting_ending_not_provided(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(subscribe=topic, startingOffsetsByTimestamp=everywhere(topic, times[1]))
    assert pair.answer() == [*range(10, 30)]


@pytest.mark.spark_case(SUITE, "timestamp provided for ending, starting not provided")
def test_timestamp_provided_for_ending_starting_not_provided(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(subscribe=topic, endingOffsetsByTimestamp=everywhere(topic, times[2]))
    assert pair.answer() == [*range(20)]


@pytest.mark.spark_case(SUITE, "global timestamp provided for starting and ending")
def test_global_timestamp_provided_for_starting_and_ending(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(subscribe=topic, startingTimestamp=times[1], endingTimestamp=times[2])
    assert pair.answer() == [*range(10, 20)]


@pytest.mark.spark_case(SUITE, "no matched offset for timestamp - startingOffsets")
def test_no_matched_offset_for_timestamp_starting_offsets(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(
        subscribe=topic, startingOffsetsByTimestamp=numbered(topic, {0: times[1], 1: times[1], 2: 2**63 - 1})
    )
    with pytest.raises(PySparkException, match=f"no record is that new in {topic}-2;"):
        pair.ours.collect()
    with pytest.raises(PySparkException, match="No offset matched from request"):
        pair.theirs.collect()


@pytest.mark.spark_case(SUITE, "no matched offset for timestamp - endingOffsets")
def test_no_matched_offset_for_timestamp_ending_offsets(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    pair = reads.pair(
        subscribe=topic, endingOffsetsByTimestamp=numbered(topic, {0: times[1], 1: times[1], 2: 2**63 - 1})
    )
    assert pair.answer() == sorted([*range(10), *(n for n in range(10, 30) if n % 3 == 2)])


@pytest.mark.spark_case(SUITE, "preferences on offset related options")
def test_preferences_on_offset_related_options(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    starts = {
        "startingTimestamp": times[2],
        "startingOffsetsByTimestamp": everywhere(topic, times[1]),
        "startingOffsets": "earliest",
    }
    assert reads.pair(subscribe=topic, **starts).answer() == [*range(20, 30)]
    del starts["startingTimestamp"]
    assert reads.pair(subscribe=topic, **starts).answer() == [*range(10, 30)]
    ends = {
        "endingTimestamp": times[1],
        "endingOffsetsByTimestamp": everywhere(topic, times[2]),
        "endingOffsets": "latest",
    }
    assert reads.pair(subscribe=topic, **ends).answer() == [*range(10)]
    del ends["endingTimestamp"]
    assert reads.pair(subscribe=topic, **ends).answer() == [*range(20)]


@pytest.mark.spark_case(SUITE, "reuse same dataframe in query")
def test_reuse_same_dataframe_in_query(reads: BatchReads, topic: str) -> None:
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    for frame in (pair.ours, pair.theirs):
        numbers = [int(row.value) for row in frame.union(frame).collect()]
        assert sorted(numbers) == sorted([*range(21), *range(21)])


@pytest.mark.spark_case(SUITE, "test late binding start offsets")
def test_late_binding_start_offsets(reads: BatchReads, topic: str) -> None:
    pair = reads.pair(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert pair.answer() == [*range(21)]
    delete_records(reads.bootstrap, topic, {0: 10, 1: 10, 2: 1})
    reads.send(topic, range(30, 40), 0)
    assert pair.answer() == [*range(30, 40)]


@pytest.mark.spark_case(SUITE, "read Kafka transactional messages: read_committed")
def test_read_kafka_transactional_messages_read_committed(reads: BatchReads, new_topic: NewTopic) -> None:
    read_transactions(reads, new_topic(1), committed=True)


@pytest.mark.spark_case(SUITE, "read Kafka transactional messages: read_uncommitted")
def test_read_kafka_transactional_messages_read_uncommitted(reads: BatchReads, new_topic: NewTopic) -> None:
    read_transactions(reads, new_topic(1), committed=False)


def read_transactions(reads: BatchReads, topic: str, *, committed: bool) -> None:
    """Read before and after each of three transactions, the second of which is aborted."""
    level = "read_committed" if committed else "read_uncommitted"
    pair = reads.pair(subscribe=topic, **{"kafka.isolation.level": level})
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


@pytest.mark.spark_case(SUITE, "SPARK-30656: minPartitions")
def test_spark_30656_min_partitions(reads: BatchReads, topic: str) -> None:
    pair = reads.pair(subscribe=topic, minPartitions=6)
    rdds = [frame.rdd.glom() for frame in (pair.ours, pair.theirs)]

    def numbers(parts: Sequence[Sequence[Row]]) -> list[int]:
        return sorted(int(row.value) for part in parts for row in part)

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


# What is refused, what ours states, what Spark's own states.
BAD: list[tuple[dict[str, str], str, str]] = [
    ({"subscribe": "t", "startingOffsets": "latest"}, "cannot begin at the end", "starting offset can't be latest"),
    (
        {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'},
        "cannot begin at the end .*t-0 does",
        "startingOffsets for t-0 can't be latest",
    ),
    ({"subscribe": "t", "endingOffsets": "earliest"}, "cannot end at the beginning", "ending offset can't be earliest"),
    (
        {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
        "cannot end at the beginning .*t-0 does",
        "ending offset for t-0 can't be earliest",
    ),
    ({}, "one of subscribe, subscribePattern and assign is needed", "options must be specified"),
    ({"subscribe": "t", "subscribePattern": "t.*"}, "excludes subscribe", "Only one .*options can be specified"),
    ({"subscribe": "t", "assign": '{"a":[0]}'}, "excludes subscribe", "Only one .*options can be specified"),
    ({"assign": ""}, "option assign.*not JSON", "No topicpartitions to assign"),
    ({"subscribe": ""}, "names no topic", "No topics to subscribe"),
    ({"subscribePattern": ""}, "option subscribePattern.*is empty", "Pattern to subscribe is empty"),
]


@pytest.mark.spark_case(SUITE, "bad batch query options")
def test_bad_batch_query_options(reads: BatchReads) -> None:
    for options, ours, theirs in BAD:
        given = {"kafka.bootstrap.servers": reads.bootstrap, **options}
        with pytest.raises(OptionError, match=ours):
            DefaultSource(given).reader(DefaultSource(given).schema())
        with pytest.raises(PySparkException, match=theirs):
            reads.frame(BUILT_IN, **options).collect()


def refused_by_both(reads: BatchReads, condition: str, text: str, **options: object) -> None:
    """Both say no; ours names the error condition, and Spark's text is the condition's."""
    for kind, message in ((OURS, rf"\[{condition}\] option "), (BUILT_IN, text)):
        # Spark's own Kafka errors come from the JVM as they are.
        with pytest.raises((PySparkException, Py4JJavaError), match=message):
            reads.frame(kind, **options).collect()


@pytest.mark.spark_case(SUITE, "topic-partition for start offset and end offset must match")
def test_topic_partition_for_start_offset_and_end_offset_must_match(reads: BatchReads) -> None:
    refused_by_both(
        reads,
        "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
        "should have the same topic-partitions",
        subscribe="test",
        startingOffsets=everywhere("test", 1),
        endingOffsets=numbered("test", {0: 0, 1: 0}),
    )


@pytest.mark.spark_case(SUITE, "unresolved start offset greater than end offset")
def test_unresolved_start_offset_greater_than_end_offset(reads: BatchReads) -> None:
    refused_by_both(
        reads,
        "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        "The specified start offset 1 is greater than the end offset 0 for",
        subscribe="test",
        startingOffsets=everywhere("test", 1),
        endingOffsets=everywhere("test", 0),
    )


@pytest.mark.spark_case(SUITE, "resolved start offset greater than end offset (without latest)")
def test_resolved_start_offset_greater_than_end_offset_without_latest(reads: BatchReads, timed: Timed) -> None:
    topic, times = timed
    refused_by_both(
        reads,
        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        "The resolved start offset 8 is greater than the resolved end offset",
        subscribe=topic,
        startingOffsets=everywhere(topic, 8),
        endingOffsetsByTimestamp=everywhere(topic, times[1]),
    )


@pytest.mark.spark_case(SUITE, "resolved start offset greater than end offset (with latest)")
def test_resolved_start_offset_greater_than_end_offset_with_latest(reads: BatchReads, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    refused_by_both(
        reads,
        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        "The resolved start offset 1 is greater than the resolved end offset 0 for",
        subscribe=topic,
        startingOffsets=everywhere(topic, 1),
    )
