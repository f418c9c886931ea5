"""Suites of Spark's Kafka source that need no broker: how ranges become tasks, JSON forms, which partitions are read.

Tasks are laid differently here, by size: what holds for Spark's ranges holds for ours, the exact cuts are our own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence, Set

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.discovery import select
from pyspark_aligned_kafka.options.positions import ShapeError, parse_integers, parse_partitions
from pyspark_aligned_kafka.options.subscription import (
    Subscription,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from watermark_source.planning.planner import ranges_of
from watermark_source.planning.ranges_per_task import into_tasks
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState

CALCULATOR = "KafkaOffsetRangeCalculatorSuite"
JSON = "JsonUtilsSuite"
STRATEGY = "ConsumerStrategySuite"


def ranges(sizes: Sequence[int]) -> list[SplitRange]:
    """Return the ranges a plan reads from partitions with so many new offsets each."""
    splits = {Split("t", n): SplitState(position=100 + size, observed=100) for n, size in enumerate(sizes)}
    return ranges_of(SourceState(splits=splits))


def tasks(sizes: Sequence[int], **limits: int) -> list[dict[int, int]]:
    """Return the offsets each task reads, by partition, having checked that each is read once and in order."""
    laid = into_tasks(ranges(sizes), **limits)
    read = [offset for p in laid for r in p for offset in ((r.split.number, n) for n in range(r.start, r.end))]
    assert read == [(number, 100 + n) for number, size in enumerate(sizes) for n in range(size)]
    return [{r.split.number: r.size for r in p} for p in laid]


@pytest.mark.spark_case(CALCULATOR, "with no minPartition: N TopicPartitions to N offset ranges")
def test_without_minPartitions_small_ranges_share_a_task() -> None:  # noqa: N802 - the option's name
    assert tasks([1, 1, 1]) == [{0: 1, 1: 1, 2: 1}]


@pytest.mark.spark_case(CALCULATOR, "with no minPartition: empty ranges ignored")
@pytest.mark.spark_case(CALCULATOR, "with minPartition = 3: ignore empty ranges and split the rest")
def test_empty_ranges_are_no_work() -> None:
    assert tasks([5, 0]) == [{0: 5}]
    assert tasks([6, 0], at_least=3) == [{0: 2}, {0: 2}, {0: 2}]


@pytest.mark.spark_case(CALCULATOR, "with minPartition = 3: N TopicPartitions to N offset ranges")
@pytest.mark.spark_case(CALCULATOR, "with minPartition = 4: 1 TopicPartition to N offset ranges")
@pytest.mark.spark_case(CALCULATOR, "with minPartition = 3: range inexact multiple of minPartitions")
def test_minPartitions_cuts_evenly() -> None:  # noqa: N802 - the option's name
    assert tasks([1, 1, 1], at_least=3) == [{0: 1}, {1: 1}, {2: 1}]
    assert tasks([5], at_least=4) == [{0: 1}, {0: 1}, {0: 1}, {0: 1}, {0: 1}]
    assert tasks([11], at_least=3) == [{0: 2}, {0: 3}, {0: 3}, {0: 3}]


@pytest.mark.spark_case(CALCULATOR, "with minPartition = 3: N skewed TopicPartitions to M offset ranges")
@pytest.mark.spark_case(CALCULATOR, "with minPartition = 22: N very skewed TopicPartitions to M offset ranges")
@pytest.mark.spark_case(CALCULATOR, "SPARK-36576: 0 small unsplit ranges and 3 large split ranges")
@pytest.mark.spark_case(CALCULATOR, "SPARK-36576: 1 small unsplit range and 2 large split ranges")
@pytest.mark.spark_case(CALCULATOR, "SPARK-36576: 2 small unsplit ranges and 1 large split range")
def test_only_large_ranges_are_cut() -> None:
    assert len(tasks([4, 10], at_least=3)) >= 3
    very_skewed = tasks([1, 1, 10, 100, 10_000], at_least=22)
    assert len(very_skewed) >= 22
    assert sum(1 for task in very_skewed if 4 in task) >= 21
    assert all(4 not in task or task[4] <= 10_112 // 22 for task in very_skewed)
    for small in (0, 1, 2):
        sizes = [20] * small + [100] * (3 - small)
        laid = tasks(sizes, at_least=6)
        assert len(laid) >= 6
        for number in range(small):
            assert sum(1 for task in laid if number in task) == 1


@pytest.mark.spark_case(CALCULATOR, "with minPartition = 4: minPartitions less than the length of topic partitions")
def test_fewer_than_there_are_partitions_asks_for_nothing_more() -> None:
    assert len(tasks([1, 1, 1], at_least=1)) == 1


@pytest.mark.spark_case(CALCULATOR, "SPARK-28489: never drop offsets")
@pytest.mark.spark_case(CALCULATOR, "SPARK-30656: ignore empty ranges and split the rest")
def test_no_offset_is_dropped_at_the_end_of_a_cut() -> None:
    for size in (1, 4, 99, 100, 101):
        for wanted in (1, 3, 7, 1_000):
            # Checked by ``tasks``.
            tasks([size, 1], at_least=wanted)


@pytest.mark.spark_case(CALCULATOR, "SPARK-49259: 1 TopicPartition to N offset ranges with maxRecordsPerPartition")
@pytest.mark.spark_case(CALCULATOR, "SPARK-49259: N TopicPartitions to N offset ranges with maxRecordsPerPartition")
@pytest.mark.spark_case(CALCULATOR, "SPARK-49259: maxRecordsPerPartition and minPartitions, the former decides")
@pytest.mark.spark_case(CALCULATOR, "SPARK-49259: maxRecordsPerPartition and minPartitions, the latter decides")
def test_maxRecordsPerPartition_bounds_a_task() -> None:  # noqa: N802 - the option's name
    assert tasks([5], at_most=2) == [{0: 1}, {0: 2}, {0: 2}]
    assert tasks([4, 4], at_most=2) == [{0: 2}, {0: 2}, {1: 2}, {1: 2}]
    assert tasks([20], at_most=4, at_least=2) == [{0: 4}] * 5
    assert tasks([20], at_most=10, at_least=4) == [{0: 5}] * 4


@pytest.mark.spark_case(JSON, "parsing partitions")
def test_partitions() -> None:
    found = parse_partitions('{"topicA":[0,1],"topicB":[4,6]}')
    assert found == {Split("topicA", 0), Split("topicA", 1), Split("topicB", 4), Split("topicB", 6)}


@pytest.mark.spark_case(JSON, "parsing partitionOffsets")
def test_offsets() -> None:
    found = parse_integers('{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    assert found == {Split("topicA", 0): 23, Split("topicA", 1): -1, Split("topicB", 0): -2}


@pytest.mark.spark_case(JSON, "malformed")
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"t"', '{"t":5}', '{"t":{"x":1}}', '{"t":{"0":true}}', '{"t":{"0":1.5}}']
)
def test_malformed(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_integers(text)


class Cluster(KafkaAdmin):
    """Three topics, one of them internal."""

    def __init__(self) -> None: ...

    SIZES: Mapping[str, int] = {"t1": 1, "t2": 2, "__consumer_offsets": 50}

    def topics(self, names: Collection[str] | None, expected: Set[Split] = frozenset()) -> Mapping[str, Topic]:
        return {
            name: Topic(dict.fromkeys(range(size), None), internal=name.startswith("__"))
            for name, size in self.SIZES.items()
            if names is None or name in names
        }


ALL = {Split("t1", 0), Split("t2", 0), Split("t2", 1)}


@pytest.mark.parametrize(
    "subscription",
    [
        pytest.param(
            parse_assign('{"t1":[0],"t2":[0,1]}'),
            marks=pytest.mark.spark_case(STRATEGY, "createConsumer/admin: assign gives back all assigned"),
        ),
        pytest.param(
            parse_subscribe("t1,t2"),
            marks=pytest.mark.spark_case(STRATEGY, "createConsumer/admin: subscribe gives back all assigned"),
        ),
        pytest.param(
            parse_subscribe_pattern(".*t.*"),
            marks=pytest.mark.spark_case(STRATEGY, "createConsumer/admin: subscribePattern gives back all assigned"),
        ),
    ],
)
def test_every_partition_asked_for_is_read(subscription: Subscription) -> None:
    found = select(subscription, Cluster())
    assert (found.splits, found.missing) == (ALL, frozenset())


@pytest.mark.spark_case(STRATEGY, "assign skips invalid partitions")
def test_partitions_that_do_not_exist_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    found = select(parse_assign('{"t1":[0,7],"t2":[0,1],"t9":[0]}'), Cluster())
    assert (found.splits, found.missing) == (ALL, {"t1-7", "t9-0"})
