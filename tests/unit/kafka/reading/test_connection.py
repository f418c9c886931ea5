"""Responses over a connection: whole ones only, and none that is waited for without limit."""

from __future__ import annotations

import fcntl
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pyspark_aligned_kafka.reading.connection import BrokerConnection, ConnectionLostError, ResponseMemory


@contextmanager
def answered_by(broker: Callable[[socket.socket], None]) -> Iterator[BrokerConnection]:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with theirs:
            try:
                broker(theirs)
            except OSError:
                """We have hung up."""

    thread = threading.Thread(target=answer)
    thread.start()
    connection = BrokerConnection(ours, ResponseMemory())
    try:
        yield connection
    finally:
        connection.close()
        thread.join(60)


def framed(response: bytes) -> bytes:
    return struct.pack(">i", len(response)) + response


def test_a_response_that_comes_in_pieces_is_put_together() -> None:
    def in_pieces(broker: socket.socket) -> None:
        for byte in framed(b"hello"):
            broker.sendall(bytes([byte]))
        broker.recv(1)

    with answered_by(in_pieces) as connection:
        data, size = connection.receive(5.0, 5.0)
        assert (data.tobytes(), size) == (b"hello", 5)
        assert connection.reusable


def test_a_connection_beyond_a_thousand_descriptors_is_used_again() -> None:
    """``select.select`` takes none above 1 023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    ours, theirs = socket.socketpair()
    try:
        high = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 2_000))
        connection = BrokerConnection(high, ResponseMemory())
        assert connection.reusable
        theirs.sendall(b"unasked")
        assert not connection.reusable
        connection.close()
    finally:
        ours.close()
        theirs.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_that_sends_a_byte_now_and_then_is_not_waited_for_for_ever() -> None:
    def trickle(broker: socket.socket) -> None:
        broker.sendall(struct.pack(">i", 1_000))
        for _ in range(1_000):
            broker.sendall(b"x")
            time.sleep(0.02)

    with answered_by(trickle) as connection:
        begun = time.monotonic()
        with pytest.raises(ConnectionLostError, match="bytes of the response did not arrive in time"):
            connection.receive(1.0, 0.3)
        assert time.monotonic() - begun < 5
        assert not connection.reusable


@pytest.mark.parametrize(("sent", "message"), [
    (b"", "closed the connection"),
    (framed(b"hello")[:-1], "closed the connection"),
    (struct.pack(">i", -1), "a response of -1 bytes"),
    (struct.pack(">i", 1 << 30 | 1), f"a response of {1 << 30 | 1} bytes"),
    (framed(b"hello") + b"more", "4 bytes more than the response"),
])  # fmt: skip
def test_what_is_no_response_ends_the_connection(sent: bytes, message: str) -> None:
    with answered_by(lambda broker: broker.sendall(sent)) as connection:
        with pytest.raises(ConnectionLostError, match=message):
            connection.receive(5.0, 5.0)
        assert not connection.reusable


def test_a_broker_that_says_nothing_is_not_waited_for_longer_than_the_limit() -> None:
    def listen(broker: socket.socket) -> None:
        broker.recv(1)

    with answered_by(listen) as connection, pytest.raises(ConnectionLostError, match="timed out"):
        connection.receive(0.05, 5.0)
