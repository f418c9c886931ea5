"""Reading ranges while records, connections, brokers and topics go away."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pyspark_aligned_kafka.reading.connection import BrokerConnection
from pyspark_aligned_kafka.reading.kept_sessions import leased
from services.kafka import Kafka, kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic, delete_records, delete_topic, limit_reading
from services.local_server import free_ports
from tests.integration.kafka_reads import SMALL_FETCHES, number_topic, offsets, reader
from watermark_source.errors import (
    DataLossError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
)
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service
NewTopic = Callable[..., str]


def test_deleted_records_are_an_error_or_a_logged_skip(
    kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = number_topic(kafka, new_topic(2), 1000, batch_records=100)
    delete_records(kafka.bootstrap, wanted.split.log, {0: 650})
    with pytest.raises(
        DataLossError,
        match=r"offsets 0 to 650 \(exclusive\) of the range 0 to 1000 are gone; the log now begins at 650",
    ):
        list(reader(kafka.bootstrap).read([wanted]))
    lenient = reader(kafka.bootstrap, ("offset",), fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        assert offsets(lenient.read([wanted])) == list(range(650, 1000))
    assert "650 offsets are skipped because failOnDataLoss is false" in caplog.text
    assert offsets(lenient.read([wanted._replace(end=600)])) == []


def test_a_log_shorter_than_planned_is_data_loss(
    kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = number_topic(kafka, new_topic(), 100)
    for start in (50, 100, 150):
        longer = wanted._replace(start=start, end=200)
        lost_from = max(start, 100)
        with pytest.raises(DataLossError, match=f"offsets {lost_from} to 200 .* truncated, or the topic was deleted"):
            list(reader(kafka.bootstrap).read([longer]))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            lenient = reader(kafka.bootstrap, ("offset",), fail_on_data_loss=False)
            assert offsets(lenient.read([longer])) == list(range(start, 100))
        assert f"{200 - lost_from} offsets are skipped" in caplog.text


def test_time_for_which_a_quota_lets_a_read_wait_costs_no_patience(
    kafka: Kafka, new_topic: NewTopic, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker counts eleven seconds: what they allow comes at once, and what is beyond that much later."""
    rate, value_size, count = 100_000, 1_000, 1_500
    wanted = number_topic(kafka, new_topic(), count, value_size=value_size, batch_records=20)
    name = {"kafka.client.id": topic_name}
    impatient = reader(kafka.bootstrap, ("offset",), poll_timeout_ms=1_000, **SMALL_FETCHES, **name)
    limit_reading(kafka.bootstrap, topic_name, rate)
    waited = 0.0
    try:
        # A broker accepts a quota before it applies it, so the first reads may be free; their bytes count.
        while waited <= 2:
            caplog.clear()
            begun = time.monotonic()
            with caplog.at_level(logging.WARNING):
                assert offsets(impatient.read([wanted])) == list(range(count))
            waited = time.monotonic() - begun
    finally:
        limit_reading(kafka.bootstrap, topic_name, None)
    # Once a minute.
    assert 1 <= caplog.text.count("a quota of this user or client is used up") <= 1 + waited / 60


def test_a_topic_that_does_not_exist_is_named(kafka: Kafka, topic_name: str) -> None:
    wanted = [SplitRange(Split(topic_name, 0), 0, 5)]
    with pytest.raises(UnknownSplitError, match=f"{topic_name}-0 does not exist"):
        list(reader(kafka.bootstrap).read(wanted))
    assert list(reader(kafka.bootstrap, fail_on_data_loss=False).read(wanted)) == []


def test_a_topic_deleted_while_it_is_read_ends_the_read(kafka: Kafka, new_topic: NewTopic) -> None:
    wanted = number_topic(kafka, new_topic(), 500_000)
    begun = reader(kafka.bootstrap, ("offset",)).read([wanted])
    next(begun)
    delete_topic(kafka.bootstrap, wanted.split.log)
    with pytest.raises(SourceError, match=f"{wanted.split}|{wanted.split.log}"):
        list(begun)


def test_a_port_without_a_listener_is_unreachable_within_the_time_limit() -> None:
    ours = reader(f"127.0.0.1:{free_ports(1)[0]}", poll_timeout_ms=1500)
    begun = time.monotonic()
    with pytest.raises(UnreachableError):
        list(ours.read([SplitRange(Split("t", 0), 0, 5)]))
    assert time.monotonic() - begun < 60


def test_a_killed_connection_is_reopened_at_the_right_position(kafka: Kafka, new_topic: NewTopic) -> None:
    wanted = number_topic(kafka, new_topic(), 300_000)
    taken: list[socket.socket] = []
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        init = BrokerConnection.__init__
        patch.setattr(
            BrokerConnection,
            "__init__",
            lambda self, *taking, **named: (taken.append(taking[0]), init(self, *taking, **named))[1],
        )
        for i, made in enumerate(reader(kafka.bootstrap, ("offset",), **SMALL_FETCHES).read([wanted])):
            seen += made.columns[0].to_pylist()
            if i in (2, 12):
                taken[-1].shutdown(socket.SHUT_RDWR)
    assert seen == list(range(300_000))
    assert len(taken) == 3


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalKafka]:
    with kafka_cluster(1, jvm=FAST_START) as broker:
        create_topic(broker.bootstrap, "t", 2)
        for partition in range(2):
            number_topic(broker, "t", 200_000, partition)
        yield broker


WHOLE = [SplitRange(Split("t", partition), 0, 200_000) for partition in range(2)]


def test_a_broker_that_stops_answering_ends_the_read_within_the_time_limit(own_broker: LocalKafka) -> None:
    begun = reader(own_broker.bootstrap, ("offset",), poll_timeout_ms=3000, **SMALL_FETCHES).read(WHOLE)
    next(begun)
    own_broker.pause(1)
    at = time.monotonic()
    try:
        with pytest.raises((ResponseTimeoutError, UnreachableError)):
            list(begun)
    finally:
        own_broker.resume(1)
    assert time.monotonic() - at < 60


def test_a_connection_that_owes_an_answer_to_a_question_given_up_is_not_read_from(own_broker: LocalKafka) -> None:
    ours = reader(own_broker.bootstrap, ("offset",))
    with leased(ours.client, fresh=True) as session:
        for _ in ("by a bootstrap server", "by the broker that it named"):
            session.refresh({"t"}, 60_000)
        own_broker.pause(1)
        # Not sooner than the socket is asked for: the answer would be read before.
        resumed = threading.Timer(3, own_broker.resume, [1])
        try:
            with pytest.raises(ResponseTimeoutError):
                session.refresh({"t"}, 500)
        finally:
            resumed.start()
    assert offsets(ours.read(WHOLE[:1])) == list(range(200_000))
    resumed.join()


def test_a_broker_restart_in_the_middle_of_a_read_loses_and_doubles_nothing(own_broker: LocalKafka) -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}
    restart = threading.Thread(target=lambda: (own_broker.kill(), own_broker.start()))
    for i, made in enumerate(reader(own_broker.bootstrap, ("offset",), **SMALL_FETCHES).read(WHOLE)):
        seen[made.split.number] += made.columns[0].to_pylist()
        if i == 3:
            restart.start()
            time.sleep(1)
    restart.join()
    assert seen == {0: list(range(200_000)), 1: list(range(200_000))}
