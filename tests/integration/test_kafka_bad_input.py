"""Bad input: at load() or start one error of our own tree with what was seen, what is accepted, and an example."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_aligned_kafka import DefaultSource
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import Where, kafka_service
from services.kafka_local import FAST_START
from services.kafka_wire import BrokerConnection
from services.local_server import free_ports
from services.wait_until import wait_until
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from watermark_source import follow_watermark
from watermark_source.errors import OptionError, UnreachableError, UsageError, WatermarkSourceError
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]

AT_ONCE = 30.0
"""Seconds for a refusal that needs no broker, on a busy machine."""
LIMIT = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1500"}

REFUSED_AT_LOAD: dict[str, tuple[dict[str, str], str]] = {
    "a misspelled option": (
        {"maxOutOfOrdernes": "5 seconds"},
        "UnknownOptionError.*maxOutOfOrdernes.*maxOutOfOrderness",
    ),
    "a misspelled setting": ({"kafka.fetch.max.byte": "1"}, "UnknownOptionError.*fetch.max.byte.*fetch.max.bytes"),
    "a duration without a unit": (
        {"maxOutOfOrderness": "5"},
        'OptionError.*maxOutOfOrderness = "5".*must be.*for example 5 seconds',
    ),
    "a negative duration": ({"idleTimeout": "-1 second"}, 'idleTimeout = "-1 second".*for example 30 seconds'),
    "a duration of months": ({"alignmentMaxDrift": "1 month", "alignmentGroup": "g"}, 'alignmentMaxDrift = "1 month"'),
    "a word that is none of the choices": (
        {"watermarkStrategy": "best"},
        r'watermarkStrategy = "best".*must be bounded, monotonous, percentile, .*, lookahead, announced or none',
    ),
    "a number that is none": ({"maxOffsetsPerTrigger": "many"}, 'maxOffsetsPerTrigger = "many".*for example 1000000'),
    "a number too small": ({"maxOffsetsPerTrigger": "0"}, 'maxOffsetsPerTrigger = "0".*at least 1'),
    "a flag that is none": ({"failOnDataLoss": "maybe"}, 'failOnDataLoss = "maybe".*true or false'),
    "JSON that is none": (
        {"startingOffsets": '{"t":{"0":}}'},
        r"startingOffsets = .*JSON object of offsets.*for example",
    ),
    "JSON of the wrong shape": ({"startingOffsets": '{"t":5}'}, "startingOffsets = .*for example"),
    "an offset that is none": ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets = .*t-0 has -3"),
    "a timestamp that is none": ({"startingTimestamp": "yesterday"}, 'startingTimestamp = "yesterday".*milliseconds'),
    "two ways to choose": ({"subscribePattern": "t.*"}, "subscribePattern.*excludes subscribe"),
    "a drift without a group": (
        {"alignmentMaxDrift": "1 minute"},
        "alignmentGroup.*is needed because alignmentMaxDrift",
    ),
    "a column that does not exist": ({"columns": "value,wert"}, 'columns = "value,wert".*"wert" is none of them'),
    "a setting that would break reading": ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
}


def load(given: Mapping[str, str]) -> None:
    """As Spark does it in ``load()``: only the schema is asked for."""
    DefaultSource(dict(given)).schema()


@pytest.mark.parametrize("case", REFUSED_AT_LOAD)
def test_what_cannot_work_is_refused_at_load_without_asking_the_broker(case: str) -> None:
    given, expected = REFUSED_AT_LOAD[case]
    with pytest.raises(WatermarkSourceError) as caught:
        load({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **given})
    assert re.search(f"(?si){expected}", message_of(caught)), message_of(caught)


def test_load_says_what_the_source_says(spark: SparkSession) -> None:
    given, expected = REFUSED_AT_LOAD["a misspelled option"]
    reader = spark.readStream.format("aligned-kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    begun = time.monotonic()
    with pytest.raises(PySparkException, match=f"(?si){expected}"):
        reader.options(subscribe="t", **given).load()
    assert time.monotonic() - begun < AT_ONCE


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("subscribe", "one of subscribe, subscribePattern and assign"), ("kafka.bootstrap.servers", "bootstrap.servers")],
)
def test_what_is_needed_and_missing_is_named_at_load(missing: str, expected: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    del given[missing]
    with pytest.raises(OptionError, match=f"(?s){expected}.*for example"):
        load(given)


def test_a_password_is_in_no_error() -> None:
    secret = {
        "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="hush-hush";',
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "NONSENSE",
    }
    with pytest.raises(WatermarkSourceError) as caught:
        load({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **secret})
    assert "NONSENSE" in message_of(caught)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hush-hush" not in shown


def message_of(caught: pytest.ExceptionInfo[WatermarkSourceError]) -> str:
    """Return what an error states, and its class, as Spark shows it."""
    return f"{type(caught.value).__name__}: {caught.value}"


def refused_at_start(direct: DirectKafka, name: str, **options: object) -> str:
    """Start a query that must be refused; return what it states."""
    begun = time.monotonic()
    with pytest.raises(WatermarkSourceError) as caught:
        direct.run(direct.source(**options), name)
    assert time.monotonic() - begun < AT_ONCE
    return message_of(caught)


def test_a_user_schema_is_refused_at_start_with_both_schemas(streams: KafkaStreams, new_topic: NewTopic) -> None:
    reader = streams.spark.readStream.format("aligned-kafka").schema("value STRING").option("subscribe", new_topic())
    source = reader.option("kafka.bootstrap.servers", streams.bootstrap).load()
    # Spark asks no one about a schema the user gave, so load() cannot know.
    with pytest.raises(
        PySparkException, match=r"(?s)SchemaError.*seen struct<value:string>.*struct<key:binary"
    ) as caught:
        streams.run(source, "q")
    # Nothing is shown after it that would hide it.
    assert "UnboundLocalError" not in str(caught.value)


START_CASES: dict[str, tuple[dict[str, str], str]] = {
    # load() does not know yet whether it is for a stream or for a batch.
    "an end for a stream": (
        {"subscribe": "TOPIC", "endingOffsets": "latest"},
        "OptionError: option endingOffsets = .*not supported in a stream.*AvailableNow",
    ),
    "a topic that does not exist": ({"subscribe": "TOPIC,nowhere"}, "UnknownSplitError: topic nowhere does not exist"),
    "partitions that do not exist": (
        {"assign": '{"TOPIC":[7,8]}'},
        "UnknownSplitError: partition TOPIC-7, TOPIC-8 does not exist",
    ),
    "offsets that miss a partition": (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC":{"0":0,"5":0}}'},
        r"StartMismatchError: \[KAFKA_\w+_MATCH_ASSIGNED\] option startingOff.*does not list TOPIC-1 and lists TOPIC-5",
    ),
    "a time no record has": (
        {"subscribe": "TOPIC", "startingTimestamp": "9999999999999"},
        "OptionError: option startingTimestamp = .*no record is that new in TOPIC-0.*Strategy = .latest",
    ),
}


@pytest.mark.parametrize("case", START_CASES)
def test_what_the_broker_does_not_have_is_refused_at_start(direct: DirectKafka, new_topic: NewTopic, case: str) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: [0]})
    given, expected = START_CASES[case]
    message = refused_at_start(direct, "q", **{n: v.replace("TOPIC", topic) for n, v in given.items()})
    assert re.search(expected.replace("TOPIC", topic), message), message


BROKEN_OFFSETS: dict[str, tuple[str, str]] = {
    "another shape": (
        '{"a":1}',
        "OffsetError: the checkpoint belongs to another source: its offset is .*'a': 1.*checkpointLocation",
    ),
    "a newer version": (
        '{"v":99,"name":"aligned-kafka","run":1,"source":"aligned-kafka","splits":{}}',
        "OffsetError: the checkpoint was written by a newer version.*99.*[Uu]pgrade",
    ),
    "another source": (
        '{"v":1,"name":"orders","run":1,"source":"aligned-kafka","splits":{}}',
        "OffsetError: the checkpoint belongs to another source: its name is .orders.*sourceName",
    ),
    "negative positions": (
        '{"v":1,"name":"aligned-kafka","run":1,"source":"aligned-kafka","splits":{"t":{"0":[-4,0]}}}',
        "OffsetError: the checkpoint's offset cannot be read: position of t-0 is -4",
    ),
}


@pytest.mark.parametrize("case", BROKEN_OFFSETS)
def test_a_broken_checkpoint_is_refused_at_start(direct: DirectKafka, new_topic: NewTopic, case: str) -> None:
    broken, expected = BROKEN_OFFSETS[case]
    direct.continue_from(json.loads(broken), "q")
    message = refused_at_start(direct, "q", subscribe=new_topic(1))
    assert re.search(expected, message), message


def test_an_offset_in_the_checkpoint_that_is_no_object_ends_the_query(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: [0]})
    streams.run(streams.source(subscribe=topic), "q")
    last = max(streams.committed("q"))
    log = streams.checkpoint("q") / "offsets" / str(last)
    lines = log.read_text().splitlines()
    for broken, expected in (
        ("{half an off", "OffsetError|JSON"), ("[1,2]", "OffsetError: the checkpoint's offset cannot be read"),
    ):  # fmt: skip
        log.write_text("\n".join([*lines[:2], broken]))
        (log.parent / f".{last}.crc").unlink(missing_ok=True)
        with pytest.raises(StreamingQueryException, match=expected):
            streams.run(streams.source(subscribe=topic), "q")


def test_a_broker_no_one_runs_is_an_error_within_its_limit(direct: DirectKafka) -> None:
    (port,) = free_ports(1)
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", **LIMIT}
    message = refused_at_start(direct, "q", subscribe="t", **given)
    assert re.search(rf"UnreachableError: .* within 2 s .*127\.0\.0\.1:{port}", message), message


def test_a_port_that_never_answers_is_an_error_within_its_limit(direct: DirectKafka) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}", **LIMIT}
        message = refused_at_start(direct, "q", subscribe="t", **given)
    assert re.search(r"(ResponseTimeoutError|UnreachableError): .*2 s", message), message


def test_a_port_of_another_server_is_an_error_within_its_limit(direct: DirectKafka) -> None:
    """It takes connections and sends something that is not Kafka's."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        stranger = threading.Thread(target=greet, args=[other], daemon=True)
        stranger.start()
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{other.getsockname()[1]}", **LIMIT}
        message = refused_at_start(direct, "q", subscribe="t", **given)
    assert re.search(r"(ResponseTimeoutError|UnreachableError): ", message), message


def greet(server: socket.socket) -> None:
    """Say hello to anyone who comes, until the server is closed."""
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].sendall(b"SSH-2.0-hello\r\n")


def test_an_error_names_its_class_once_and_first(streams: KafkaStreams) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        streams.run(streams.source(subscribe="nowhere"), "q")
    assert json.dumps(str(caught.value)).count("UnknownSplitError: topic nowhere") == 1


def test_several_sources_below_one_watermark_are_refused(streams: KafkaStreams) -> None:
    a, b = (streams.source(subscribe=topic) for topic in ("a", "b"))
    for several in (a.union(b), a.union(a), a.join(b.select("offset"), "offset")):
        with pytest.raises(UsageError, match=r"made of 2 sources.*follow_watermark\(a\)\.union"):
            follow_watermark(several)
    table = streams.spark.range(3).withColumnRenamed("id", "offset")
    follow_watermark(a).union(follow_watermark(b)).join(follow_watermark(a.join(table, "offset", "left")), "offset")


def test_a_broker_that_names_a_wrong_address_is_reported_with_it() -> None:
    (nowhere,) = free_ports(1)
    config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{nowhere}", "auto.create.topics.enable": "true"}
    with kafka_service(config=config, jvm=FAST_START, where=Where.LOCAL) as kafka:
        host, _, port = kafka.bootstrap.rpartition(":")
        with BrokerConnection(host, int(port)) as asked:
            wait_until(lambda: [each.leader for each in asked.cluster("t").leaders] == [1], 60, "a topic")
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "t", "kafkaConsumer.pollTimeoutMs": "2000"}
        source = KafkaSource(kafka_options.parse({**given, **LIMIT}))
        message = rf"broker 1 advertises the address 127\.0\.0\.1:{nowhere}: .*check advertised\.listeners"
        driver = source.open()
        with pytest.raises(UnreachableError, match=message):
            driver.starts.initial_positions(driver.discovery.discover())
        with pytest.raises(UnreachableError, match=message):
            list(source.range_reader.read([SplitRange(Split("t", 0), 0, 1)]))
