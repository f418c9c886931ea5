"""Where a query begins and how it goes on: the same as with Spark's own Kafka source, however topics are chosen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.kafka import Kafka
from services.topics import add_partitions, create_topic
from tests.integration.kafka_streams import START, KafkaStreams, wait_for

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]

CHOICES: dict[str, str] = {
    "subscribe": "TOPIC",
    "subscribePattern": "^TOPI.?C?$",
    "assign": '{"TOPIC":[0,1,2]}',
}
STARTS: dict[str, dict[str, str]] = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {"startingOffsets": "latest"},
    "offsets": {"startingOffsets": '{"TOPIC":{"0":3,"1":-2,"2":-1}}'},
    "timestamp": {"startingTimestamp": str(START + 4_000), "startingOffsetsByTimestampStrategy": "latest"},
    "timestamps": {
        "startingOffsetsByTimestamp": f'{{"TOPIC":{{"0":{START + 2_500},"1":{START + 99_000},"2":0}}}}',
        "startingOffsetsByTimestampStrategy": "latest",
        # Loses against the timestamps.
        "startingOffsets": "earliest",
    },
}


@pytest.mark.parametrize(
    ("choice", "start"),
    [*(("subscribe", start) for start in STARTS), ("subscribePattern", "offsets"), ("assign", "offsets")],
)
def test_every_start_and_every_choice_reads_what_the_built_in_source_reads(
    streams: KafkaStreams, built_in_kafka: str, new_topic: NewTopic, choice: str, start: str
) -> None:
    topic = new_topic(3)
    streams.write(topic, {0: range(10), 1: range(5), 2: [9]})
    options = {choice: CHOICES[choice].replace("TOPI.?C?", f"{topic[:-1]}."), **STARTS[start]}
    given = {name: text.replace("TOPIC", topic) for name, text in options.items()}
    # A second run: the start is the first run's, also where that one found nothing to read.
    for times in ({}, {0: [20, 21], 1: [20], 2: [20]}):
        streams.write(topic, times)
        for kind in ("aligned-kafka", built_in_kafka):
            streams.run(streams.source(kind, **given), kind)
    found = streams.data("aligned-kafka")
    assert found == streams.data(built_in_kafka)
    assert len(found) >= 4


def test_a_query_that_found_nothing_yet_still_knows_where_it_began(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(3)})
    source = streams.source(subscribe=topic, startingOffsets="latest")
    streams.run(source, "late")
    assert streams.data("late") == []
    streams.write(topic, {0: [10], 1: [11]})
    streams.run(source, "late")
    assert [(row.partition, row.offset) for row in streams.data("late")] == [(0, 3), (1, 0)]


def test_partitions_and_topics_that_come_while_running_are_read_from_their_beginning(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    first = new_topic(1)
    second = first[:-1] + "1"
    source = streams.source(
        subscribePattern=f"{first[:-1]}.", startingOffsets="latest", **{"kafka.metadata.max.age.ms": "200"}
    )
    streams.write(first, {0: [0]})
    query = streams.start_file(source, "grown")
    wait_for(lambda: query.lastProgress, query)
    add_partitions(kafka.bootstrap, first, 3)
    create_topic(kafka.bootstrap, second, 2)
    streams.write(first, {0: [1], 1: [1, 2], 2: [1]})
    streams.write(second, {1: [1]})
    wanted = [(first, 0, 1), (first, 1, 0), (first, 1, 1), (first, 2, 0), (second, 1, 0)]
    wait_for(lambda: len(streams.data("grown")) >= len(wanted), query)
    query.stop()
    assert streams.data("grown") == wanted
