"""Records that are gone before they were read: an error that names them, or a query that continues without doubling."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.errors import StreamingQueryException

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka, kafka_service
from services.kafka_local import FAST_START
from services.kafka_topics import create_topic, delete_records, delete_topic
from services.wait_until import wait_until
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for, write
from tests.spark.queries import START, settle
from watermark_source.errors import DataLossError
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.read_tasks import ReadTask

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]


def failure(direct: DirectKafka, topic: str, name: str, **options: object) -> str:
    """Run a query that must fail; return what it states."""
    with pytest.raises(DataLossError) as caught:
        direct.run(direct.source(subscribe=topic, **options), name)
    return str(caught.value)


def rows_of_next_run(direct: DirectKafka, topic: str, name: str) -> list[tuple[int, int]]:
    """Run a query that must not mind; return (partition, offset) of everything it has read, in order."""
    direct.run(direct.source(subscribe=topic, failOnDataLoss="false"), name)
    rows = [(partition, offset) for _, partition, offset in direct.data(name)]
    assert len(set(rows)) == len(rows), "rows were doubled"
    return rows


def through(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def test_records_deleted_while_the_query_was_stopped(direct: DirectKafka, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(10), 1: range(10)})
    direct.run(direct.source(subscribe=topic), "q")
    direct.write(topic, {0: range(10, 30), 1: range(10, 12)})
    delete_records(kafka.bootstrap, topic, {0: 17})
    message = failure(direct, topic, "q")
    assert re.search(rf"{topic}(-| partition )0.*\b10\b.*\b17\b", message), message
    assert "failOnDataLoss" in message
    assert rows_of_next_run(direct, topic, "q") == [*through(0, 0, 10), *through(0, 17, 30), *through(1, 0, 12)]


def test_no_task_looks_for_what_was_deleted_while_the_query_was_stopped(
    kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(1)
    write(kafka.bootstrap, topic, {0: range(40)})
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "5",
        "maxRecordsPerPartition": "1",
    }
    reader = DefaultSource(given).streamReader(DefaultSource(given).schema())
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    delete_records(kafka.bootstrap, topic, {0: 36})
    reader = DefaultSource(given).streamReader(DefaultSource(given).schema())
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert f"{topic}-0 was read only up to 5, and begins at 36 now" in caplog.text
    packs = [pack for pack in reader.partitions(dict(start), dict(end)) if isinstance(pack, ReadTask)]
    assert [each for pack in packs for each in pack.ranges] == [
        SplitRange(Split(topic, 0), offset, offset + 1) for offset in range(36, 40)
    ]
    assert sum(len(batch) for pack in packs for batch in reader.read(pack)) == 4
    # What the tasks report is what was planned: no one looks at it again.
    assert reader.latestOffset(end, reader.getDefaultReadLimit())["wm"] > 0
    assert "no task reported" not in caplog.text
    reader.stop()


def test_records_deleted_between_planning_and_reading(direct: DirectKafka, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(20), 1: range(10)})
    direct.run(direct.source(subscribe=topic), "q")
    # The driver died right after it logged the plan: the batch is run again as it was planned.
    direct.die_in("q", 0)
    delete_records(kafka.bootstrap, topic, {0: 13})
    message = failure(direct, topic, "q")
    assert re.search(rf"topic {topic} partition 0: offsets 0 to 13 ", message), message
    assert rows_of_next_run(direct, topic, "q") == [*through(0, 13, 20), *through(1, 0, 10)]


def test_a_whole_planned_range_deleted_is_skipped_once(direct: DirectKafka, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    direct.write(topic, {0: range(20)})
    direct.run(direct.source(subscribe=topic), "q")
    direct.die_in("q", 0)
    direct.write(topic, {0: range(20, 30)})
    delete_records(kafka.bootstrap, topic, {0: 25})
    failure(direct, topic, "q")
    assert rows_of_next_run(direct, topic, "q") == through(0, 25, 30)


def test_a_topic_created_anew_with_fewer_records_and_partitions(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    direct.write(topic, {0: range(10), 1: range(10), 2: range(10)})
    direct.run(direct.source(subscribe=topic), "q")
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic, 2)
    direct.write(topic, {0: range(4), 1: range(12)})
    message = failure(direct, topic, "q")
    assert f"{topic}-0 was read up to 10, and {topic} was deleted and created again since" in message
    assert f"{topic}-2 is gone, or no longer asked for; it was read up to 10" in message
    before = [*through(0, 0, 10), *through(1, 0, 10), *through(2, 0, 10)]
    # It is another topic, of which nothing was read. The built-in source would continue at the offsets it had.
    anew = [*through(0, 0, 4), *through(1, 0, 12)]
    direct.run(direct.source(subscribe=topic, failOnDataLoss="false"), "q")
    assert [row[1:] for row in direct.data("q")] == sorted([*before, *anew])
    direct.write(topic, {0: range(4, 8)})
    direct.run(direct.source(subscribe=topic), "q")
    rows = [(partition, offset) for _, partition, offset in direct.data("q")]
    assert rows.count((0, 4)) == 2  # the old topic's and the new one's
    assert len(rows) == len(before) + len(anew) + 4


def test_a_topic_no_longer_subscribed_is_a_loss_however_the_query_is_run(
    direct: DirectKafka, new_topic: NewTopic
) -> None:
    stays, leaves = new_topic(1), new_topic(1)
    direct.write(stays, {0: range(5)})
    direct.write(leaves, {0: range(5)})
    direct.run(direct.source(subscribe=f"{stays},{leaves}"), "q")
    direct.write(leaves, {0: range(5, 9)})
    assert f"{leaves}-0 is gone, or no longer asked for" in failure(direct, stays, "q")
    query = direct.start(direct.source(subscribe=stays), "q")
    with pytest.raises(DataLossError, match=f"{leaves}-0 is gone, or no longer asked for"):
        query.process_all()
    query = direct.start(direct.source(subscribe=stays, failOnDataLoss="false"), "q")
    direct.write(stays, {0: range(5, 7)})
    query.process_all()
    topics = [topic for topic, _, _ in direct.data("q")]
    assert (topics.count(leaves), topics.count(stays)) == (5, 7)


def test_what_the_log_cleaner_removes_beside_the_first_reading_is_no_loss_and_no_end_that_is_waited_for() -> None:
    """Of a planned range, and of all that was to be read up to the ends found at the start, nothing is left."""
    first_rows = 30
    config = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "0"}
    with kafka_service(config=config, jvm=FAST_START) as kafka:
        topic = "users"
        create_topic(kafka.bootstrap, topic, 1, config=COMPACTED)
        keys = [b"%d" % (n % 3) for n in range(first_rows)]
        send(kafka, topic, keys, START)
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
            "whenCaughtUp": "watermark", "maxOffsetsPerTrigger": "6",
        }  # fmt: skip
        reader = DefaultSource(given).streamReader(DefaultSource(given).schema())
        limit = reader.getDefaultReadLimit()
        offset: dict[str, Any] = dict(reader.initialOffset())
        planned: dict[str, Any] = dict(reader.latestOffset(offset, limit))
        assert planned["catch_up"] == {"ends": {topic: {"0": first_rows}}}
        # Later versions of all keys, and a segment that the cleaner leaves alone.
        send(kafka, topic, [b"0", b"1", b"2"], START + 1_000)
        send(kafka, topic, [b"end"], START + 3_600_000)
        wait_until(lambda: stored(kafka, topic)[0] >= first_rows, 120, "the cleaner", poll_seconds=0.2)
        read: list[int] = []
        while "wm" not in offset:
            for pack in reader.partitions(offset, planned):
                for rows in reader.read(pack):
                    assert isinstance(rows, pa.RecordBatch)
                    read += rows.filter(rows["marker"].is_null())["offset"].to_pylist()
            offset, planned = planned, dict(reader.latestOffset(planned, limit))
        reader.stop()
        assert read == stored(kafka, topic) == [30, 31, 32, 33]


COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}


def send(kafka: Kafka, topic: str, keys: Sequence[bytes], at: int) -> None:
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for key in keys:
            producer.send(topic, b"value", key, partition=0, timestamp_ms=at)


def stored(kafka: Kafka, topic: str) -> list[int]:
    """Return the offsets of the only partition at which there is a record."""
    partition = TopicPartition(topic, 0)
    with contextlib.closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[int] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(1_000).values():
                found += [record.offset for record in records]
        return found


@pytest.mark.parametrize("fail", ["true", pytest.param("false", marks=pytest.mark.long("as an error"))])
def test_a_topic_deleted_under_a_running_query(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, fail: str
) -> None:
    stays, goes = new_topic(1), new_topic(1)
    streams.write(stays, {0: range(5)})
    streams.write(goes, {0: range(5)})
    source = streams.source(subscribe=f"{stays},{goes}", failOnDataLoss=fail, **{"kafka.metadata.max.age.ms": "300"})
    query = streams.start_file(source, "q")
    settle(query)
    delete_topic(kafka.bootstrap, goes)
    if fail == "true":
        with pytest.raises(StreamingQueryException, match=rf"DataLossError.*{goes}-0 is gone, .* read up to 5"):
            query.awaitTermination(200)
        return
    wait_for(lambda: streams.offsets("q")[-1]["splits"].keys() == {stays}, query)
    streams.write(stays, {0: range(5, 9)})
    wait_for(lambda: len(streams.data("q")) >= 14, query)
    query.stop()
    assert [tuple(row) for row in streams.data("q")] == sorted(
        [(stays, 0, n) for n in range(9)] + [(goes, 0, n) for n in range(5)]
    )
