"""KafkaMicroBatchSourceSuite, topology: topics and partitions that come and go while a query reads them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from services.kafka import Kafka
from services.kafka_topics import add_partitions, create_topic, delete_topic
from tests.integration.direct_kafka import DirectKafka
from watermark_source.errors import DataLossError

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"
SOON = {"kafka.metadata.max.age.ms": "200"}


@pytest.mark.spark_case(SUITE, "subscribing topic by pattern with topic deletions")
def test_a_topic_deleted_while_another_comes(direct: DirectKafka, kafka: Kafka) -> None:
    stem = f"deletions-{uuid.uuid4().hex[:8]}"
    first, second = f"{stem}-seems", f"{stem}-bad"
    create_topic(kafka.bootstrap, first, 5)
    direct.write(first, {0: range(3)})
    source = direct.source(subscribePattern=f"{stem}-.*", failOnDataLoss="false", **SOON)
    query = direct.start(source, "q")
    query.process_all()
    delete_topic(kafka.bootstrap, first)
    create_topic(kafka.bootstrap, second, 5)
    direct.write(second, {1: range(4)})
    wanted = sorted([(first, 0, n) for n in range(3)] + [(second, 1, n) for n in range(4)])
    query.run_until(lambda: len(direct.data("q")) >= len(wanted))
    assert direct.data("q") == wanted


@pytest.mark.spark_case(SUITE, "subscribe topic by pattern with topic recreation between batches")
def test_a_topic_made_anew_between_two_runs(direct: DirectKafka, kafka: Kafka) -> None:
    """Spark's own source continues at the end of a shorter one; by its id it is another one, and read whole."""
    stem = f"recreation-{uuid.uuid4().hex[:8]}"
    stays, goes = f"{stem}-good", f"{stem}-bad"
    for topic in (stays, goes):
        create_topic(kafka.bootstrap, topic, 1)
        direct.write(topic, {0: range(2)})
    options = {"subscribePattern": f"{stem}-.*"}
    direct.run(direct.source(**options), "q")
    delete_topic(kafka.bootstrap, goes)
    create_topic(kafka.bootstrap, goes, 1)
    direct.write(goes, {0: [5]})
    with pytest.raises(DataLossError, match=r"\[KAFKA_DATA_LOSS\.PARTITION_OFFSET_CHANGED\].*-bad was deleted"):
        direct.run(direct.source(**options), "q")
    direct.run(direct.source(**options, failOnDataLoss="false"), "q")
    direct.write(goes, {0: [6, 7]})
    direct.write(stays, {0: [6]})
    direct.run(direct.source(**options), "q")
    rows = [(topic, offset) for topic, _, offset in direct.data("q")]
    assert rows == sorted([(stays, 0), (stays, 1), (stays, 2), (goes, 0), (goes, 0), (goes, 1), (goes, 1), (goes, 2)])


@pytest.mark.spark_case(SUITE, "delete a topic when a Spark job is running")
@pytest.mark.spark_case("KafkaDontFailOnDataLossSuite", "stress test for failOnDataLoss=false")
def test_topics_deleted_while_they_are_read_stop_nothing(direct: DirectKafka, kafka: Kafka) -> None:
    stem = f"deleted-{uuid.uuid4().hex[:8]}"
    names = [f"{stem}-{n}" for n in range(3)]
    create_topic(kafka.bootstrap, names[0], 2)
    direct.write(names[0], {0: range(1_000), 1: range(1_000)})
    options = {"subscribePattern": f"{stem}-.*", "failOnDataLoss": "false", "maxOffsetsPerTrigger": 300, **SOON}
    query = direct.start(direct.source(**options, **{"kafkaConsumer.pollTimeoutMs": 20_000}), "q")
    for gone, comes in pairwise(names):
        query.run_until(lambda gone=gone: any(topic == gone for topic, _, _ in direct.data("q")))  # type: ignore[misc]
        create_topic(kafka.bootstrap, comes, 2)
        direct.write(comes, {0: range(1_000), 1: range(1_000)})
        delete_topic(kafka.bootstrap, gone)
    query.run_until(lambda: sum(topic == names[-1] for topic, _, _ in direct.data("q")) == 2_000)
    query.stop()
    rows = direct.data("q")
    assert len(set(rows)) == len(rows), "rows were doubled"


@pytest.mark.spark_case(SUITE, "stress test with multiple topics and partitions")
def test_stress_with_topics_partitions_and_restarts(direct: DirectKafka, kafka: Kafka) -> None:
    chance = np.random.default_rng(11)
    stem = f"stress-{uuid.uuid4().hex[:8]}"
    sizes: dict[str, list[int]] = {}

    def more_topics() -> None:
        name = f"{stem}-{len(sizes)}"
        create_topic(kafka.bootstrap, name, 2)
        sizes[name] = [0, 0]

    def more_partitions() -> None:
        name = chance.choice(list(sizes))
        sizes[name] += [0] * int(chance.integers(1, 4))
        add_partitions(kafka.bootstrap, name, len(sizes[name]))

    def more_rows() -> None:
        for name, ends in sizes.items():
            added = {p: int(chance.integers(0, 30)) for p in range(len(ends))}
            direct.write(name, {p: range(ends[p], ends[p] + n) for p, n in added.items()})
            sizes[name] = [end + added[p] for p, end in enumerate(ends)]

    more_topics()
    source = direct.source(subscribePattern=f"{stem}-.*", **SOON)
    query = direct.start(source, "q")
    for step in range(24):
        (more_rows, more_rows, more_rows, more_partitions, more_topics)[chance.integers(5)]()
        query.step()
        if step % 8 == 7:
            query.stop()
            more_rows()
            query = direct.start(source, "q")
    wanted = sorted((name, p, n) for name, ends in sizes.items() for p, end in enumerate(ends) for n in range(end))
    query.run_until(lambda: len(direct.data("q")) >= len(wanted))
    assert direct.data("q") == wanted


@pytest.mark.spark_case("KafkaDontFailOnDataLossSuite", "failOnDataLoss=false should not return duplicated records")
def test_without_failOnDataLoss_nothing_is_read_twice(  # noqa: N802 - the option's name
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    # Tiny segments that are deleted while the query reads: what it has not read yet goes, nothing comes twice.
    topic = new_topic(1, config={"retention.bytes": "2000", "segment.bytes": "1048576", "segment.ms": "100"})
    query = direct.start(direct.source(subscribe=topic, failOnDataLoss="false", maxOffsetsPerTrigger=40), "q")
    for turn in range(10):
        direct.write(topic, {0: range(50 * turn, 50 * turn + 50)})
        query.step()
    query.process_all()
    offsets = [offset for _, _, offset in direct.data("q")]
    assert len(set(offsets)) == len(offsets)
    assert offsets[-1] == 499
