"""Waits of a connection: what has been answered is no error, however late it is looked at."""

from __future__ import annotations

import contextlib
import gc
import logging
import resource
import socket
import threading
import time
from typing import Any

import psutil
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.protocol.metadata import MetadataRequest

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.connections import Cluster, opened
from pyspark_aligned_kafka.cluster.retry import Deadline
from services.local_server import free_ports
from watermark_source.errors import SourceError, UnreachableError


@pytest.mark.parametrize("hops", [0, 1])
def test_an_answer_that_comes_as_the_wait_ends_is_taken(hops: int) -> None:
    """``hops``: turns of the loop from the answer to who waits for it."""
    cluster = Cluster(parse_settings({"kafka.bootstrap.servers": "localhost:1"}))
    gate = Future()
    limits: list[Deadline] = []

    async def broker() -> None:
        # Its turn is the first after the wait has begun. It is parsed, or the process has no core, until that is over.
        time.sleep((limits[0].left_ms + 10) / 1000)
        gate.success(7)

    async def answered(left: int) -> int:
        if not left:
            return await cluster._open().wait_for(gate, 60_000)
        return await cluster._open().call_soon(answered, left - 1)

    async def work(_: Deadline) -> tuple[bool, int]:
        cluster.begin(broker)
        answer = cluster.begin(answered, hops)
        limits.append(Deadline.after(500))
        return await cluster.await_answer(answer, limits[0]), answer.value

    try:
        assert cluster.run(work) == (True, 7)
    finally:
        cluster.close()


def test_tries_to_connect_leave_no_descriptors_until_garbage_is_collected() -> None:
    """A process that plans collects rarely: in an outage of minutes it would have no descriptor left."""
    dead = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))
    limits = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    cluster = Cluster(parse_settings({"kafka.bootstrap.servers": dead, **limits}))

    async def work(deadline: Deadline) -> None:
        await cluster.request_any(MetadataRequest, deadline)

    # What pytest keeps of logs holds their errors.
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(UnreachableError):
            cluster.run(work)
        open_now = psutil.Process().num_fds()
        gc.collect()
        assert open_now - psutil.Process().num_fds() < 2
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
        cluster.close()


UNKNOWN_OPTION = (socket.SOL_SOCKET, 9_999, 1)


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize(
    ("protocol", "seconds", "options"),
    [
        ("PLAINTEXT", 0.0, []),
        ("SSL", 0.0, []),
        ("SSL", 0.2, []),
        ("PLAINTEXT", 5.0, [UNKNOWN_OPTION]),
    ],
)
def test_a_try_that_fails_leaves_no_descriptor(protocol: str, seconds: float, options: list[Any]) -> None:
    """A busy machine has no core before the first try ends; a frozen broker accepts, and answers no handshake."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster = Cluster(parse_settings({"kafka.bootstrap.servers": server, "kafka.security.protocol": protocol}))

        async def work(_: Deadline) -> int:
            manager = cluster._open()
            (broker,) = manager.cluster.bootstrap_brokers()
            manager.config["socket_options"] = options
            before = psutil.Process().num_fds()
            with pytest.raises(KafkaError):
                await manager._build_transport(broker, time.monotonic() + seconds)
            return psutil.Process().num_fds() - before

        gc.disable()
        try:
            assert cluster.run(work) == 0
        finally:
            gc.enable()
            cluster.close()


_MOST_KB = 1_000 * 1_024
"""Frames of 48 MB are dropped some at a time; read without a limit, it would be gigabytes."""


class Endless:
    """A port at which every connection is sent one byte again and again, as fast as it is read."""

    def __init__(self, byte: bytes) -> None:
        self._byte = byte
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._send, args=(self._listener.accept()[0],), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while True:
                self.sent += connection.send(self._byte * 65_536)


@pytest.mark.parametrize("byte", [b"\x7f", b"\xff", b"\x00", b"\x03"])
def test_a_broker_that_streams_bytes_without_end_is_an_error_and_takes_no_memory(byte: bytes) -> None:
    """Also where its first frame has a length that is accepted, 0 or 48 MB."""
    broker = Endless(byte)
    cluster = Cluster(
        parse_settings({"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "kafka.default.api.timeout.ms": "2000",
                        "kafka.request.timeout.ms": "1500"})
    )  # fmt: skip

    async def work(deadline: Deadline) -> object:
        return await cluster.request("bootstrap-0", MetadataRequest(), deadline)

    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with pytest.raises(SourceError):
            cluster.run(work)
    finally:
        cluster.close()
        broker.close()
    assert time.monotonic() - began < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MOST_KB


@pytest.mark.parametrize("client", [KafkaProducer, KafkaAdminClient])
@pytest.mark.parametrize("byte", [b"\xff", b"\x03"])
def test_a_client_that_writes_or_administers_has_the_same_limit(client: Any, byte: bytes) -> None:
    broker = Endless(byte)
    settings = parse_settings({"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"})
    # What pytest keeps of logs holds errors, and they hold what was read.
    logging.disable(logging.CRITICAL)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with pytest.raises(KafkaError):
            opened(client, settings, bootstrap_timeout_ms=1_500)
    finally:
        broker.close()
        logging.disable(logging.NOTSET)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MOST_KB


@pytest.mark.parametrize("client", [KafkaProducer, KafkaAdminClient])
def test_a_client_that_reaches_no_broker_leaves_neither_thread_nor_descriptor(client: Any) -> None:
    (unused,) = free_ports(1)
    settings = parse_settings({"kafka.bootstrap.servers": f"127.0.0.1:{unused}"})
    this = psutil.Process()
    threads, descriptors = set(threading.enumerate()), this.num_fds()
    gc.disable()
    try:
        with pytest.raises(KafkaError):
            opened(client, settings, bootstrap_timeout_ms=100)
        assert set(threading.enumerate()) <= threads
        assert this.num_fds() <= descriptors
    finally:
        gc.enable()
