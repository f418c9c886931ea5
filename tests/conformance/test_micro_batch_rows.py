"""KafkaMicroBatchSourceSuite, rows: columns, transactions, nulls, watermarks and joins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from kafka import KafkaProducer
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, at, settle
from watermark_source import data_rows, follow_watermark

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"


@pytest.mark.spark_case(SUITE, "Kafka column types")
@pytest.mark.spark_case(SUITE, "SPARK-27494: read kafka record containing null key/values.")
@pytest.mark.spark_case(SUITE, "input row metrics")
def test_column_types_nulls_and_how_many_rows_are_counted(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    before = datetime.now(tz=UTC).timestamp()
    producer = KafkaProducer(bootstrap_servers=streams.bootstrap)
    producer.send(topic, b"value", key=b"key", headers=[("a", b"b"), ("c", b"d")])
    pairs = [(None, b"v"), (b"k", None), (b"k", b"v"), (b"", b"")]
    for key, value in pairs:
        producer.send(topic, value, key=key, partition=0)
    producer.close()
    source = streams.source(subscribe=topic, includeHeaders="true", includeMarkers="false")
    query = streams.run(source.drop("event_time"), "q")
    assert [progress["numInputRows"] for progress in query.recentProgress] == [1 + len(pairs)]
    frame = streams.result("q").orderBy("offset")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema)
    first, *others = frame.collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"key", b"value", topic, 0, 0,
    )  # fmt: skip
    assert 0 <= first.timestamp.replace(tzinfo=UTC).timestamp() - before < 60
    assert first.timestampType == 0
    assert first.headers == [("a", b"b"), ("c", b"d")]
    # Null, not empty.
    assert [tuple(None if v is None else bytes(v) for v in (row.key, row.value)) for row in others] == pairs
    assert {row.headers for row in others} == {None}


@pytest.mark.spark_case(SUITE, "KafkaSource with watermark")
@pytest.mark.long("test_a_fast_a_slow_and_a_silent_partition_lose_nothing_and_plain_spark_loses_rows")
def test_windows_by_the_time_of_the_records(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    source = streams.source(subscribe=topic, maxOutOfOrderness="10 seconds")
    windows = follow_watermark(source, "timestamp").groupBy(F.window("timestamp", "5 seconds")).count()
    running = streams.start(windows.select("window.start", "count"))
    streams.write(topic, {0: [1, 2, 7, 8]})
    running.settle()
    assert running.rows() == []
    streams.write(topic, {0: [30]})
    running.settle()
    assert running.rows() == [(at(0), 2), (at(5), 2)]


@pytest.mark.spark_case(SUITE, "ensure stream-stream self-join generates only one offset in log and correct metrics")
def test_a_self_join_reads_its_source_once(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    # A column of the query's own: for columns of the source itself Spark makes a second source, of the built-in too.
    rows = data_rows(streams.source(subscribe=topic)).select((F.col("partition") * 100 + F.col("offset")).alias("n"))
    joined = rows.alias("a").join(rows.alias("b"), "n").select("n")
    query = streams.start_file(joined, "q")
    streams.write(topic, {0: range(3), 1: range(2)})
    wait_for(lambda: query.lastProgress and streams.batches("q"), query)
    settle(query)
    query.stop()
    assert all(len(progress["sources"]) == 1 for progress in query.recentProgress)
    assert sorted(row.n for row in streams.result("q").collect()) == [0, 1, 2, 100, 101]


def transactional(direct: DirectKafka, topic: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=direct.bootstrap, transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions()
    return producer


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(level, marks=pytest.mark.spark_case(SUITE, f"read Kafka transactional messages: {level}"))
        for level in ("read_committed", "read_uncommitted")
    ],
)
def test_transactional_messages(direct: DirectKafka, new_topic: NewTopic, level: str) -> None:
    topic = new_topic(1)
    producer = transactional(direct, topic)
    source = direct.source(subscribe=topic, maxOffsetsPerTrigger=5, **{"kafka.isolation.level": level})
    query = direct.start(source, "q")
    uncommitted = level == "read_uncommitted"

    def send(*values: int) -> None:
        for n in values:
            producer.send(topic, b"%d" % n, partition=0, timestamp_ms=START + n)
        producer.flush()

    def seen() -> list[int]:
        query.process_all()
        return [int(value) for (value,) in direct.data("q", ("value",))]

    # A range that holds no data at all: offsets of an open transaction, then of an aborted one.
    producer.begin_transaction()
    send(*range(5))
    assert seen() == (list(range(5)) if uncommitted else [])
    producer.abort_transaction()
    query.run_until(lambda: direct.batches("q") and _read_to(direct, "q", 6))
    assert seen() == (list(range(5)) if uncommitted else [])
    # The first offset of a range is data, the last one is none; then the other way round, with a gap in the middle.
    producer.begin_transaction()
    send(*range(10, 14))
    producer.commit_transaction()
    producer.begin_transaction()
    send(20)
    producer.abort_transaction()
    producer.begin_transaction()
    send(*range(30, 37))
    producer.commit_transaction()
    query.run_until(lambda: _read_to(direct, "q", 21))
    aborted, last = ([*range(5)], [20]) if uncommitted else ([], [])
    assert seen() == [*aborted, *range(10, 14), *last, *range(30, 37)]
    producer.close()


def _read_to(direct: DirectKafka, name: str, end: int) -> bool:
    return max((stop for batch in direct.batches(name) for _, stop in batch.values()), default=0) >= end


@pytest.mark.spark_case(SUITE, "default config of includeHeader doesn't break existing query from Spark 2.4")
def test_headers_may_be_asked_for_in_a_query_that_had_none(direct: DirectKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    producer = KafkaProducer(bootstrap_servers=direct.bootstrap)
    producer.send(topic, b"a", headers=[("h", b"1")])
    producer.flush()
    plain = direct.run(direct.source(subscribe=topic), "q")
    assert "headers" not in plain.schema.names
    producer.send(topic, b"b", headers=[("h", b"2")])
    producer.close()
    direct.run(direct.source(subscribe=topic, includeHeaders="true"), "q")
    assert len(direct.data("q")) == 2
