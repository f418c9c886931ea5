"""Metadata, and authenticated sockets to the brokers that lead partitions."""

from __future__ import annotations

import math
import selectors
import socket
from collections.abc import Collection
from typing import NamedTuple

from kafka.errors import KafkaConnectionError, UnknownBrokerIdError
from kafka.net.connection import KafkaConnection

from pyspark_aligned_kafka.cluster.broker_errors import OLDEST_KAFKA
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline
from pyspark_aligned_kafka.cluster.metadata import Metadata, metadata_request, read_metadata
from pyspark_aligned_kafka.reading import fetch
from watermark_source.errors import UnreachableError, UnsupportedFormatError

_USED_FOR = 0.85
"""Of a login's lifetime: what is on its way by then is answered."""


class LoggedIn(NamedTuple):
    """A socket to a broker, and until when the login on it is to be used."""

    socket: socket.socket
    good_until: float
    """By ``time.monotonic()``: a broker hangs up on who uses it later (KIP-368)."""


class Brokers(Cluster):
    """Metadata and connections for reading."""

    def metadata(
        self, topics: Collection[str], limit_ms: int, *, anyone: bool = False, doubted: int | None = None
    ) -> Metadata:
        """Return what one broker says of the topics; for ``anyone`` and ``doubted`` see ``ask_any``.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
        """

        async def work(_: Deadline) -> Metadata:
            deadline = Deadline.after(limit_ms)
            answer = await self.ask_any(lambda: metadata_request(topics), deadline, anyone=anyone, doubted=doubted)
            self.learn_brokers(answer)
            return read_metadata(answer)

        return self.run(work)

    def socket_to(self, node: int, limit_ms: int) -> LoggedIn:
        """Connect to a broker by kafka-python (TLS and login included) and take its socket over, blocking.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
            UnsupportedFormatError: the broker is older than Kafka 2.3.
        """

        async def work(_: Deadline) -> LoggedIn:
            try:
                connection = await self._unused(node, limit_ms)
            except UnknownBrokerIdError as error:
                raise UnreachableError(
                    f"broker {node} leads a partition, but the cluster does not say where it listens; check that it "
                    "runs and has joined the cluster"
                ) from error
            _check_version(connection)
            # The end of the login is kafka-python's to know, until its connection is closed.
            good_until = _good_until(connection)
            return LoggedIn(_take_socket(connection), good_until)

        return self.run(work)

    async def _unused(self, node: int, limit_ms: int) -> KafkaConnection:
        """Return a connection on which nothing is on its way: an answer to somebody else would be taken for ours."""
        deadline = Deadline.after(limit_ms)
        connection = await self._connected(node, limit_ms)
        # Who gave up waiting for an answer has not taken the question back.
        while connection.in_flight_requests or connection._reauth.is_reauthenticating:  # noqa: SLF001 - no public way
            connection.close(KafkaConnectionError("its answers do not come"))
            connection = await self._connected(node, deadline.left_ms)
        return connection


def _take_socket(connection: KafkaConnection) -> socket.socket:
    """Detach the socket from kafka-python's event loop and let its connection end without closing it."""
    transport = connection.transport
    taken: socket.socket = transport._sock  # noqa: SLF001 - there is no public way, and pinned to kafka-python 3
    connection.net.unregister_event(taken, selectors.EVENT_READ | selectors.EVENT_WRITE)
    transport._sock = None  # noqa: SLF001
    connection.close()
    return taken


def _good_until(connection: KafkaConnection) -> float:
    login = connection._reauth  # noqa: SLF001 - there is no public way
    if not login.session_lifetime_ms:
        return math.inf
    return float(login.authenticated_at + _USED_FOR * login.session_lifetime_ms / 1_000)


def _check_version(connection: KafkaConnection) -> None:
    newest = connection.broker_version_data.api_versions.get(fetch.API_KEY, (0, 0))[1]
    if newest < fetch.API_VERSION:
        raise UnsupportedFormatError(
            f"broker {connection.node_id} speaks Fetch up to version {newest}; "
            f"version {fetch.API_VERSION} ({OLDEST_KAFKA} or later) is needed, so upgrade it"
        )
