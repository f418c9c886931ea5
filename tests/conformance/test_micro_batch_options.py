"""KafkaMicroBatchSourceSuite, options: what is refused and with which words, what is accepted, and stopping."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pyspark_aligned_kafka import DefaultSource
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source.errors import OptionError

NewTopic = Callable[..., str]

SUITE = "KafkaMicroBatchSourceSuite"
BAD: dict[str, tuple[dict[str, str], str]] = {
    "no choice": ({}, "one of subscribe, subscribePattern and assign is needed"),
    "two choices": ({"subscribe": "t", "subscribePattern": "hello"}, "excludes subscribe"),
    "assign without a value": ({"assign": ""}, "assign.*must be a JSON object"),
    "assign that is no JSON": ({"assign": "t-0"}, "assign.*must be a JSON object"),
    "subscribe without a value": ({"subscribe": ""}, "subscribe.*names no topic"),
    "subscribePattern without a value": ({"subscribePattern": ""}, "subscribePattern.*is empty"),
    "no servers": ({"subscribe": "t", "kafka.bootstrap.servers": ""}, "bootstrap.servers.*names no broker"),
    "an offset that is none": (
        {"subscribe": "t", "startingOffsets": '{"t":{"0":-7}}'},
        "t-0 has -7",
    ),
    "no partitions": ({"subscribe": "t", "minPartitions": "0"}, "minPartitions.*at least 1"),
    "no records": ({"subscribe": "t", "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition.*at least 1"),
    "a least beyond the most": (
        {"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        "minOffsetsPerTrigger.*must not be more than maxOffsetsPerTrigger",
    ),
}


def load(**options: str) -> None:
    DefaultSource({"kafka.bootstrap.servers": "127.0.0.1:1", **options}).schema()


@pytest.mark.spark_case(SUITE, "bad source options")
@pytest.mark.parametrize("case", BAD)
def test_bad_source_options(case: str) -> None:
    options, message = BAD[case]
    with pytest.raises(OptionError, match=message):
        load(**options)


@pytest.mark.spark_case(SUITE, "bad source options")
def test_a_stream_has_no_end(direct: DirectKafka) -> None:
    for name, text in {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t":{"0":0}}'}.items():
        with pytest.raises(OptionError, match=f"option {name} .*not supported in a stream"):
            direct.run(direct.source(subscribe="t", **{name: text}), name)


@pytest.mark.spark_case(SUITE, "unsupported kafka configs")
@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_unsupported_kafka_configs(name: str) -> None:
    # In any case: the setting is not smuggled in by its spelling.
    with pytest.raises(OptionError, match=f"option kafka.{name} .*not supported"):
        load(subscribe="t", **{f"KAFKA.{name.title()}": "any"})


@pytest.mark.spark_case(SUITE, "get offsets from case insensitive parameters")
@pytest.mark.spark_case(SUITE, "allow group.id prefix")
@pytest.mark.spark_case(SUITE, "allow group.id override")
@pytest.mark.spark_case("KafkaSourceProviderSuite", "micro-batch mode - options should be handled as case-insensitive")
def test_names_of_options_ignore_case_and_those_of_groups_change_nothing(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(9), 1: range(4)})
    reader = streams.spark.readStream.format("aligned-kafka")
    options = {
        "KAFKA.Bootstrap.SERVERS": streams.bootstrap, "SUBSCRIBE": topic, "STARTINGoffsets": "EARLIEST",
        "MAXoffsetsPERtrigger": "5", "includeHEADERS": "TRUE", "failONdataLOSS": "FALSE",
        "groupIdPrefix": "mine", "kafka.group.id": "ours",
    }  # fmt: skip
    frame = reader.options(**options).load()
    assert "headers" in frame.columns
    streams.run(frame, "q")
    assert len(streams.data("q")) == 13
    sizes = [sum(end - first for first, end in batch.values()) for batch in streams.batches("q")]
    assert 0 < max(sizes) <= 5


@pytest.mark.spark_case(SUITE, "cannot stop Kafka stream")
def test_a_stream_that_waits_for_records_stops(streams: KafkaStreams, new_topic: NewTopic) -> None:
    query = streams.start_file(streams.source(subscribe=new_topic(1)), "q")
    wait_for(lambda: query.lastProgress, query)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    stopping.join(30)
    assert not stopping.is_alive(), "the query did not stop"
