"""Filters of a batch pushed down to partitions and offsets: the rows are those of the same query without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic, delete_records, delete_topic
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TOPICS, PARTITIONS, ROWS, FIRST = ("filtered-a", "filtered-b"), 3, 200, 30
POSITION = ("topic", "partition", "offset")
AT = "topic, partition, offset"


@pytest.fixture(autouse=True)
def _pushdown(streams: KafkaStreams) -> Iterator[None]:
    streams.spark.conf.set(PUSHDOWN, "true")
    yield
    streams.spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> tuple[str, ...]:
    """Timestamps a second apart and shuffled within half a minute; the first rows of some partitions are gone."""
    chance = np.random.default_rng(7)
    for name in TOPICS:
        create_topic(kafka.bootstrap, name, PARTITIONS)
        records = {}
        for partition in range(PARTITIONS):
            times = START + np.arange(ROWS) * 1_000 - chance.integers(0, 30_000, ROWS)
            records[partition] = PartitionRecords(times.astype(np.int64), value_size=20)
        bulk_produce_partitions(kafka.bootstrap, name, records, batch_records=7)
    delete_records(kafka.bootstrap, TOPICS[0], {0: FIRST, 1: FIRST})
    return TOPICS


def load(streams: KafkaStreams, *, push: bool = True, **options: Any) -> DataFrame:
    reader = streams.spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", streams.bootstrap)
    reader = reader.option("pushDownPredicate", str(push))
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def positions(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*POSITION).collect())


def scanned(frame: DataFrame) -> int:
    """Return how many rows the source delivered."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(leaves.apply(i).metrics().apply("numOutputRows").value() for i in range(leaves.size()))


def moment(seconds: float) -> str:
    return f"timestamp_millis({START + round(seconds * 1_000)})"


COMPARISONS = ("=", "<", "<=", ">", ">=", "<=>", "<>")
OFFSETS = st.integers(-1, ROWS + 5)
MOMENTS = st.one_of(st.floats(-35, ROWS + 5), st.integers(-35, ROWS + 5)).map(moment)


def _about(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    compared = st.tuples(st.sampled_from(COMPARISONS), values).map(lambda v: f"{column} {v[0]} {v[1]}")
    some = st.lists(values, min_size=1, max_size=3).map(lambda v: f"{column} IN ({', '.join(map(str, v))})")
    return st.one_of(compared, some, some.map(lambda text: text.replace(" IN ", " NOT IN ")))


PLAIN = st.one_of(
    _about("offset", OFFSETS),
    _about("partition", st.integers(-1, PARTITIONS)),
    _about("timestamp", MOMENTS),
    _about("event_time", MOMENTS),
    _about("topic", st.sampled_from(["'filtered-a'", "'filtered-b'", "'x'"])),
    st.sampled_from([
        "topic LIKE '%a'", "topic LIKE '%red%'", "value IS NOT NULL", "length(value) = 20", "key IS NULL",
        "offset % 2 = 0", "offset IN (10, null, 150)", "partition <=> null", "offset BETWEEN 20 AND 90",
        "CAST(timestamp AS DATE) = DATE'2023-11-14'", "headers IS NULL",
    ]),
)  # fmt: skip
MIXED = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda v: f"({v[0]}) AND ({v[1]})"),
        st.tuples(inner, inner).map(lambda v: f"({v[0]}) OR ({v[1]})"),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=4,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "startingTimestamp": st.just(START + 40_000),
        "endingTimestamp": st.just(START + 150_000),
        "endingOffsets": st.just(json.dumps({topic: dict.fromkeys("012", 120) for topic in TOPICS})),
        "minPartitions": st.sampled_from([5, 11]),
    },
)


@given(MIXED, OPTIONS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(f"offset >= 190 AND timestamp >= {moment(150)}", {})
@example("offset IN (31, 199, 0)", {"endingOffsets": json.dumps({t: dict.fromkeys("012", 120) for t in TOPICS})})
@example(f"timestamp >= {moment(100)} AND (partition = 1 OR offset < 150)", {"startingTimestamp": START + 40_000})
def test_the_rows_are_those_without_pushdown(
    streams: KafkaStreams, topics: tuple[str, ...], condition: str, options: dict[str, Any]
) -> None:
    given = {"subscribe": ",".join(topics), "includeHeaders": "true", **options}
    # Read once for all conditions, or the frame that is not kept would be read again for each.
    without = load(streams, push=False, **given).cache()
    assert positions(load(streams, **given).where(condition)) == positions(without.where(condition))


@pytest.mark.parametrize(
    ("condition", "least", "most"),
    [
        ("partition = 1 AND topic = 'filtered-b'", ROWS, ROWS),
        ("topic = 'filtered-b'", PARTITIONS * ROWS, PARTITIONS * ROWS),
        ("offset >= 190", 60, 60),
        ("offset IN (31, 190)", 2 * PARTITIONS, 160 * 2 * PARTITIONS),
        (f"timestamp >= {moment(180)}", 6, 6 * 20 + 6 * 30),
        (f"event_time > {moment(180)} AND topic LIKE '%b'", 3, 3 * 20 + 3 * 30),
        (f"timestamp >= {moment(ROWS + 1)}", 0, 0),
        (f"timestamp < {moment(0)}", 6 * ROWS - 2 * FIRST, 6 * ROWS - 2 * FIRST),
        ("offset = 1000000", 0, 0),
        ("partition = 1 OR offset = 5", 6 * ROWS - 2 * FIRST, 6 * ROWS - 2 * FIRST),
    ],
)
def test_what_no_row_of_can_pass_is_not_read(
    streams: KafkaStreams, topics: tuple[str, ...], condition: str, least: int, most: int
) -> None:
    assert least <= scanned(load(streams, subscribe=",".join(topics)).where(condition)) <= most


def test_without_the_option_all_is_read_whatever_the_session_says(
    streams: KafkaStreams, topics: tuple[str, ...]
) -> None:
    condition = "offset >= 190 AND partition = 1"
    assert scanned(load(streams, push=False, subscribe=topics[1]).where(condition)) == PARTITIONS * ROWS
    streams.spark.conf.unset(PUSHDOWN)
    assert streams.spark.conf.get(PUSHDOWN) == "false"
    assert scanned(load(streams, push=False, subscribe=topics[1]).where(condition)) == PARTITIONS * ROWS
    with pytest.raises(PySparkException, match=f"'{PUSHDOWN}' is false. Set it to true"):
        load(streams, subscribe=topics[1]).where(condition).collect()


def test_a_time_written_without_a_zone_is_the_sessions(streams: KafkaStreams, topics: tuple[str, ...]) -> None:
    local = datetime.fromtimestamp(START / 1_000 + 170, ZoneInfo("Asia/Kolkata"))
    streams.spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        frame = load(streams, subscribe=topics[1]).where(f"timestamp >= '{local:%Y-%m-%d %H:%M:%S}'")
        rows = positions(frame)
        assert rows == positions(load(streams, subscribe=topics[1]).where(f"timestamp >= {moment(170)}"))
        assert 0 < len(rows) <= scanned(frame) < PARTITIONS * ROWS
    finally:
        streams.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_event_time_in_the_payload_is_not_looked_up(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    # Event times run against the records' own.
    records = {0: PartitionRecords(START + np.arange(5) * 1_000, values=_digits(START + np.arange(5)[::-1] * 1_000))}
    bulk_produce_partitions(streams.bootstrap, topic, records)

    def read(condition: str) -> DataFrame:
        return load(streams, subscribe=topic, eventTimeColumn="value:$").where(condition)

    assert [row[2] for row in positions(read(f"event_time >= {moment(3)}"))] == [0, 1]
    assert scanned(read(f"event_time >= {moment(3)}")) == 5
    assert scanned(read(f"timestamp >= {moment(3)}")) == 2


def _digits(numbers: Any) -> Any:
    texts = np.char.mod("%d", numbers)
    return texts.astype(f"S{len(texts[0])}").view(np.uint8).reshape(len(texts), -1)


def test_rows_written_after_planning_that_pass_are_read(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(10)})

    def planned(condition: str) -> Callable[[], list[int]]:
        rdd = load(streams, subscribe=topic).where(condition).rdd.map(lambda row: row.offset)
        return lambda: sorted(rdd.collect())

    from_five, beyond, below, future = map(
        planned, (f"timestamp >= {moment(5)}", "offset >= 12", "offset < 12", f"timestamp > {moment(20)}")
    )
    assert (from_five(), beyond(), below(), future()) == ([*range(5, 10)], [], [*range(10)], [])
    streams.write(topic, {0: [3, 30, 31, 32]})
    assert (from_five(), beyond(), below()) == ([5, 6, 7, 8, 9, 11, 12, 13], [12, 13], [*range(12)])
    assert future() == [11, 12, 13]
    delete_records(kafka.bootstrap, topic, {0: 8})
    assert (from_five(), below()) == ([8, 9, 11, 12, 13], [8, 9, 10, 11])
    # A topic made again is another one; of the one that is gone, these had rows to read when they were planned.
    delete_topic(kafka.bootstrap, topic)
    create_topic(kafka.bootstrap, topic, 1)
    streams.write(topic, {0: [6, 1, 21]})
    assert (beyond(), future()) == ([], [])
    for rows in (from_five, below):
        with pytest.raises(PySparkException, match="was deleted and created again since the batch was planned"):
            rows()


def test_what_is_lost_before_a_starting_offset_is_an_error_with_a_time_too(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(10)})
    delete_records(kafka.bootstrap, topic, {0: 5})
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2}})}
    with pytest.raises(PySparkException, match="offsets 2 to 5 "):
        load(streams, **options).where(f"timestamp >= {moment(7)}").collect()
    assert [row[2] for row in positions(load(streams, **options).where("offset >= 7"))] == [7, 8, 9]
