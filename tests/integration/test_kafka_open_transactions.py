"""A log whose last rows are in an open transaction is not quiet: called as Spark's runner process calls the source."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from kafka import KafkaProducer

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from tests.integration.kafka_streams import write
from tests.spark.queries import START
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.window_facts import QueryAt
from watermark_source.spark.driver import observer
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.status_model.status_json import parse_report

pytestmark = pytest.mark.service


Condition = Callable[..., object]


class Reading:
    """A source of two partitions, driven as Spark drives it."""

    def __init__(self, kafka: Kafka, topic: str, **options: str) -> None:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            **(options or {"idleTimeout": "300 ms"}),
        }
        self.topic = topic
        self.reader = cast(AlignedStreamReader, DefaultSource(given).streamReader(DefaultSource(given).schema()))
        self.offset: Mapping[str, Any] = self.reader.initialOffset()

    def until(self, condition: Condition) -> None:
        """Continue until the condition holds for the fields of both partitions."""
        deadline = time.monotonic() + 120
        while not condition(*self.offset["splits"][self.topic].values()):
            assert time.monotonic() < deadline, self.offset
            self.step()

    def step(self) -> None:
        """Plan, and read the batch if there is one."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end != self.offset:
            for pack in self.reader.partitions(dict(self.offset), dict(end)):
                list(self.reader.read(pack))
        self.offset = end


def test_an_idle_split_whose_new_rows_are_in_an_open_transaction_is_waited_for(
    kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    write(kafka.bootstrap, topic, {0: [100], 1: [50]})
    reading = Reading(kafka, topic)
    reading.until(lambda first, second: second[3:4] == ["i"] and first[3:4] == ["i"])
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1, timestamp_ms=START + 500_000).get(30)
        write(kafka.bootstrap, topic, {0: [800]})
        reading.until(lambda first, _: first[0] == 2 and first[1] == 0)
        assert reading.offset["wm"] == START + 99_999
        assert reading.offset["splits"][topic]["1"][3:4] != ["i"]
        producer.commit_transaction()
    reading.until(lambda _, second: second[0] - second[1] > 0 or second[0] > 1)
    assert reading.offset["wm"] <= START + 499_999
    reading.until(lambda _, second: second[3:4] == ["i"])
    assert reading.offset["wm"] == START + 799_999
    reading.reader.stop()


def test_a_split_with_an_open_transaction_is_not_idle(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    reading = Reading(kafka, topic)
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1, timestamp_ms=START + 50_000).get(30)
        write(kafka.bootstrap, topic, {0: [100]})
        reading.until(lambda first, _: first[3:4] == ["i"])
        # The second has had nothing to read for longer.
        assert reading.offset["splits"][topic]["1"][3:4] != ["i"]
        assert "wm" not in reading.offset
        producer.commit_transaction()
    reading.until(lambda _, second: second[0] - second[1] > 0)
    assert reading.offset["wm"] == START + 49_999
    reading.until(lambda _, second: second[3:4] == ["i"])
    assert reading.offset["wm"] == START + 99_999
    reading.reader.stop()


def test_a_topic_is_read_to_its_end_with_what_was_committed_behind_an_open_transaction(
    kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    """A reader of committed data does not see it before that transaction is over: the topic seems to end earlier."""
    topic = new_topic(1)
    write(kafka.bootstrap, topic, {0: [1]})
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0, timestamp_ms=START + 2_000).get(30)
        write(kafka.bootstrap, topic, {0: [3]})
        reading = Reading(kafka, topic, whenCaughtUp="watermark")
        reading.until(lambda only: only[0] == 1)
        for _ in range(5):
            reading.step()
        assert reading.offset["catch_up"] == {"ends": {topic: {"0": 3}}}
        assert "wm" not in reading.offset
        producer.commit_transaction()
    reading.until(lambda _: "wm" in reading.offset)
    assert reading.offset["catch_up"] == {"again": True}
    assert reading.offset["splits"][topic]["0"][0] >= 3
    reading.reader.stop()


def test_an_open_transaction_that_holds_the_watermark_is_named_also_without_an_idle_timeout(
    kafka: Kafka, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_LOOK_AGAIN", 100)
    topic = new_topic(2)
    write(kafka.bootstrap, topic, {0: [0, 130], 1: [0]})
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1, timestamp_ms=START + 130_000).get(30)
        reading = Reading(kafka, topic, failOnDataLoss="true")

        def found() -> str:
            status = parse_report(reading.reader.reportLatestOffset())
            if status is None:
                return ""
            at = QueryAt(sources=(status,), batch=0, applied=None)
            return open_window(at, START + 60_000).sentence

        is_named = f"{topic}-1 is 1 min behind, and its next records are in a transaction that is open"
        reading.until(lambda *_: is_named in found())
        assert "idleTimeout" not in found()
        producer.abort_transaction()
    reading.until(lambda *_: "a transaction that is open" not in found())
    reading.reader.stop()
