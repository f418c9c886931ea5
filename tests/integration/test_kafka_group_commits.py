"""Offsets committed to a consumer group of a real broker: what it holds, what is refused, and brokers in trouble."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster import group_commits
from pyspark_aligned_kafka.cluster.group_commits import ConsumerGroup, GroupCommits
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.consumer_groups import Committed, committed_offsets, group_member
from services.kafka import Kafka, kafka_cluster
from services.kafka_local import FAST_START, LocalKafka, kafka_version
from services.kafka_topics import create_topic, delete_topic
from tests.integration.kafka_streams import write
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError
from watermark_source.planning.split import Split
from watermark_source.spark.driver.runner import SourceRunner

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
SECONDS = 20_000


def group_of(bootstrap: str, name: str, note: str = "orders") -> ConsumerGroup:
    return ConsumerGroup(parse_settings({"kafka.bootstrap.servers": bootstrap}), name, note)


def held(bootstrap: str, name: str) -> dict[tuple[str, int], int]:
    return {split: committed.offset for split, committed in committed_offsets(bootstrap, name).items()}


def wait_for(condition: Callable[[], object], seconds: float = 120) -> float:
    """Wait until the condition holds; return for how long."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.05)
    return time.monotonic() - begun


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalKafka]:
    """One that may be killed; with the limit of a record batch that brokers have by default."""
    with kafka_cluster(1, config={"message.max.bytes": "1048588"}, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 500)
        yield cluster


@pytest.fixture
def progress(kafka: Kafka, topic_name: str) -> Iterator[GroupCommits]:
    made = GroupCommits(group_of(kafka.bootstrap, topic_name))
    yield made
    made.close()


def test_the_group_holds_the_next_offset_to_read_and_the_sources_name(
    kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    first, second = new_topic(2), new_topic(1)
    group = group_of(kafka.bootstrap, topic_name)
    group.commit({Split(first, 0): 7, Split(first, 1): 0, Split(second, 0): 2**40}, SECONDS)
    group.commit({Split(first, 0): 8}, SECONDS)
    group.close()
    assert committed_offsets(kafka.bootstrap, topic_name) == {
        (first, 0): Committed(8, "orders"),
        (first, 1): Committed(0, "orders"),
        (second, 0): Committed(2**40, "orders"),
    }


def test_splits_that_do_not_exist_any_more_are_left_out(kafka: Kafka, new_topic: NewTopic, topic_name: str) -> None:
    stays, goes = new_topic(1), new_topic(1)
    delete_topic(kafka.bootstrap, goes)
    group = group_of(kafka.bootstrap, topic_name)
    positions = {Split(goes, 0): 5, Split(stays, 0): 6, Split(stays, 9): 7, Split("never-was", 0): 8}
    wait_for(lambda: group.commit(positions, SECONDS) or (goes, 0) not in held(kafka.bootstrap, topic_name))
    assert held(kafka.bootstrap, topic_name) == {(stays, 0): 6}
    group.commit({Split("never-was", 0): 8}, SECONDS)
    group.commit({}, SECONDS)
    group.close()


def test_a_long_name_is_shortened_to_what_a_broker_takes(kafka: Kafka, new_topic: NewTopic, topic_name: str) -> None:
    split = Split(new_topic(1), 0)
    group = group_of(kafka.bootstrap, topic_name, note="x" + "ü" * 5_000)
    group.commit({split: 1}, SECONDS)
    group.close()
    assert committed_offsets(kafka.bootstrap, topic_name)[split] == (1, "x" + "ü" * 2_047)


def test_positions_may_be_committed_to_a_group_that_is_not_there_yet_on_a_broker_without_any(
    own_broker: LocalKafka,
) -> None:
    group = group_of(own_broker.bootstrap, "not-there-yet")
    group.check_right()
    group.close()


def test_more_offsets_than_a_broker_writes_at_once_are_committed_in_parts(own_broker: LocalKafka) -> None:
    positions = {Split("t", number): number for number in range(500)}
    # Together well over 1 MB, since each record repeats the group's name.
    name = "g" * 4_000
    group = group_of(own_broker.bootstrap, name)
    group.commit(positions, 20_000)
    group.close()
    assert held(own_broker.bootstrap, name) == positions


# Brokers before 4.0 have the one protocol alone.
@pytest.mark.parametrize("protocol", ["classic", "consumer"] if kafka_version() >= "4" else ["classic"])
def test_a_group_with_members_refuses_and_takes_commits_when_they_have_left(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, protocol: str
) -> None:
    topic = new_topic(1)
    group = group_of(kafka.bootstrap, topic_name)
    with group_member(kafka.bootstrap, topic_name, topic, protocol=protocol):
        begun = time.monotonic()
        with pytest.raises(SourceError, match=f"{topic_name} has active members.*commitGroupId"):
            group.commit({Split(topic, 0): 5}, SECONDS)
        assert time.monotonic() - begun < 60
        assert held(kafka.bootstrap, topic_name) == {}
    group.commit({Split(topic, 0): 5}, SECONDS)
    group.close()
    assert held(kafka.bootstrap, topic_name) == {(topic, 0): 5}


def test_active_members_are_reported_once_and_commits_go_on_by_themselves(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, progress: GroupCommits, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(1)
    with group_member(kafka.bootstrap, topic_name, topic):
        for position in range(30):
            progress.record({Split(topic, 0): position})
            time.sleep(0.1)
        wait_for(lambda: "has active members" in caplog.text)
        assert held(kafka.bootstrap, topic_name) == {}
    wait_for(lambda: held(kafka.bootstrap, topic_name) == {(topic, 0): 29})
    assert caplog.text.count("has active members") == 1


def test_however_often_there_is_progress_there_is_about_one_commit_a_second(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, progress: GroupCommits
) -> None:
    topic = new_topic(1)
    begun, position = time.monotonic(), 0
    while position <= 100 or time.monotonic() - begun < 3.2 or len(commits_to(kafka.bootstrap, topic_name)) < 3:
        assert time.monotonic() - begun < 120
        position += 1
        progress.record({Split(topic, 0): position})
        time.sleep(0.002)
    progress.close()
    lasted = time.monotonic() - begun
    assert held(kafka.bootstrap, topic_name) == {(topic, 0): position}
    # At the beginning, after each second, and at the end.
    assert len(commits_to(kafka.bootstrap, topic_name)) <= lasted + 2


def commits_to(bootstrap: str, group: str) -> list[bytes]:
    """Return every commit to a group from the topic in which the brokers keep them."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), enable_auto_commit=False)
    splits = [TopicPartition("__consumer_offsets", n) for n in consumer.partitions_for_topic("__consumer_offsets")]
    consumer.assign(splits)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(splits)
    found = []
    while any(consumer.position(split) < ends[split] for split in splits):
        for records in consumer.poll(timeout_ms=500).values():
            # Key version 2 is the group's own state; 0 and 1 are its offsets.
            found += [r.value for r in records if group.encode() in r.key and r.key[:2] != b"\x00\x02"]
    consumer.close()
    return found


def test_a_broker_that_is_away_holds_no_one_up_and_the_latest_offsets_arrive_later(
    own_broker: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    progress = GroupCommits(group_of(own_broker.bootstrap, "away"))
    progress.record({Split("t", 0): 1})
    wait_for(lambda: held(own_broker.bootstrap, "away") == {("t", 0): 1})
    own_broker.pause()
    begun = time.monotonic()
    for position in range(2, 1_000):
        progress.record({Split("t", 0): position})
    assert time.monotonic() - begun < 60
    wait_for(lambda: "not committed to consumer group away" in caplog.text)
    own_broker.resume()
    wait_for(lambda: held(own_broker.bootstrap, "away") == {("t", 0): 999})
    progress.close()


def test_one_commit_ends_within_its_limit_and_the_last_one_soon(own_broker: LocalKafka) -> None:
    group = group_of(own_broker.bootstrap, "limited")
    group.commit({Split("t", 0): 1}, SECONDS)
    progress = GroupCommits(group_of(own_broker.bootstrap, "last"))
    progress.record({Split("t", 0): 1})
    wait_for(lambda: held(own_broker.bootstrap, "last") == {("t", 0): 1})
    own_broker.pause()
    refused_within_its_limit(group, ResponseTimeoutError)
    own_broker.resume()
    own_broker.kill()
    refused_within_its_limit(group, UnreachableError)
    group.close()
    progress.record({Split("t", 0): 2})
    begun = time.monotonic()
    progress.close()
    assert time.monotonic() - begun < 60
    own_broker.start()


def refused_within_its_limit(group: ConsumerGroup, kind: type[Exception]) -> None:
    begun = time.monotonic()
    with pytest.raises(kind):
        group.commit({Split("t", 0): 2}, 1_000)
    assert time.monotonic() - begun < 60


@pytest.fixture
def runner(kafka: Kafka, topic_name: str) -> Iterator[Callable[..., SourceRunner]]:
    """``runner(topic)`` opens a source that commits to the group named ``topic_name``."""
    former, made = signal.getsignal(signal.SIGTERM), []

    def create(topic: str) -> SourceRunner:
        source = KafkaSource(kafka_options.parse({
            "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "commitGroupId": topic_name,
            "sourceName": "orders",
        }))  # fmt: skip
        made.append(SourceRunner(source, source.options.engine))
        return made[-1]

    yield create
    for each in made:
        each.close()
    signal.signal(signal.SIGTERM, former)


def test_a_checkpoint_of_sparks_own_source_is_where_the_group_begins(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, runner: Callable[..., SourceRunner]
) -> None:
    topic = new_topic(2)
    write(kafka.bootstrap, topic, {0: range(9), 1: range(3)})
    foreign: Mapping[str, Mapping[str, int]] = {topic: {"0": 4, "1": 3}}
    opened = runner(topic)
    end = opened.latest_offset(foreign, ReadMaxRows(2))
    wait_for(
        lambda: committed_offsets(kafka.bootstrap, topic_name) == {(topic, 0): (4, "orders"), (topic, 1): (3, "orders")}
    )
    opened.latest_offset(end, ReadMaxRows(2))
    wait_for(lambda: held(kafka.bootstrap, topic_name) == {(topic, 0): 6, (topic, 1): 3})


def test_the_group_is_kept_alive_while_nothing_happens(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, progress: GroupCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A minute is too long for a test.
    monkeypatch.setattr(group_commits, "REPEAT_S", 0.2)
    topic = new_topic(1)
    progress.record({Split(topic, 0): 5})
    wait_for(lambda: len(commits_to(kafka.bootstrap, topic_name)) >= 3)
    progress.close()
