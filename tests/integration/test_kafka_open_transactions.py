"""A log whose last rows are in an open transaction is not quiet: called as Spark's runner process calls the source."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kafka import KafkaProducer

from pyspark_aligned_kafka.readers import schema_of, stream_reader
from services.kafka import Kafka
from tests.integration.kafka_streams import START, write

pytestmark = pytest.mark.service


def test_a_split_with_an_open_transaction_is_not_idle(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "idleTimeout": "300 ms",
    }
    reader = stream_reader(given, schema_of(given))
    offset: Mapping[str, Any] = reader.initialOffset()

    def until(condition: Callable[[list[Any], list[Any]], object]) -> None:
        """Go on until the condition holds for the fields of both partitions."""
        nonlocal offset
        deadline = time.monotonic() + 60
        while not condition(*offset["splits"][topic].values()):
            assert time.monotonic() < deadline, offset
            end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            for pack in reader.partitions(dict(offset), dict(end)) if end != offset else ():
                list(reader.read(pack))
            offset = end

    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=1, timestamp_ms=START + 50_000).get(30)
        write(kafka.bootstrap, topic, {0: [100]})
        until(lambda first, _: first[3:4] == ["i"])
        # The second has had nothing to read for longer.
        assert offset["splits"][topic]["1"][3:4] != ["i"]
        assert "wm" not in offset
        producer.commit_transaction()
    until(lambda _, second: second[0] - second[1] > 0)
    assert offset["wm"] == START + 49_999
    until(lambda _, second: second[3:4] == ["i"])
    assert offset["wm"] == START + 99_999
    reader.stop()
