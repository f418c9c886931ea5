"""KafkaMicroBatchSourceSuite, rates: how much a batch reads, when it is due, and how it is split over tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source import data_rows
from watermark_source.monitor.progress_event import parse_progress

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"
LONG_MAX = 2**63 - 1
ENOUGH = 0.8
"""A batch that ends at one event time uses this much of its limit, or more."""


def sizes(streams: KafkaStreams, name: str) -> list[int]:
    """Return how many offsets each batch that read anything read."""
    return [sum(end - first for first, end in batch.values()) for batch in streams.batches(name) if batch]


def assert_limited(read: list[int], *, limit: int, total: int) -> None:
    """Everything was read, in batches that use the limit and never pass it."""
    assert sum(read) == total
    assert max(read) <= limit
    assert min(read[:-1], default=limit) >= ENOUGH * limit


@pytest.mark.spark_case(SUITE, "maxOffsetsPerTrigger")
def test_maxOffsetsPerTrigger(streams: KafkaStreams, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(3)
    streams.write(topic, {0: range(100), 1: range(10), 2: [50]})
    source = streams.source(subscribe=topic, maxOffsetsPerTrigger=10)
    query = streams.start_file(source, "q", processingTime="0 seconds")
    query.processAllAvailable()
    before = sizes(streams, "q")
    assert_limited(before, limit=10, total=111)
    assert len(streams.data("q")) == 111
    # Over a restart as well.
    query.stop()
    streams.write(topic, {0: range(100, 120)})
    query = streams.start_file(source, "q")
    query.processAllAvailable()
    assert_limited(sizes(streams, "q")[len(before) :], limit=10, total=20)
    assert len(streams.data("q")) == 131


@pytest.mark.spark_case(SUITE, "minOffsetsPerTrigger")
def test_minOffsetsPerTrigger(streams: KafkaStreams, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(2)
    streams.write(topic, {0: range(3)})
    query = streams.start_file(
        streams.source(subscribe=topic, minOffsetsPerTrigger=15, maxTriggerDelay="6 seconds"), "q"
    )
    # The first batch does not wait.
    wait_for(lambda: sizes(streams, "q") == [3], query)
    streams.write(topic, {0: range(3, 8), 1: range(9)})
    time.sleep(1.5)
    assert sizes(streams, "q") == [3]
    streams.write(topic, {1: [9]})
    wait_for(lambda: sizes(streams, "q") == [3, 15], query)
    begun = time.monotonic()
    streams.write(topic, {1: [10]})
    wait_for(lambda: sizes(streams, "q") == [3, 15, 1], query)
    assert time.monotonic() - begun > 4
    wait_for(lambda: len(streams.data("q")) == 19, query)


@pytest.mark.spark_case(SUITE, "compositeReadLimit")
def test_compositeReadLimit(streams: KafkaStreams, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(2)
    streams.write(topic, {0: range(8)})
    source = streams.source(
        subscribe=topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=20, maxTriggerDelay="10 minutes"
    )
    query = streams.start_file(source, "q")
    wait_for(lambda: sizes(streams, "q") == [8], query)
    streams.write(topic, {1: range(43)})
    wait_for(lambda: 51 - sum(sizes(streams, "q")) < 5, query)
    time.sleep(1)
    read = sizes(streams, "q")
    assert max(read) <= 20
    # What is left are too few; one less than enough still is.
    left = 51 - sum(read)
    streams.write(topic, {0: range(8, 8 + 4 - left)})
    time.sleep(1)
    assert sizes(streams, "q") == read
    streams.write(topic, {0: [20]})
    wait_for(lambda: sizes(streams, "q") == [*read, 5], query)


@pytest.mark.spark_case(SUITE, "SPARK-26718 Rate limit set to Long.Max should not overflow integer")
def test_the_highest_rate_limit_is_no_limit(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(50), 1: range(7)})
    query = streams.start_file(streams.source(subscribe=topic, maxOffsetsPerTrigger=LONG_MAX), "q")
    query.processAllAvailable()
    assert sizes(streams, "q") == [57]


@pytest.mark.spark_case(SUITE, "SPARK-22956: currentPartitionOffsets should be set when no new data comes in")
def test_a_silent_source_beside_a_busy_one(streams: KafkaStreams, new_topic: NewTopic) -> None:
    first, second = new_topic(2), new_topic(2)
    streams.write(first, {0: range(3)})
    both = [data_rows(streams.source(subscribe=topic, maxOffsetsPerTrigger=5)) for topic in (first, second)]
    query = streams.start_file(both[0].union(both[1]), "q")
    query.processAllAvailable()
    streams.write(second, {0: range(4)})
    query.processAllAvailable()
    streams.write(first, {1: range(11)})
    query.processAllAvailable()
    assert len(streams.data("q")) == 18


@pytest.mark.spark_case(SUITE, "Trigger.AvailableNow")
def test_available_now_reads_what_was_there_in_batches(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(15), 1: range(5)})
    source = streams.source(subscribe=topic, maxOffsetsPerTrigger=5)
    query = streams.start_file(source, "q", availableNow=True)
    wait_for(lambda: (streams.checkpoint("q") / "offsets" / "1").exists(), query)
    streams.write(topic, {0: [20]})
    assert query.awaitTermination(120)
    read = sizes(streams, "q")
    assert_limited(read, limit=5, total=20)
    streams.run(source, "q")
    assert sizes(streams, "q") == [*read, 1]


@pytest.mark.spark_case(SUITE, "Trigger.AvailableNow")
def test_a_run_with_an_end_leaves_nothing_to_minOffsetsPerTrigger(  # noqa: N802 - the option's name
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(13)})
    streams.run(streams.source(subscribe=topic, maxOffsetsPerTrigger=5, minOffsetsPerTrigger=4), "q")
    assert_limited(sizes(streams, "q"), limit=5, total=13)


def tasks(streams: KafkaStreams, topic: str, **options: Any) -> dict[int, int]:
    """Return how many rows each task of one batch read."""
    rows = data_rows(streams.source(subscribe=topic, **options)).select(F.spark_partition_id().alias("task"), "offset")
    name = json.dumps(options, sort_keys=True).encode().hex()
    streams.run(rows, name)
    found = streams.result(name)
    assert found.select("offset").distinct().count() == found.count()
    return dict(found.groupBy("task").count().collect())


@pytest.mark.spark_case(SUITE, "SPARK-30656: minPartitions")
@pytest.mark.spark_case(SUITE, "minPartitions is supported")
def test_minPartitions(streams: KafkaStreams, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(1)
    streams.write(topic, {0: range(105)})
    assert len(tasks(streams, topic)) == 1
    assert sorted(tasks(streams, topic, minPartitions=4).values()) == [21, 21, 21, 21, 21]


@pytest.mark.spark_case(SUITE, "maxRecordsPerPartition")
def test_maxRecordsPerPartition(streams: KafkaStreams, new_topic: NewTopic) -> None:  # noqa: N802 - Spark's name
    topic = new_topic(1)
    streams.write(topic, {0: range(105)})
    assert sorted(tasks(streams, topic, maxRecordsPerPartition=50).values()) == [35, 35, 35]
    assert max(tasks(streams, topic, maxRecordsPerPartition=50, minPartitions=10).values()) <= 11


def lag(query: StreamingQuery) -> int:
    (status,) = parse_progress(query.lastProgress.json)
    return status.lag


@pytest.mark.spark_case(SUITE, "test custom metrics - with rate limit")
@pytest.mark.spark_case(SUITE, "test custom metrics - no rate limit")
def test_the_status_tells_how_far_behind_a_query_is(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(100), 1: range(50)})
    query = streams.start_file(streams.source(subscribe=topic, maxOffsetsPerTrigger=60), "limited")
    query.processAllAvailable()
    lags = [status.lag for p in query.recentProgress for status in parse_progress(p.json)]
    assert sorted(lags, reverse=True) == lags
    assert 90 <= lags[0] < 150
    assert lags[-1] == 0
    query = streams.start_file(streams.source(subscribe=topic), "unlimited")
    query.processAllAvailable()
    assert lag(query) == 0


@pytest.mark.spark_case(SUITE, "test custom metrics - corner cases")
def test_a_status_is_told_before_the_first_record(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    query = streams.start_file(streams.source(subscribe=topic), "q")
    wait_for(lambda: query.lastProgress, query)
    assert lag(query) == 0
