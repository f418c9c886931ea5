"""KafkaMicroBatchSourceSuite, start positions: where a query begins, and that it continues from there ever after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from services.kafka_topics import add_partitions
from tests.integration.direct_kafka import DirectKafka, DirectQuery
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START
from watermark_source.errors import OptionError

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"
CHOICES: dict[str, dict[str, str]] = {
    "assign": {"assign": '{"TOPIC":[0,1,2]}'},
    "subscribing topic by name": {"subscribe": "TOPIC"},
    "subscribing topic by pattern": {"subscribePattern": "^TOPIC$"},
}
LATEST_WITHOUT_MATCH = {"startingOffsetsByTimestampStrategy": "latest"}
STARTS: dict[str, tuple[dict[str, str], tuple[int, int, int]]] = {
    "latest offsets": ({"startingOffsets": "latest"}, (10, 5, 1)),
    "earliest offsets": ({"startingOffsets": "earliest"}, (0, 0, 0)),
    "specific offsets": ({"startingOffsets": '{"TOPIC":{"0":3,"1":-2,"2":-1}}'}, (3, 0, 1)),
    "specific timestamps": (
        {
            "startingOffsetsByTimestamp": f'{{"TOPIC":{{"0":{START + 2_500},"1":{START + 99_000},"2":0}}}}',
            # Loses against the timestamps.
            "startingOffsets": "earliest",
            **LATEST_WITHOUT_MATCH,
        },
        (3, 5, 0),
    ),
    "global timestamp per topic": ({"startingTimestamp": str(START + 4_000), **LATEST_WITHOUT_MATCH}, (4, 4, 0)),
}


def cases() -> Iterator[object]:
    for choice in CHOICES:
        for start in STARTS:
            name = f"{choice} from {start}"
            yield pytest.param(choice, start, id=name, marks=pytest.mark.spark_case(SUITE, name))


@pytest.mark.parametrize(("choice", "start"), list(cases()))
def test_a_query_begins_there_and_goes_on_whatever_failOnDataLoss_is(  # noqa: N802 - the option's name
    direct: DirectKafka, new_topic: NewTopic, choice: str, start: str
) -> None:
    topic = new_topic(3)
    direct.write(topic, {0: range(10), 1: range(5), 2: [9]})
    options, first = STARTS[start]
    given = {name: text.replace("TOPIC", topic) for name, text in {**CHOICES[choice], **options}.items()}
    given["kafka.metadata.max.age.ms"] = "200"
    sources = {loss: direct.source(**given, failOnDataLoss=loss) for loss in ("true", "false")}

    def begin() -> dict[str, DirectQuery]:
        queries = {name: direct.start(source, name) for name, source in sources.items()}
        for query in queries.values():
            query.process_all()
        return queries

    def expect(queries: dict[str, DirectQuery], ends: dict[int, int]) -> None:
        begins = dict(enumerate(first))
        wanted = [(topic, p, n) for p, end in ends.items() for n in range(begins.get(p, 0), end)]
        for name, query in queries.items():
            query.run_until(lambda name=name: len(direct.data(name)) >= len(wanted))  # type: ignore[misc]
            query.stop()
            assert direct.data(name) == wanted

    expect(begin(), {0: 10, 1: 5, 2: 1})
    # While it is stopped, and while it runs.
    direct.write(topic, {0: [20, 21], 1: [20]})
    queries = begin()
    add_partitions(direct.bootstrap, topic, 5)
    direct.write(topic, {2: [30], 3: [30], 4: [30, 31]})
    added = {} if choice == "assign" else {3: 1, 4: 2}
    expect(queries, {0: 12, 1: 6, 2: 2, **added})


MISMATCHES = {
    "specific timestamps with non-matching starting offset": {"startingOffsetsByTimestamp": "TIMES"},
    "global timestamp per topic with non-matching starting offset": {"startingTimestamp": str(START + 99_000)},
}


def unmatched() -> Iterator[object]:
    for choice in ("subscribing topic by name", "subscribing topic by pattern"):
        for start in MISMATCHES:
            name = f"{choice} from {start}"
            yield pytest.param(choice, start, id=name, marks=pytest.mark.spark_case(SUITE, name))


@pytest.mark.parametrize(("choice", "start"), list(unmatched()))
def test_a_time_that_no_record_has_reached_is_refused(
    direct: DirectKafka, new_topic: NewTopic, choice: str, start: str
) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(10), 1: range(5)})
    times = json.dumps({topic: {"0": START + 2_000, "1": START + 99_000}})
    options = {**CHOICES[choice], **MISMATCHES[start]}
    given = {name: text.replace("TOPIC", topic).replace("TIMES", times) for name, text in options.items()}
    with pytest.raises(OptionError, match=f"no record is that new in .*{topic}-1"):
        direct.run(direct.source(**given), "q")


def test_a_query_that_found_nothing_yet_still_knows_where_it_began(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(3)})
    source = streams.source(subscribe=topic, startingOffsets="latest")
    streams.run(source, "late")
    assert streams.data("late") == []
    streams.write(topic, {0: [10], 1: [11]})
    streams.run(source, "late")
    assert [(row.partition, row.offset) for row in streams.data("late")] == [(0, 3), (1, 0)]
