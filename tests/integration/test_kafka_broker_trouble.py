"""The driver's look-ups while brokers die, freeze, restart and hand over leadership."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyspark_aligned_kafka.source import KafkaSource
from services.broker import FAST_START, LocalKafka
from services.kafka import kafka_cluster
from services.topics import create_topic
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.planning.split import Split
from watermark_source.spark.connector import Connector

pytestmark = pytest.mark.service
SPLITS = {Split("t", number) for number in range(6)}
ENDS = dict.fromkeys(SPLITS, 0)


@pytest.fixture(scope="module")
def one_broker() -> Iterator[LocalKafka]:
    with kafka_cluster(1, config={"connections.max.idle.ms": "1000"}, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 6)
        yield cluster


def connect(cluster: LocalKafka, **limits: str) -> Connector:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
    connector = KafkaSource.of({**given, **{f"kafka.{name.replace('_', '.')}": v for name, v in limits.items()}}).open()
    assert connector.discovery.discover() == SPLITS
    assert connector.bounds.end_positions(SPLITS) == ENDS
    return connector


@contextlib.contextmanager
def after(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_connection_that_the_broker_closed_while_nobody_asked_is_made_again(one_broker: LocalKafka) -> None:
    bounds = connect(one_broker).bounds
    time.sleep(2.5)
    assert bounds.end_positions(SPLITS) == ENDS


def test_a_broker_that_comes_back_in_time_is_waited_for(one_broker: LocalKafka) -> None:
    bounds = connect(one_broker).bounds
    one_broker.kill()
    with after(1.0, one_broker.start):
        assert bounds.end_positions(SPLITS) == ENDS


def test_a_broker_that_stays_away_is_an_error_within_the_limit(one_broker: LocalKafka) -> None:
    bounds = connect(one_broker, default_api_timeout_ms="2000").bounds
    one_broker.kill()
    try:
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match="within 2 s"):
            bounds.end_positions(SPLITS)
        assert time.monotonic() - begun < 4
    finally:
        one_broker.start()
    assert bounds.end_positions(SPLITS) == ENDS


def test_a_broker_that_freezes_is_an_error_within_the_limit(one_broker: LocalKafka) -> None:
    bounds = connect(one_broker, default_api_timeout_ms="2000").bounds
    one_broker.pause()
    try:
        begun = time.monotonic()
        with pytest.raises(ResponseTimeoutError):
            bounds.end_positions(SPLITS)
        assert time.monotonic() - begun < 4
    finally:
        one_broker.resume()
    assert bounds.end_positions(SPLITS) == ENDS


def test_leaders_that_move_are_followed() -> None:
    with kafka_cluster(3, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 6, replicas=3)
        connector = connect(cluster)
        cluster.kill(2)
        assert connector.bounds.end_positions(SPLITS) == ENDS
        assert connector.time_index is not None
        assert connector.time_index.newest(SPLITS) == dict.fromkeys(SPLITS)
        cluster.start(2)
        cluster.kill(1)
        assert connector.bounds.end_positions(SPLITS) == ENDS
