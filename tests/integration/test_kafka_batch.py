"""A batch read by itself: how it is cut and bound, what a DataFrame of it is good for, how it answers mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from services.kafka import Kafka
from services.kafka_topics import create_topic, delete_records, delete_topic
from tests.integration.kafka_streams import KafkaStreams, write
from tests.spark.queries import START
from watermark_source import data_rows, follow_watermark, markers
from watermark_source.errors import DataLossError, UsageError
from watermark_source.planning.split import Split, SplitRange

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]


def load(streams: KafkaStreams, **options: Any) -> DataFrame:
    reader = streams.spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", streams.bootstrap)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def offsets(rows: list[Row]) -> list[int]:
    return [row.offset for row in rows]


def parts(frame: DataFrame) -> Callable[[], list[list[int]]]:
    """Plan a read once; return what each of its tasks reads, looked at again with every call."""
    planned = frame.rdd.map(lambda row: row.offset).glom()
    return lambda: planned.collect()


def test_what_fell_to_retention_between_planning_and_reading_is_no_loss_from_earliest(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(60)})
    read = parts(load(streams, subscribe=topic, minPartitions=6))
    assert read() == [[*range(n, n + 10)] for n in range(0, 60, 10)]
    delete_records(kafka.bootstrap, topic, {0: 25})
    streams.write(topic, {0: range(60, 65)})
    assert read() == [[], [], [*range(25, 30)], [*range(30, 40)], [*range(40, 50)], [*range(50, 65)]]
    delete_records(kafka.bootstrap, topic, {0: 62})
    assert read() == [[], [], [], [], [], [*range(62, 65)]]


def test_what_falls_to_retention_while_it_is_read_is_no_loss_from_earliest(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    earliest, given = Split(new_topic(1), 0), Split(new_topic(1), 0)
    for split in (earliest, given):
        streams.write(split.log, {0: range(60)})
        delete_records(kafka.bootstrap, split.log, {0: 25})
    settings = parse_settings({"kafka.bootstrap.servers": kafka.bootstrap})
    reader = KafkaRangeReader(settings, ("offset",), fail_on_data_loss=True, poll_timeout_ms=120_000)
    assert reader.log_ranges({earliest, given, Split("not-there", 0)}) == {
        split: SplitRange(split, 25, 60) for split in (earliest, given)
    }
    # As bound a moment before: the log of both has lost its first rows since.
    read = reader.read([SplitRange(earliest, 10, 60)], from_beginning={earliest})
    assert [offset for batch in read for offset in batch.columns[0].to_pylist()] == [*range(25, 60)]
    assert list(reader.read([SplitRange(earliest, 0, 20)], from_beginning={earliest})) == []
    with pytest.raises(DataLossError, match="offsets 10 to 25 "):
        list(reader.read([SplitRange(given, 10, 60)], from_beginning={earliest}))
    # To lose the end is a loss in any case.
    with pytest.raises(DataLossError, match=r"offsets 60 to 70 .* truncated"):
        list(reader.read([SplitRange(earliest, 30, 70)], from_beginning={earliest}))


def test_a_topic_made_anew_between_planning_and_reading_is_a_loss(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    """Its rows would pass for those that were planned, or none of them be there."""
    topic = new_topic(1)
    streams.write(topic, {0: range(60)})
    everything = parts(load(streams, subscribe=topic, minPartitions=3))
    from_fifty = parts(load(streams, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 50}})))
    skipping = parts(load(streams, subscribe=topic, failOnDataLoss="false"))
    assert [len(part) for part in everything()] == [20, 20, 20]
    assert from_fifty() == [[*range(50, 60)]]
    assert [len(part) for part in skipping()] == [60]
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic, 1)
    for rows in (0, 30):
        streams.write(topic, {0: range(rows)})
        for read in (everything, from_fifty):
            with pytest.raises(Exception, match="was deleted and created again since the batch was planned"):
                read()
        assert skipping() == [[]]
    assert [len(part) for part in parts(load(streams, subscribe=topic))()] == [30]


def test_partitions_without_rows_are_read_when_they_have_some(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    read = parts(load(streams, subscribe=topic))
    assert read() == [[]]
    streams.write(topic, {0: range(3), 2: range(2)})
    assert [sorted(part) for part in read()] == [[0, 0, 1, 1, 2]]


def test_tasks_are_sized_by_the_users_options(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(100), 1: range(10)})

    def sizes(**options: int) -> list[int]:
        return [len(part) for part in parts(load(streams, subscribe=topic, **options))()]

    assert sizes() == [110]
    assert sizes(maxRecordsPerPartition=40) == [33, 33, 34, 10]
    assert len(sizes(minPartitions=11)) >= 11
    assert max(sizes(minPartitions=2, maxRecordsPerPartition=25)) <= 25


def test_rows_of_a_partition_come_in_the_order_of_their_offsets(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    streams.write(topic, {n: range(3_000) for n in range(3)}, batch_records=100)
    rows = load(streams, subscribe=topic, minPartitions=7, columns="partition,offset").collect()
    for number in range(3):
        assert offsets([row for row in rows if row.partition == number]) == [*range(3_000)]


def test_the_frame_is_the_streams_without_markers_in_it(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(3)})
    frame = load(streams, subscribe=topic)
    assert frame.schema == streams.source(subscribe=topic).schema
    rows = frame.collect()
    assert [row.marker for row in rows] == [None] * 3
    assert [row.event_time for row in rows] == [row.timestamp for row in rows]
    plain = data_rows(frame)
    assert plain.columns == frame.columns[:-1]
    assert offsets(plain.collect()) == [0, 1, 2]
    for needs_a_stream in (follow_watermark, markers):
        with pytest.raises(UsageError, match="watermarks mean nothing in a batch read"):
            needs_a_stream(frame)


def test_columns_can_be_chosen_and_options_of_streams_change_nothing(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(3)})
    frame = load(
        streams, subscribe=topic, columns="offset,event_time", includeMarkers="false", watermarkStrategy="none",
        maxOffsetsPerTrigger=1, watermarkInterval="1 hour",
    )  # fmt: skip
    assert frame.columns == ["offset", "event_time"]
    rows = frame.collect()
    assert offsets(rows) == [0, 1, 2]
    assert [row.event_time.timestamp() * 1_000 for row in rows] != [START] * 3


@pytest.fixture(scope="module")
def two_topics(kafka: Kafka) -> tuple[str, str]:
    """Two partitions each, with five records in every one."""
    names = ("words-a", "words-b")
    for name in names:
        create_topic(kafka.bootstrap, name, 2)
        write(kafka.bootstrap, name, {0: range(5), 1: range(5)})
    return names


def test_a_whole_topic_may_have_one_word_in_a_batch_and_in_a_stream(
    streams: KafkaStreams, two_topics: tuple[str, str]
) -> None:
    a, b = two_topics
    starts = json.dumps({a: "earliest", b: {"0": 3, "1": -2}})
    ends = json.dumps({a: {"0": 2, "1": -1}, b: "latest"})
    options = {"subscribe": f"{a},{b}", "startingOffsets": starts}
    rows = load(streams, **options, endingOffsets=ends).collect()
    whole = [(topic, partition, offset) for topic in (a, b) for partition in (0, 1) for offset in range(5)]
    left_out = {(a, 0, 2), (a, 0, 3), (a, 0, 4), (b, 0, 0), (b, 0, 1), (b, 0, 2)}
    found = sorted((row.topic, row.partition, row.offset) for row in rows)
    assert found == [at for at in whole if at not in left_out]

    options["startingOffsets"] = json.dumps({a: "LATEST", b: "earliest"})
    streams.run(streams.source(**options), "q")
    assert [tuple(row) for row in streams.data("q")] == [at for at in whole if at[0] == b]


def test_a_starting_time_nothing_has_reached_reads_nothing_with_strategy_latest(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: [0, 5], 1: [0]})
    frame = load(streams, subscribe=topic, startingTimestamp=START + 3_000, startingOffsetsByTimestampStrategy="latest")
    assert [(row.partition, row.offset) for row in frame.collect()] == [(0, 1)]


def test_a_pattern_that_finds_nothing_reads_nothing(streams: KafkaStreams) -> None:
    assert load(streams, subscribePattern="no-topic-is-called-so").collect() == []


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "a topic that does not exist": ({"subscribe": "not-there"}, "UnknownSplitError: topic not-there does not exist"),
    "a partition that is not read": (
        {"subscribe": "words-a", "endingOffsets": '{"words-a":{"0":1}}'},
        r"\[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\] option endingOffsets .*does not list words-a-1",
    ),
    "an end beyond the log's": (
        {"assign": '{"words-a":[0]}', "endingOffsets": '{"words-a":{"0":9}}'},
        "topic words-a partition 0: offsets 5 to 9 .*ends at 5",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("two_topics")
def test_a_mistake_is_named(streams: KafkaStreams, mistake: str) -> None:
    options, message = MISTAKES[mistake]
    with pytest.raises(PySparkException, match=message):
        load(streams, **options).collect()


def test_a_user_schema_is_refused(streams: KafkaStreams) -> None:
    reader = streams.spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", streams.bootstrap)
    with pytest.raises(PySparkException, match=r"takes none from the user.*Leave \.schema"):
        reader.option("subscribe", "t").schema("value BINARY").load().collect()
