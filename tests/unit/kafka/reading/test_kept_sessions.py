"""What a worker process keeps between two reads, and the time limits it connects with."""

from __future__ import annotations

import pickle
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyspark_aligned_kafka.client.settings import ClientSettings, parse_settings
from pyspark_aligned_kafka.reading import kept_sessions as sessions
from pyspark_aligned_kafka.reading.connection import BrokerConnection, ResponseMemory
from pyspark_aligned_kafka.reading.kept_sessions import Brokers, Session, leased
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from watermark_source.planning.split import Split, SplitRange


def settings(**given: str) -> ClientSettings:
    chosen = {f"kafka.{name.replace('_', '.')}": text for name, text in given.items()}
    return parse_settings({"kafka.bootstrap.servers": "127.0.0.1:1", **chosen})


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    sessions._kept.clear()
    yield
    sessions._kept.clear()


class AskedToConnectError(Exception):
    """Ends a read where it would connect."""


class SessionWithoutBrokers:
    """A session that knows a leader and shows for how long it was asked to wait for a connection."""

    stale = False

    def node_of(self, split: Split) -> int:
        return 1

    @property
    def densities(self) -> dict[str, float]:
        return {}

    def connection(self, node: int, limit_ms: int) -> None:
        raise AskedToConnectError(limit_ms)

    def settle(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(("given", "limit_ms"), [({}, 10_000), ({"socket_connection_setup_timeout_ms": "300"}, 300)])
def test_a_task_waits_for_a_connection_as_long_as_the_user_says(given: dict[str, str], limit_ms: int) -> None:
    client = settings(**given)
    sessions._kept.give(pickle.dumps(client), SessionWithoutBrokers())  # type: ignore[arg-type]
    reader = KafkaRangeReader(client, ("value",), fail_on_data_loss=True, poll_timeout_ms=120_000)
    with pytest.raises(AskedToConnectError) as asked:
        list(reader.read([SplitRange(Split("t", 0), 0, 1)]))
    assert asked.value.args == (limit_ms,)


def test_a_session_serves_the_next_read_unless_it_was_idle_for_longer_than_the_user_says() -> None:
    usual, short = settings(), settings(connections_max_idle_ms="1")
    with leased(usual, fresh=False) as first:
        pass
    with leased(usual, fresh=False) as second:
        pass
    assert second is first
    with leased(short, fresh=False) as third:
        pass
    time.sleep(0.01)
    with leased(short, fresh=False) as fourth:
        pass
    assert fourth is not third


def test_a_retry_begins_with_a_new_session() -> None:
    with leased(settings(), fresh=False) as first:
        pass
    with leased(settings(), fresh=True) as second:
        pass
    assert second is not first


@pytest.fixture
def brokers_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """The other ends of the connections that sessions make, in the order in which they are made."""
    ends: list[socket.socket] = []

    def connection_to(_: Brokers, node: int, limit_ms: int, memory: ResponseMemory) -> BrokerConnection:
        ours, brokers = socket.socketpair()
        ends.append(brokers)
        return BrokerConnection(ours, memory)

    monkeypatch.setattr(Brokers, "connection_to", connection_to)
    yield ends
    for end in ends:
        end.close()


def test_a_connection_that_was_idle_for_too_long_is_made_anew_while_others_of_the_session_are_used(
    brokers_ends: list[socket.socket],
) -> None:
    with leased(settings(connections_max_idle_ms="60000"), fresh=True) as session:
        quiet, busy = session.connection(1, 1_000), session.connection(2, 1_000)
        quiet.used_at -= 59
        assert session.connection(1, 1_000) is quiet
        for connection in (quiet, busy):
            connection.used_at -= 120
        busy.send(b"fetch", 1.0)
        brokers_ends[1].sendall(struct.pack(">i", 5) + b"hello")
        busy.receive(5.0, 5.0)
        assert session.connection(2, 1_000) is busy
        assert session.connection(1, 1_000) is not quiet


def test_connections_of_a_session_receive_into_the_same_memory(brokers_ends: list[socket.socket]) -> None:
    session = Session(settings())
    received: list[Any] = []
    for node in (1, 2):
        connection = session.connection(node, 1_000)
        brokers_ends[-1].sendall(struct.pack(">i", 5) + b"hello")
        received.append(connection.receive(5.0, 5.0)[0])
    assert np.shares_memory(*received)
    session.close()
