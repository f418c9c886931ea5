"""KafkaMicroBatchSourceSuite, rates: how much a batch reads, when it is due, and how it is split over tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.direct_kafka import DirectKafka, DirectQuery
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import settle
from watermark_source import data_rows

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"
LONG_MAX = 2**63 - 1
ENOUGH = 0.8
"""A batch that ends at one event time uses this much of its limit, or more."""


def sizes(streams: KafkaStreams | DirectKafka, name: str) -> list[int]:
    """Return how many offsets each batch that read anything read."""
    return [sum(end - first for first, end in batch.values()) for batch in streams.batches(name) if batch]


def assert_limited(read: list[int], *, limit: int, total: int) -> None:
    """Everything was read, in batches that use the limit and never pass it."""
    assert sum(read) == total
    assert max(read) <= limit
    assert min(read[:-1], default=limit) >= ENOUGH * limit


@pytest.mark.spark_case(SUITE, "maxOffsetsPerTrigger")
def test_maxOffsetsPerTrigger(direct: DirectKafka, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(3)
    direct.write(topic, {0: range(100), 1: range(10), 2: [50]})
    source = direct.source(subscribe=topic, maxOffsetsPerTrigger=10)
    query = direct.start(source, "q")
    query.process_all()
    before = sizes(direct, "q")
    assert_limited(before, limit=10, total=111)
    assert len(direct.data("q")) == 111
    # Over a restart as well.
    query.stop()
    direct.write(topic, {0: range(100, 120)})
    query = direct.start(source, "q")
    query.process_all()
    assert_limited(sizes(direct, "q")[len(before) :], limit=10, total=20)
    assert len(direct.data("q")) == 131


@pytest.mark.spark_case(SUITE, "minOffsetsPerTrigger")
def test_minOffsetsPerTrigger(direct: DirectKafka, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(2)
    direct.write(topic, {0: range(3)})
    query = direct.start(direct.source(subscribe=topic, minOffsetsPerTrigger=15, maxTriggerDelay="12 seconds"), "q")
    # The first batch does not wait.
    query.run_until(lambda: sizes(direct, "q") == [3])
    direct.write(topic, {0: range(3, 8), 1: range(9)})
    query.run_for(1.5)
    assert sizes(direct, "q") == [3]
    begun = time.monotonic()
    direct.write(topic, {1: [9]})
    query.run_until(lambda: sizes(direct, "q") == [3, 15])
    direct.write(topic, {1: [10]})
    query.run_until(lambda: sizes(direct, "q") == [3, 15, 1])
    assert time.monotonic() - begun > 11.9
    query.run_until(lambda: len(direct.data("q")) == 19)


@pytest.mark.spark_case(SUITE, "compositeReadLimit")
def test_compositeReadLimit(direct: DirectKafka, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(2)
    direct.write(topic, {0: range(8)})
    source = direct.source(
        subscribe=topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=20, maxTriggerDelay="10 minutes"
    )
    query = direct.start(source, "q")
    query.run_until(lambda: sizes(direct, "q") == [8])
    direct.write(topic, {1: range(43)})
    query.run_until(lambda: 51 - sum(sizes(direct, "q")) < 5)
    query.run_for(1)
    read = sizes(direct, "q")
    assert max(read) <= 20
    # What is left are too few; one less than enough still is.
    left = 51 - sum(read)
    direct.write(topic, {0: range(8, 8 + 4 - left)})
    query.run_for(1)
    assert sizes(direct, "q") == read
    direct.write(topic, {0: [20]})
    query.run_until(lambda: sizes(direct, "q") == [*read, 5])


@pytest.mark.spark_case(SUITE, "SPARK-26718 Rate limit set to Long.Max should not overflow integer")
def test_the_highest_rate_limit_is_no_limit(direct: DirectKafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(50), 1: range(7)})
    query = direct.start(direct.source(subscribe=topic, maxOffsetsPerTrigger=LONG_MAX), "q")
    query.process_all()
    assert sizes(direct, "q") == [57]


@pytest.mark.spark_case(SUITE, "SPARK-22956: currentPartitionOffsets should be set when no new data comes in")
def test_a_silent_source_beside_a_busy_one(streams: KafkaStreams, new_topic: NewTopic) -> None:
    first, second = new_topic(2), new_topic(2)
    streams.write(first, {0: range(3)})
    both = [data_rows(streams.source(subscribe=topic, maxOffsetsPerTrigger=5)) for topic in (first, second)]
    query = streams.start_file(both[0].union(both[1]), "q")
    settle(query)
    streams.write(second, {0: range(4)})
    settle(query)
    streams.write(first, {1: range(6)})
    settle(query)
    assert len(streams.data("q")) == 13


@pytest.mark.spark_case(SUITE, "Trigger.AvailableNow")
def test_available_now_reads_what_was_there_in_batches(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(15), 1: range(5)})
    source = streams.source(subscribe=topic, maxOffsetsPerTrigger=10)
    query = streams.start_file(source, "q", availableNow=True)
    wait_for(lambda: (streams.checkpoint("q") / "offsets" / "1").exists(), query)
    streams.write(topic, {0: [20]})
    assert query.awaitTermination(120)
    read = sizes(streams, "q")
    assert_limited(read, limit=10, total=20)
    streams.run(source, "q")
    assert sizes(streams, "q") == [*read, 1]


@pytest.mark.spark_case(SUITE, "Trigger.AvailableNow")
def test_a_run_with_an_end_leaves_nothing_to_minOffsetsPerTrigger(  # noqa: N802 - the option's name
    direct: DirectKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    direct.write(topic, {0: range(13)})
    direct.run(direct.source(subscribe=topic, maxOffsetsPerTrigger=5, minOffsetsPerTrigger=4), "q")
    assert_limited(sizes(direct, "q"), limit=5, total=13)


def tasks(direct: DirectKafka, topic: str, **options: Any) -> list[int]:
    """Return how many rows each task of one batch reads."""
    query = direct.start(direct.source(subscribe=topic, **options), repr(options))
    start = query.reader.initialOffset()
    planned = query.reader.partitions(start, dict(query.reader.latestOffset(start, query.limit)))
    found = [[row for batch in query.reader.read(task) for row in offsets_of(batch)] for task in planned]
    assert sorted(offset for task in found for offset in task) == [*range(105)]
    return sorted(map(len, found))


def offsets_of(batch: pa.RecordBatch) -> list[int]:
    return [offset for offset in batch["offset"].to_pylist() if offset is not None]


@pytest.mark.spark_case(SUITE, "SPARK-30656: minPartitions")
@pytest.mark.spark_case(SUITE, "minPartitions is supported")
def test_minPartitions(direct: DirectKafka, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(1)
    direct.write(topic, {0: range(105)})
    assert tasks(direct, topic) == [105]
    assert tasks(direct, topic, minPartitions=4) == [21, 21, 21, 21, 21]


@pytest.mark.spark_case(SUITE, "maxRecordsPerPartition")
def test_maxRecordsPerPartition(direct: DirectKafka, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(1)
    direct.write(topic, {0: range(105)})
    assert tasks(direct, topic, maxRecordsPerPartition=50) == [35, 35, 35]
    assert max(tasks(direct, topic, maxRecordsPerPartition=50, minPartitions=10)) <= 11


@pytest.mark.spark_case(SUITE, "test custom metrics - with rate limit")
@pytest.mark.spark_case(SUITE, "test custom metrics - no rate limit")
def test_the_status_tells_how_far_behind_a_query_is(direct: DirectKafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(100), 1: range(50)})
    for limit, first in ({"maxOffsetsPerTrigger": 60}, range(90, 150)), ({}, range(1)):
        query = direct.start(direct.source(subscribe=topic, **limit), str(limit))
        lags = []
        while query.step():
            lags.append(lag(query))
        assert sorted(lags, reverse=True) == lags
        assert lags[0] in first
        assert lag(query) == 0


def lag(query: DirectQuery) -> int:
    found = query.status.lag
    assert found is not None
    return found


@pytest.mark.spark_case(SUITE, "test custom metrics - corner cases")
def test_a_status_is_reported_before_the_first_record(direct: DirectKafka, new_topic: NewTopic) -> None:
    query = direct.start(direct.source(subscribe=new_topic(2)), "q")
    query.step()
    assert lag(query) == 0
