"""A query in a consumer group that Kafka's own tools show: what the group holds when, and that nothing comes back."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from services.consumer_groups import alter_offsets, committed_offsets, coordinator_of, describe_group, group_member
from services.kafka import Kafka, kafka_cluster
from services.kafka_local import FAST_START
from services.kafka_topics import admin_client, create_topic, delete_topic
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import settle

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
Held = Mapping[tuple[str, int], int]


def held(bootstrap: str, group: str) -> Held:
    return {split: committed.offset for split, committed in committed_offsets(bootstrap, group).items()}


def wait_until_held(bootstrap: str, group: str, expected: Held, *, seconds: float = 120) -> None:
    """Wait until a group holds these offsets. The last come when the query is over already."""
    begun = time.monotonic()
    while (found := held(bootstrap, group)) != expected:
        assert time.monotonic() - begun < seconds, f"{found} after {seconds} s"
        time.sleep(0.05)


def ends_of(streams: KafkaStreams, name: str) -> Held:
    """Return the end of the last batch of a checkpoint."""
    splits = streams.offsets(name)[-1]["splits"]
    return {(log, int(n)): fields[0] for log, numbers in splits.items() for n, fields in numbers.items()}


def test_kafkas_own_tool_shows_the_query_and_its_lag_after_a_run(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic(2)
    source = streams.source(subscribe=topic, commitGroupId=topic_name, sourceName="orders", maxOffsetsPerTrigger=60)
    streams.write(topic, {0: range(100), 1: range(30)})
    streams.run(source, "q")
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 100, (topic, 1): 30})
    assert held(kafka.bootstrap, topic_name) == ends_of(streams, "q")
    assert {committed.metadata for committed in committed_offsets(kafka.bootstrap, topic_name).values()} == {"orders"}
    streams.write(topic, {1: range(30, 37)})
    assert describe_group(kafka.bootstrap, topic_name) == {(topic, 0): (100, 100, 0), (topic, 1): (30, 37, 7)}


def test_while_it_runs_the_group_follows_within_seconds_also_when_nothing_more_comes(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic(2)
    query = streams.start_file(streams.source(subscribe=topic, commitGroupId=topic_name), "q")
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 0, (topic, 1): 0})
    for rows in (10, 25, 60):
        streams.write(topic, {0: range(rows)})
        end = held(kafka.bootstrap, topic_name)[topic, 0] + rows
        wait_for(lambda end=end: len(streams.data("q")) == end, query)  # type: ignore[misc]
        # No batch follows for Spark to say that this one is committed.
        wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): end, (topic, 1): 0})
        assert query.isActive
    streams.write(topic, {1: range(500)})
    settle(query)
    query.stop()
    # The rest comes from a process that was asked to end.
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 95, (topic, 1): 500})


def test_a_batch_that_fails_is_not_shown_as_done(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic(1)
    source = streams.source(subscribe=topic, commitGroupId=topic_name)
    good = 5

    def fail_after_the_first(rows: DataFrame, _: int) -> None:
        if rows.where("marker IS NULL").count() > good:
            raise RuntimeError("the sink is full")

    streams.write(topic, {0: range(good)})
    writer = source.writeStream.foreachBatch(fail_after_the_first)
    query = writer.option("checkpointLocation", str(streams.checkpoint("q"))).start()
    streams.started.append(query)
    settle(query)
    streams.write(topic, {0: range(20)})
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        query.awaitTermination(200)
    assert ends_of(streams, "q") == {(topic, 0): good + 20}
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): good})
    time.sleep(3)
    assert held(kafka.bootstrap, topic_name) == {(topic, 0): good}


@pytest.mark.long("test_kafkas_own_tool_shows_the_query_and_its_lag_after_a_run")
def test_with_once_the_group_is_one_run_behind(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    """Spark ends the process without a word on how its only batch went."""
    topic = new_topic(1)
    source = streams.source(subscribe=topic, commitGroupId=topic_name)
    streams.write(topic, {0: range(10)})
    streams.run(source, "q", once=True)
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 0})
    streams.write(topic, {0: range(5)})
    streams.run(source, "q", once=True)
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 10})


def test_the_checkpoint_wins_whatever_is_done_to_the_group(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic(2)
    source = direct.source(subscribe=topic, commitGroupId=topic_name)
    tampered_with: tuple[Held, ...] = ({(topic, 0): 3, (topic, 1): 0}, {(topic, 0): 10_000, (topic, 1): 10_000}, {})
    for written, tampered in enumerate(tampered_with, 1):
        direct.write(topic, {0: range(20), 1: range(10)})
        direct.run(source, "q")
        rows = [(partition, offset) for _, partition, offset in direct.data("q")]
        assert rows == [(0, n) for n in range(20 * written)] + [(1, n) for n in range(10 * written)]
        wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 20 * written, (topic, 1): 10 * written})
        if tampered:
            alter_offsets(kafka.bootstrap, topic_name, tampered)
    with admin_client(kafka.bootstrap) as admin:
        admin.delete_groups([topic_name])
    direct.write(topic, {0: range(1)})
    direct.run(source, "q")
    assert len(direct.data("q")) == 91
    wait_until_held(kafka.bootstrap, topic_name, {(topic, 0): 61, (topic, 1): 30})


def test_a_group_with_an_active_member_does_not_disturb_the_query(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    topic = new_topic(1)
    direct.write(topic, {0: range(10)})
    source = direct.source(subscribe=topic, commitGroupId=topic_name)
    with group_member(kafka.bootstrap, topic_name, topic):
        query = direct.start(source, "q")
        query.process_all()
        direct.write(topic, {0: range(10)})
        query.process_all()
        assert len(direct.data("q")) == 20
        assert held(kafka.bootstrap, topic_name) == {}
    query.run_until(lambda: held(kafka.bootstrap, topic_name) == {(topic, 0): 20})


def test_a_topic_that_is_deleted_leaves_the_group_and_the_others_stay(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, topic_name: str
) -> None:
    stays, goes = new_topic(1), new_topic(1)
    direct.write(stays, {0: range(10)})
    direct.write(goes, {0: range(10)})
    options = {"commitGroupId": topic_name, "failOnDataLoss": "false", "kafka.metadata.max.age.ms": "300"}
    query = direct.start(direct.source(subscribe=f"{stays},{goes}", **options), "q")
    query.process_all()
    query.run_until(lambda: held(kafka.bootstrap, topic_name) == {(stays, 0): 10, (goes, 0): 10})
    delete_topic(kafka.bootstrap, goes)
    query.run_until(lambda: direct.offsets("q")[-1]["splits"].keys() == {stays})
    direct.write(stays, {0: range(5)})
    query.run_until(lambda: held(kafka.bootstrap, topic_name) == {(stays, 0): 15})


def test_a_frozen_coordinator_slows_no_batch_down_and_commits_are_taken_up_again(direct: DirectKafka) -> None:
    # So long that the other broker does not become coordinator.
    with kafka_cluster(2, config={"broker.session.timeout.ms": "120000"}, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 1)
        with admin_client(cluster.bootstrap) as admin:
            leader = admin.describe_topics(["t"])[0]["partitions"][0]["leader_id"]
        # Nothing but the commits needs the coordinator's broker.
        direct.bootstrap = cluster.bootstrap.split(",")[leader - 1]
        groups = (f"g{number}" for number in itertools.count())
        group = next(g for g in groups if coordinator_of(cluster.bootstrap, g) != leader)
        coordinator = coordinator_of(cluster.bootstrap, group)
        calm = {"kafka.metadata.max.age.ms": "600000"}
        query = direct.start(direct.source(subscribe="t", commitGroupId=group, **calm), "q")
        rows = itertools.count(1)

        def next_batch() -> float:
            begun = time.monotonic()
            direct.write("t", {0: [0]})
            number = next(rows)
            query.run_until(lambda: len(direct.data("q")) == number)
            return time.monotonic() - begun

        next_batch()
        before = [next_batch() for _ in range(3)]
        query.run_until(lambda: held(cluster.bootstrap, group) == {("t", 0): 4})
        cluster.pause(coordinator)
        during = [next_batch() for _ in range(4)]
        cluster.resume(coordinator)
        # Batches that waited for commits would take five seconds longer, the limit of a commit.
        assert statistics.median(during) < max(before) + 4
        query.run_until(lambda: held(cluster.bootstrap, group) == {("t", 0): 8})

        cluster.pause(coordinator)
        next_batch()
        next_batch()
        query.process_all()
        # The first of the two is committed now, and before the turn of the second comes the query ends.
        cluster.resume(coordinator)
        query.stop()
        wait_until_held(cluster.bootstrap, group, {("t", 0): 10})
