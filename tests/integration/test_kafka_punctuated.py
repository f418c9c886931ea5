"""Watermarks that records carry, on a real broker: only they move a partition's, and nothing else does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException

from services.kafka import Kafka
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START
from tests.unit.planning import generators
from watermark_source import follow_watermark
from watermark_source.errors import OffsetError, OptionError, SourceError
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.status_model.status_json import parse_progress

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
PUNCTUATED = {"watermarkStrategy": "punctuated", "watermarkColumn": "header:watermark"}


def produce(
    kafka: Kafka, topic: str, records: Sequence[tuple[int, bytes | None]], *, partition: int = 0, value: bytes = b"v"
) -> None:
    """Write records, each with its timestamp after ``START`` and what its header states, if it has one."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for at, mark in records:
        headers = [] if mark is None else [("watermark", mark)]
        producer.send(topic, value, partition=partition, timestamp_ms=START + at, headers=headers)
    producer.flush(60)
    producer.close()


def mark(at: int) -> bytes:
    return str(START + at).encode()


def watermark(status: SourceStatus) -> int | None:
    return None if status.watermark is None else status.watermark - START


def test_only_records_with_a_watermark_move_it_and_never_back(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    """As vector 19 has it, with a restart after each record: the next process reads the last range again."""
    topic = new_topic(1)
    source = direct.source(subscribe=topic, **PUNCTUATED)
    steps = [
        (2_000, mark(2_000), 2_000),
        (3_000, None, 2_000),
        (4_000, mark(4_000), 4_000),
        (2_500, mark(2_500), 4_000),
    ]
    for at, written, expected in steps:
        produce(kafka, topic, [(at, written)])
        assert watermark(direct.run(source, "q").status) == expected
    assert len(direct.data("q")) == len(steps)


def test_the_combined_watermark_waits_for_a_partition_whose_records_carry_none(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    source = direct.source(subscribe=topic, maxOffsetsPerTrigger=3, **PUNCTUATED)
    produce(kafka, topic, [(n, mark(n)) for n in range(20)])
    produce(kafka, topic, [(1_000_000 + n, None) for n in range(20)], partition=1)
    assert watermark(direct.run(source, "q").status) is None
    produce(kafka, topic, [(5, mark(7))], partition=1)
    assert watermark(direct.run(source, "q").status) == 7


def test_a_watermark_in_json_moves_and_null_or_nothing_does_not(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    options = {"watermarkStrategy": "punctuated", "watermarkColumn": "value:$.wm", "eventTimeFormat": "millis"}
    for value in ({"id": 1}, {"wm": None}, {"wm": START + 9}, {"other": {"wm": START + 50}}):
        produce(kafka, topic, [(0, None)], value=json.dumps(value).encode())
    source = direct.source(subscribe=topic, **options)
    assert watermark(direct.run(source, "q").status) == 9
    produce(kafka, topic, [(0, None)], value=b'{"wm":{}}')
    with pytest.raises(SourceError, match=f"topic {topic} partition 0 offset 4: no watermark at value"):
        direct.run(source, "q")


def test_a_strategy_of_the_users_own_gets_its_state_back_in_the_next_process(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    source = direct.source(subscribe=topic, watermarkStrategy=f"{generators.__name__}:ByParity")
    found = []
    for at in (1_000_000, 2_000_000, 1_500_000):
        for partition in (0, 1):
            produce(kafka, topic, [(at, None)], partition=partition)
        found.append(watermark(direct.run(source, "q").status))
    assert found == [None, 2_000_000 - generators.MINUTE, 2_000_000 - generators.MINUTE]
    renamed = direct.source(subscribe=topic, watermarkStrategy=f"{generators.__name__}:Backwards")
    with pytest.raises(OffsetError, match=r"has the watermark state of .*:ByParity, and .* formerly = "):
        direct.run(renamed, "q")
    renamed = direct.source(subscribe=topic, watermarkStrategy=f"{generators.__name__}:Renamed")
    assert watermark(direct.run(renamed, "q").status) == 2_000_000 - generators.MINUTE


def test_a_strategy_of_the_users_own_sees_each_row_once_though_its_reports_are_lost(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    own = {"watermarkStrategy": f"{generators.__name__}:RangesAndRows", "minPartitions": 3, "columns": "offset"}
    for rows in (7, 5):
        produce(kafka, topic, [(1_000_000, None)] * rows)
        # A process each, which reads again what the last one has read.
        query = direct.start(direct.source(subscribe=topic, **own), "q")
        assert query.step()
        query.stop()
    (last,) = direct.run(direct.source(subscribe=topic, **own), "q").kept.offsets[-1]["own"]["states"].values()
    assert last == {"0": {"ranges": 2, "rows": 12}}


def test_a_strategy_of_the_users_own_sees_silence(direct: DirectKafka, kafka: Kafka, new_topic: NewTopic) -> None:
    topic, begun = new_topic(1), time.time() * 1_000
    own = {"watermarkStrategy": f"{generators.__name__}:AMinuteOfSilence", "watermarkInterval": "200 milliseconds"}
    produce(kafka, topic, [(1_000_000, None)])
    query = direct.start(direct.source(subscribe=topic, **own), "q")
    query.run_until(lambda: query.kept.offsets and query.kept.offsets[-1].get("wm", 0) > begun - generators.MINUTE)
    assert query.kept.offsets[-1]["wm"] <= time.time() * 1_000 - generators.MINUTE
    query.stop()


def test_a_strategy_of_the_users_own_uses_the_heartbeats_of_records_and_without_them_a_bound(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic, name = new_topic(1), f"{generators.__name__}:LaterOfMarkAndBound"
    with pytest.raises(OptionError, match=f"watermarkColumn: is needed because watermarkStrategy is {name}: the class"):
        direct.run(direct.source(subscribe=topic, watermarkStrategy=name), "without")
    source = direct.source(subscribe=topic, watermarkStrategy=name, watermarkColumn="header:watermark")
    produce(kafka, topic, [(100_000, mark(99_000)), (100_500, None)])
    assert watermark(direct.run(source, "q").status) == 99_000
    produce(kafka, topic, [(200_000, None)])
    assert watermark(direct.run(source, "q").status) == 200_000 - generators.MINUTE


def test_what_is_no_moment_ends_the_query_and_a_watermark_of_2099_moves_nothing(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    source = streams.source(subscribe=topic, maxFutureSkew="10 minutes", **PUNCTUATED)
    frame = follow_watermark(source).select("offset")
    produce(kafka, topic, [(1, mark(1)), (2, b"2099-01-01T00:00:00Z"), (3, None)])
    query = streams.run(frame, "q")
    assert query.lastProgress is not None
    (status,) = parse_progress(query.lastProgress.json)
    assert (watermark(status), status.rows.future) == (1, 1)
    produce(kafka, topic, [(4, b"soon")])
    with pytest.raises(
        StreamingQueryException, match=f"topic {topic} partition 0 offset 3: no watermark at header:wate"
    ):
        streams.run(frame, "q")
