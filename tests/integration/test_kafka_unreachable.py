"""Brokers that no one reaches: an error within the limit that states where, and why each could not be asked."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.protocol.metadata import MetadataResponse

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.group_commits import ConsumerGroup
from pyspark_aligned_kafka.cluster.metadata import metadata_request
from pyspark_aligned_kafka.cluster.retry import Deadline
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.reading.connection import ResponseMemory
from pyspark_aligned_kafka.reading.kept_sessions import Brokers
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import Kafka
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.planning.split import Split

Broker = MetadataResponse.MetadataResponseBroker
LIMIT = {"kafka.default.api.timeout.ms": "2000"}


def discovered(bootstrap: str, **given: str) -> set[Split]:
    source = KafkaSource(kafka_options.parse({"kafka.bootstrap.servers": bootstrap, "subscribe": "t", **given}))
    return set(source.open().discovery.discover())


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield server.getsockname()[1]


@contextlib.contextmanager
def port_that_hangs_up(seconds: float) -> Iterator[int]:
    """Hangs up on anyone who connects, and accepts without a word some seconds after the first."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                server.accept()[0].close()
                end = time.monotonic() + seconds
                while (left := end - time.monotonic()) > 0:
                    server.settimeout(left)
                    with contextlib.suppress(TimeoutError):
                        server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_no_one_listens_is_an_error_within_the_limit() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(
            UnreachableError,
            match=rf"within 2 s \(kafka.default.api.timeout.ms\); .*bootstrap.servers is {address}.*ECONNREFUSED",
        ):
            discovered(address, **LIMIT)
    assert time.monotonic() - begun < 60


def test_a_limit_that_the_user_has_not_set_is_not_identified_by_the_name_of_one_that_is() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        settings = parse_settings({"kafka.bootstrap.servers": address})
        message = r"could be reached within 1\.5 s; kafka.bootstrap.servers is"
        with contextlib.closing(Brokers(settings)) as brokers, pytest.raises(UnreachableError, match=message):
            brokers.metadata({"t"}, 1_500)
        with (
            contextlib.closing(ConsumerGroup(settings, "g", "")) as group,
            pytest.raises(UnreachableError, match=message),
        ):
            group.commit({Split("t", 0): 1}, 1_500)


def test_a_host_without_an_address_is_an_error_that_names_it() -> None:
    with pytest.raises(UnreachableError, match=r"no-such-host.invalid:9092: DNS"):
        discovered("no-such-host.invalid:9092", **LIMIT)


@pytest.mark.parametrize(("protocol", "kind"), [("PLAINTEXT", ResponseTimeoutError), ("SSL", UnreachableError)])
def test_a_port_that_never_answers_is_an_error_within_the_limit(protocol: str, kind: type[Exception]) -> None:
    with silent_port() as port:
        begun = time.monotonic()
        with pytest.raises(kind, match=f"127.0.0.1:{port}"):
            discovered(f"127.0.0.1:{port}", **{"kafka.security.protocol": protocol}, **LIMIT)
    assert time.monotonic() - begun < 60


def test_a_last_try_that_had_no_time_does_not_hide_why_those_before_it_failed() -> None:
    often = {"kafka.retry.backoff.max.ms": "100", "kafka.reconnect.backoff.max.ms": "50"}
    with (
        port_that_hangs_up(seconds=1.5) as port,
        pytest.raises(UnreachableError, match=f"127.0.0.1:{port}: (socket disconnected|.*reset by peer)"),
    ):
        discovered(f"127.0.0.1:{port}", **often, **LIMIT)


def test_dead_bootstrap_servers_do_no_harm_beside_a_living_one(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    with silent_port() as first, silent_port() as second, silent_port() as third:
        dead = ",".join(f"127.0.0.1:{port}" for port in (first, second, third))
        given = {"subscribe": topic, "kafka.socket.connection.setup.timeout.ms": "300"}
        assert discovered(f"{dead},{kafka.bootstrap}", **given) == {Split(topic, number) for number in range(3)}


def test_when_all_brokers_have_moved_the_bootstrap_servers_are_asked_after_two_of_them(kafka: Kafka) -> None:
    brokers = Brokers(parse_settings({"kafka.bootstrap.servers": kafka.bootstrap}))
    with contextlib.closing(brokers), contextlib.ExitStack() as open_ports:
        ports = [open_ports.enter_context(silent_port()) for _ in range(10)]
        of_before = [Broker(version=9, node_id=port, host="127.0.0.1", port=port) for port in ports]

        async def moved(deadline: Deadline) -> Any:
            brokers.learn_brokers(MetadataResponse(version=9, brokers=of_before, topics=[]))
            return await brokers.request_any(lambda: metadata_request([]), deadline)

        begun = time.monotonic()
        answer = brokers.run(moved)
        assert [broker.port for broker in answer.brokers] == [int(kafka.bootstrap.rpartition(":")[2])]
        assert time.monotonic() - begun < 60


def test_a_connection_that_is_lost_before_it_is_used_is_made_again(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []
    connected = Brokers._connect

    async def lost_once(brokers: Brokers, node: int, limit_ms: float) -> Any:
        connection = await connected(brokers, node, limit_ms)
        if not lost:
            lost.append(connection)
            connection.transport.abort(KafkaConnectionError("reset by the network"))
            assert connection.transport is None
        return connection

    with contextlib.closing(Brokers(parse_settings({"kafka.bootstrap.servers": kafka.bootstrap}))) as brokers:
        brokers.metadata([], 60_000)
        monkeypatch.setattr(Brokers, "_connect", lost_once)
        brokers.connection_to(1, 60_000, ResponseMemory()).close()
    assert len(lost) == 1
