"""The driver side of ``aligned-kafka`` on a real broker: discovery, start positions, ends, time index."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest
from kafka import KafkaProducer

from pyspark_aligned_kafka import DefaultSource
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import LATEST, OffsetsAsked, OffsetsRequest
from pyspark_aligned_kafka.cluster.metadata import Leaders, Topic
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import Kafka
from services.kafka_topics import add_partitions, create_topic, delete_records, delete_topic
from watermark_source.contract.stream import Connector
from watermark_source.errors import OptionError, UnknownSplitError
from watermark_source.planning.split import IndexEntry, NewestTime, Split
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.stream_reader import AlignedStreamReader

NewTopic = Callable[..., str]
# Timestamps stay: retention follows them.
KEEP = {"retention.ms": "-1"}


def connect(kafka: Kafka, **given: str) -> Connector:
    return KafkaSource(kafka_options.parse({"kafka.bootstrap.servers": kafka.bootstrap, **given})).open()


def start_positions(kafka: Kafka, **given: str) -> dict[Split, int]:
    connector = connect(kafka, **given)
    return dict(connector.starts.initial_positions(connector.discovery.discover()))


def produce(kafka: Kafka, topic: str, *partitions: Sequence[int]) -> None:
    """Send one record for each timestamp, to partition 0, 1, ..."""
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap.split(","))) as producer:
        for number, timestamps in enumerate(partitions):
            for timestamp in timestamps:
                producer.send(topic, b"x", partition=number, timestamp_ms=timestamp)
        producer.flush()


@pytest.fixture
def topic(kafka: Kafka, new_topic: NewTopic) -> str:
    """Three partitions: timestamps out of order, one record, none."""
    name = new_topic(3, config=KEEP)
    produce(kafka, name, [100, 300, 200, 400, 250], [50], [])
    return name


@pytest.fixture
def splits(topic: str) -> list[Split]:
    return [Split(topic, number) for number in range(3)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, [0, 0, 0]),
        ({}, [5, 1, 0]),
        ({"startingOffsets": "latest"}, [5, 1, 0]),
        ({"startingOffsets": '{"TOPIC":{"0":3,"1":-2,"2":-1}}'}, [3, 0, 0]),
        ({"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"}, [0, 0, 0]),
        ({"startingTimestamp": "250", "startingOffsetsByTimestampStrategy": "latest"}, [1, 1, 0]),
        (
            {
                "startingOffsetsByTimestamp": '{"TOPIC":{"0":301,"1":50,"2":1}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [3, 0, 0],
        ),
    ],
)
def test_every_starting_position(
    kafka: Kafka, topic: str, splits: list[Split], options: dict[str, str], expected: list[int]
) -> None:
    given = {name: text.replace("TOPIC", topic) for name, text in options.items()}
    assert start_positions(kafka, subscribe=topic, **given) == dict(zip(splits, expected, strict=True))


def test_earliest_is_the_first_retained_offset(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    delete_records(kafka.bootstrap, topic, {0: 2})
    assert start_positions(kafka, subscribe=topic, startingOffsets="earliest")[splits[0]] == 2


def test_a_timestamp_without_a_match_is_an_error_by_default(kafka: Kafka, topic: str) -> None:
    with pytest.raises(OptionError, match=f"no record is that new in {topic}-1, {topic}-2"):
        start_positions(kafka, subscribe=topic, startingTimestamp="200")


def test_starting_json_must_list_the_partitions_that_exist(kafka: Kafka, topic: str) -> None:
    with pytest.raises(OptionError, match=rf"does not list {topic}-2 and lists {topic}-7; the partitions are"):
        start_positions(kafka, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0,"1":0,"7":0}}}}')


def test_a_missing_topic_is_an_error_and_is_not_created(kafka: Kafka, topic_name: str) -> None:
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(UnknownSplitError, match=f"topic {topic_name} does not exist"):
            connect(kafka, subscribe=topic_name).discovery.discover()
        assert time.monotonic() - begun < 30


def test_assigned_partitions_are_those_that_exist(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    assert connect(kafka, assign=f'{{"{topic}":[0,2,9]}}').discovery.discover() == {splits[0], splits[2]}
    with pytest.raises(UnknownSplitError, match=f"partition {topic}-9 does not exist"):
        connect(kafka, assign=f'{{"{topic}":[9]}}').discovery.discover()


def test_a_pattern_finds_topics_made_later_and_no_internal_ones(kafka: Kafka, new_topic: NewTopic) -> None:
    first = new_topic()
    made_by_this_test = first.removesuffix("-0")
    pattern = f"{made_by_this_test}-|__consumer_offsets"
    discovery = connect(kafka, subscribePattern=pattern, **{"kafka.metadata.max.age.ms": "0"}).discovery
    assert {split.log for split in discovery.discover()} == {first}
    second = new_topic()
    assert {split.log for split in discovery.discover()} == {first, second}


def test_partitions_added_while_running_are_found_and_begin_at_earliest(kafka: Kafka, topic: str) -> None:
    connector = connect(kafka, subscribe=topic, **{"kafka.metadata.max.age.ms": "0"})
    before = connector.discovery.discover()
    add_partitions(kafka.bootstrap, topic, 4)
    produce(kafka, topic, [], [], [], [1, 2])
    added = connector.discovery.discover() - before
    assert added == {Split(topic, 3)}
    assert connector.starts.added_positions(added) == {Split(topic, 3): 0}
    assert connector.bounds.end_positions(added) == {Split(topic, 3): 2}


def test_new_partitions_are_found_beside_the_calls(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    discovery = connect(kafka, subscribe=topic, **{"kafka.metadata.max.age.ms": "200"}).discovery
    assert discovery.discover() == set(splits)
    add_partitions(kafka.bootstrap, topic, 4)
    deadline = time.monotonic() + 60
    while discovery.discover() != {*splits, Split(topic, 3)}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ends_follow_the_log_and_leave_out_what_does_not_exist(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    bounds = connect(kafka, subscribe=topic).bounds
    asked = {*splits, Split(topic, 99), Split("no-such-topic", 0)}
    assert bounds.end_positions(asked) == dict(zip(splits, [5, 1, 0], strict=True))
    produce(kafka, topic, [1], [], [1, 1])
    assert bounds.end_positions(asked) == dict(zip(splits, [6, 1, 2], strict=True))


def test_a_deleted_topic_is_left_out_until_it_is_made_again(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    connector = connect(kafka, subscribe=topic, **{"kafka.metadata.max.age.ms": "0"})
    assert connector.discovery.discover() == set(splits)
    delete_topic(kafka.bootstrap, topic)
    # The broker deletes one partition after the other.
    deadline = time.monotonic() + 120
    while connector.bounds.end_positions(set(splits)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert connector.bounds.end_positions(set(splits)) == {}
    assert connector.bounds.earliest_positions(set(splits)) == {}
    assert connector.discovery.discover() == set()
    create_topic(kafka.bootstrap, topic, 3)
    assert connector.discovery.discover() == set(splits)
    assert connector.bounds.end_positions(set(splits)) == dict.fromkeys(splits, 0)


def test_a_topic_that_was_missing_is_found_once_it_is_made(kafka: Kafka, topic_name: str) -> None:
    bounds = connect(kafka, subscribe=topic_name).bounds
    split = Split(topic_name, 0)
    assert bounds.end_positions({split}) == {}
    create_topic(kafka.bootstrap, topic_name, 1)
    assert bounds.end_positions({split}) == {split: 0}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (MIN, IndexEntry(0, Millis(100))),
        (-2, IndexEntry(0, Millis(100))),
        (99, IndexEntry(0, Millis(100))),
        (100, IndexEntry(1, Millis(300))),
        (299, IndexEntry(1, Millis(300))),
        (300, IndexEntry(3, Millis(400))),
        (400, None),
        (MAX, None),
    ],
)
def test_first_after_is_the_lowest_offset_beyond_the_limit_also_out_of_order(
    kafka: Kafka, topic: str, splits: list[Split], limit: Millis, expected: IndexEntry | None
) -> None:
    index = connect(kafka, subscribe=topic).time_index
    assert index is not None
    assert index.first_after({splits[0]: limit, splits[2]: limit}) == {splits[0]: expected, splits[2]: None}


def test_newest_is_the_highest_timestamp_wherever_it_is(kafka: Kafka, topic: str, splits: list[Split]) -> None:
    index = connect(kafka, subscribe=topic).time_index
    assert index is not None
    expected = {splits[0]: NewestTime(Millis(400), 3), splits[1]: NewestTime(Millis(50), 0), splits[2]: None}
    assert index.newest(set(splits)) == expected


def test_the_time_index_is_exact_over_many_segments_and_batches(kafka: Kafka, new_topic: NewTopic) -> None:
    name = new_topic(config={**KEEP, "segment.bytes": str(1024 * 1024), "index.interval.bytes": "4096"})
    # Zigzag: every tenth record is 5 s behind its neighbours; equal timestamps come in pairs.
    times = [(n // 2) * 10 + (10_000 if n % 10 else 5_000) for n in range(40_000)]
    with contextlib.closing(
        KafkaProducer(bootstrap_servers=kafka.bootstrap.split(","), linger_ms=5, batch_size=20_000)
    ) as producer:
        for timestamp in times:
            producer.send(name, b"x" * 90, partition=0, timestamp_ms=timestamp)
        producer.flush()
    index = connect(kafka, subscribe=name).time_index
    assert index is not None
    split = Split(name, 0)
    for limit in range(4_000, 215_000, 4_321):
        first = next((n for n, timestamp in enumerate(times) if timestamp > limit), None)
        expected = None if first is None else IndexEntry(first, Millis(times[first]))
        assert index.first_after({split: Millis(limit)}) == {split: expected}


@pytest.mark.spark_case("KafkaOffsetReaderSuite", "isolationLevel must give back default isolation level when not set")
@pytest.mark.spark_case("KafkaOffsetReaderSuite", "isolationLevel must give back the one that is set")
@pytest.mark.parametrize(
    ("level", "open_end", "open_newest"),
    [("read_uncommitted", 3, NewestTime(Millis(900), 2)), ("read_committed", 1, None)],
)
def test_an_open_transaction_ends_the_log_for_read_committed(
    kafka: Kafka, new_topic: NewTopic, level: str, open_end: int, open_newest: NewestTime | None
) -> None:
    name = new_topic(config=KEEP)
    split = Split(name, 0)
    produce(kafka, name, [100])
    connector = connect(kafka, subscribe=name, **{"kafka.isolation.level": level})
    assert connector.time_index is not None
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap.split(","), transactional_id=name)
    with contextlib.closing(producer):
        producer.init_transactions()
        producer.begin_transaction()
        for timestamp in (500, 900):
            producer.send(name, b"x", partition=0, timestamp_ms=timestamp)
        producer.flush()
        assert connector.bounds.end_positions({split}) == {split: open_end}
        assert connector.starts.initial_positions({split}) == {split: open_end}
        assert connector.time_index.newest({split}) == {split: open_newest}
        producer.commit_transaction()
    # The commit marker takes an offset of its own.
    deadline = time.monotonic() + 60
    while connector.bounds.end_positions({split}) != {split: 4}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_first_batch_that_was_logged_is_read_again_though_the_topic_has_more_partitions_now(
    kafka: Kafka, topic: str
) -> None:
    """Its start is asked for again, and the options name the partitions that there were."""
    offsets = json.dumps({topic: {"0": 1, "1": 0, "2": 0}})
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": offsets}
    first = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    wanted = [pack.ranges for pack in first.partitions(first.initialOffset(), end) if isinstance(pack, ReadTask)]
    add_partitions(kafka.bootstrap, topic, 4)
    second = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
    start = second.initialOffset()
    packs = [pack for pack in second.partitions(start, end) if isinstance(pack, ReadTask)]
    assert [pack.ranges for pack in packs] == wanted
    batches = [batch for pack in packs for batch in second.read(pack)]
    assert sum(len(batch) for batch in batches if batch.column("marker").null_count) == 5
    # A query that has not begun is refused, as ever.
    with pytest.raises(OptionError, match=f"it does not list {topic}-3"):
        second.latestOffset(start, second.getDefaultReadLimit())
    for reader in (first, second):
        reader.stop()


@pytest.mark.parametrize("by", ["subscribe", "subscribePattern", "assign"])
def test_a_topic_that_is_missing_for_some_seconds_is_not_gone(
    kafka: Kafka, new_topic: NewTopic, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone by mistake, it would be read from its beginning again; any one broker may have a stale list."""
    # A busy machine takes longer than five seconds to make a topic.
    monkeypatch.setattr("pyspark_aligned_kafka.cluster.metadata.GONE_AFTER_S", 60.0)
    name = new_topic(2)
    given = {"subscribe": name, "subscribePattern": f"{name}.*", "assign": json.dumps({name: [0, 1]})}
    connector = connect(kafka, **{by: given[by]}, **{"kafka.metadata.max.age.ms": "100"})
    both = {Split(name, 0), Split(name, 1)}
    assert connector.discovery.discover() == both
    delete_topic(kafka.bootstrap, name)
    deleted = time.monotonic()
    seen = []
    while time.monotonic() < deleted + 1.6:
        connector.discovery.looked_since(time.monotonic(), wait=0.2)
        seen.append(connector.discovery.discover())
    create_topic(kafka.bootstrap, name, 2)
    made, until = time.monotonic(), time.monotonic() + 60
    while not connector.discovery.looked_since(made, wait=1):
        assert time.monotonic() < until
    seen.append(connector.discovery.discover())
    assert [found for found in seen if found != both] == []
    # One that stays away is gone.
    monkeypatch.setattr("pyspark_aligned_kafka.cluster.metadata.GONE_AFTER_S", 2.0)
    delete_topic(kafka.bootstrap, name)
    until = time.monotonic() + 60
    while connector.discovery.discover():
        # The broker that is asked may not know of it yet.
        assert time.monotonic() < until
        connector.discovery.looked_since(time.monotonic(), wait=1)


@pytest.mark.parametrize("looked_before", [False, True])
def test_a_topic_of_the_checkpoint_that_is_missing_when_a_process_begins_is_not_gone(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, *, looked_before: bool
) -> None:
    """A pattern names no topics: what a broker with a stale list leaves out would be a loss. A run looks before."""
    monkeypatch.setattr("pyspark_aligned_kafka.cluster.metadata.GONE_AFTER_S", 60.0)
    name = new_topic(2)
    both = {Split(name, 0), Split(name, 1)}
    delete_topic(kafka.bootstrap, name)
    connector = connect(kafka, subscribePattern=f"{name}.*")
    while looked_before and connector.discovery.discover():
        connector = connect(kafka, subscribePattern=f"{name}.*")
    made = threading.Timer(2.5, create_topic, [kafka.bootstrap, name, 2])
    made.start()
    connector.discovery.expect(both | {Split("another", 0)}, {})
    assert connector.discovery.discover() == both
    made.join()


def test_a_broker_refuses_to_report_offsets_by_another_leaders_epoch(kafka: Kafka, topic: str) -> None:
    """One that was cut off from the others would continue to show the end it knows, and its partition would be idle."""
    settings = KafkaSource(
        kafka_options.parse({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic})
    ).options.client
    split, leaders = Split(topic, 0), Leaders()
    with contextlib.closing(KafkaAdmin(settings, leaders=leaders)) as admin:
        (leader,) = {admin.topics([topic])[topic].leaders[split.number]}
        assert leader is not None
        assert leader.epoch == 0
        # As a newer leader's epoch, learned by way of another broker.
        leaders.learn({topic: Topic({split.number: leader._replace(epoch=5)}, internal=False)})
        asked: list[Mapping[Split, int | None]] = []
        real = OffsetsRequest.__init__

        def spied(request: OffsetsRequest, of: OffsetsAsked) -> None:
            asked.append(of.epochs)
            real(request, of)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OffsetsRequest, "__init__", spied)
            found = admin.list_offsets({split: LATEST})
    # Refused with the epoch it does not know, asked again for the leader, and answered.
    assert asked == [{split: 5}, {split: 0}]
    assert found[split].offset == 5
