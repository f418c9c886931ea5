"""The driver's look-ups while brokers die, freeze, restart and hand over leadership."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.leaders import Leaders
from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from pyspark_aligned_kafka.source import KafkaSource
from services.broker import FAST_START, LocalKafka
from services.kafka import kafka_cluster
from services.topics import create_topic
from services.wire import BrokerConnection
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import Connector, Ends, LogBounds

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


def ask_again_and_again(bounds: LogBounds, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert bounds.current_ends(SPLITS).unknown
        time.sleep(0.1)


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


@pytest.mark.parametrize(
    ("leave", "come_back", "error"),
    [
        (LocalKafka.kill, LocalKafka.start, UnreachableError),
        (LocalKafka.pause, LocalKafka.resume, ResponseTimeoutError),
    ],
    ids=["killed", "frozen"],
)
def test_an_only_broker_that_stays_away_is_its_own_error_after_the_limit(
    one_broker: LocalKafka,
    leave: Callable[[LocalKafka], None],
    come_back: Callable[[LocalKafka], None],
    error: type[Exception],
) -> None:
    bounds = connect(one_broker, default_api_timeout_ms="5000").bounds
    leave(one_broker)
    begun = time.monotonic()
    try:
        with pytest.raises(error, match="within 5 s"):
            ask_again_and_again(bounds, seconds=60)
        assert 4.9 < time.monotonic() - begun < 15
    finally:
        come_back(one_broker)
    while bounds.current_ends(SPLITS) != Ends(ENDS):
        assert time.monotonic() - begun < 60


def test_discovery_waits_for_a_frozen_broker_only_when_its_last_answer_is_too_old(one_broker: LocalKafka) -> None:
    discovery = connect(one_broker, default_api_timeout_ms="1000", metadata_max_age_ms="200").discovery
    one_broker.pause()
    try:
        for _ in range(8):
            time.sleep(0.2)
            begun = time.monotonic()
            assert discovery.discover() == SPLITS
            assert time.monotonic() - begun < 0.15
        time.sleep(2.5)
        with pytest.raises(ResponseTimeoutError):
            discovery.discover()
    finally:
        one_broker.resume()
    assert discovery.discover() == SPLITS


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[LocalKafka]:
    with kafka_cluster(3, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t", 6)
        yield cluster


def led_by(cluster: LocalKafka, node: int) -> set[Split]:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    with BrokerConnection(host, int(port)) as connection:
        return {Split(each.topic, each.partition) for each in connection.cluster("t").leaders if each.leader == node}


def test_a_frozen_broker_keeps_the_ends_of_others_waiting_once(three_brokers: LocalKafka) -> None:
    bounds, silent = connect(three_brokers).bounds, led_by(three_brokers, 3)
    assert bounds.current_ends(SPLITS) == Ends(ENDS)
    others = dict.fromkeys(SPLITS - silent, 0)
    three_brokers.pause(3)
    try:
        for longest in (4.0, 0.5, 0.5):
            begun = time.monotonic()
            assert bounds.current_ends(SPLITS) == Ends(others, dict.fromkeys(silent))
            assert time.monotonic() - begun < longest
    finally:
        three_brokers.resume(3)
    deadline = time.monotonic() + 10
    while bounds.current_ends(SPLITS) != Ends(ENDS):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_broker_that_answers_late_each_time_is_no_error(three_brokers: LocalKafka) -> None:
    """However long all its answers take together; each is told while the next one is waited for."""
    bounds, silent = connect(three_brokers, default_api_timeout_ms="6000").bounds, led_by(three_brokers, 3)
    for late in (None, 0, 0):
        three_brokers.pause(3)
        try:
            assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent, late)
        finally:
            three_brokers.resume(3)
        # Answers come in the order of the questions: the late one is read before this one.
        assert bounds.end_positions(silent) == dict.fromkeys(silent, 0)


def test_a_broker_that_stays_frozen_is_an_error_after_the_limit_and_not_before(three_brokers: LocalKafka) -> None:
    bounds = connect(three_brokers, default_api_timeout_ms="6000").bounds
    three_brokers.pause(3)
    begun = time.monotonic()
    try:
        with pytest.raises(ResponseTimeoutError, match=r"no offset of t-\d.* within 6 s"):
            ask_again_and_again(bounds, seconds=60)
    finally:
        three_brokers.resume(3)
    assert 5.9 < time.monotonic() - begun < 20


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


def test_a_leader_that_another_connection_has_found_is_asked_by_one_that_does_not_know_its_broker(
    three_brokers: LocalKafka,
) -> None:
    create_topic(three_brokers.bootstrap, "found-by-another", 6, replicas=1)
    settings = KafkaSource.of({"kafka.bootstrap.servers": three_brokers.bootstrap, "subscribe": "x"}).options.client
    leaders = Leaders()
    first, second = (KafkaAdmin(settings, leaders=leaders) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        splits = {Split("found-by-another", number) for number in range(6)}
        first.topics(["found-by-another"])
        assert not leaders.unknown(splits)
        assert second.batch_headers(dict.fromkeys(splits, 0)) == {}
        assert second.list_offsets_in_time(dict.fromkeys(splits, LATEST)).found.keys() == splits
