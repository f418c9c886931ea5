"""Sessions that a worker process keeps between reads of one cluster: connections, leaders, densities."""

from __future__ import annotations

import math
import os
import pickle
import selectors
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from kafka.errors import KafkaConnectionError, UnknownBrokerIdError
from kafka.net.connection import KafkaConnection

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.broker_errors import OLDEST_KAFKA
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.metadata import Leaders, Metadata, Topic, metadata_request, read_metadata
from pyspark_aligned_kafka.cluster.retry import Deadline
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from pyspark_aligned_kafka.reading import fetch
from pyspark_aligned_kafka.reading.connection import BrokerConnection, ResponseMemory
from watermark_source.errors import UnreachableError, UnsupportedFormatError
from watermark_source.planning.split import Split

_USED_FOR = 0.85
"""Share of a login's lifetime in which it is used: requests sent by then are answered before it ends."""


class Brokers(Cluster):
    """Metadata and connections for reading."""

    def metadata(
        self, topics: Collection[str], limit_ms: int, *, anyone: bool = False, doubted: int | None = None
    ) -> Metadata:
        """Return one broker's metadata of the topics; for ``anyone`` and ``doubted`` see ``request_any``.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
        """

        async def work(deadline: Deadline) -> Metadata:
            answer = await self.request_any(lambda: metadata_request(topics), deadline, anyone=anyone, doubted=doubted)
            self.learn_brokers(answer)
            return read_metadata(answer)

        return self.run(work, limit_ms)

    def connection_to(self, node: int, limit_ms: int, memory: ResponseMemory) -> BrokerConnection:
        """Connect to a broker with kafka-python (TLS and login included), and take its socket over, blocking.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
            UnsupportedFormatError: the broker is older than Kafka 2.3.
        """

        async def work(deadline: Deadline) -> BrokerConnection:
            try:
                connection = await self._unused(node, deadline)
            except UnknownBrokerIdError as error:
                raise UnreachableError(
                    f"broker {node} leads a partition, but the cluster's metadata has no address for it; check that it "
                    "runs and has joined the cluster"
                ) from error
            knows_ids = _newest_version(connection) >= fetch.WITH_IDS
            # kafka-python forgets the end of the login when it closes its connection.
            good_until = _good_until(connection)
            return BrokerConnection(_take_socket(connection), memory, good_until, knows_ids=knows_ids)

        return self.run(work, limit_ms)

    async def _unused(self, node: int, deadline: Deadline) -> KafkaConnection:
        """Return a connection without open requests: the response to another request would be treated as ours."""
        connection = await self._connect(node, deadline.left_ms)
        while not connection.connected or _has_requests(connection):
            # One that was lost before it was used is closed.
            if connection.connected:
                connection.close(KafkaConnectionError("its responses do not arrive"))
            connection = await self._connect(node, deadline.left_ms)
        return connection


def _has_requests(connection: KafkaConnection) -> bool:
    """Return whether a request is open: it remains so after its caller has given up waiting."""
    return bool(connection.in_flight_requests or connection._reauth.is_reauthenticating)  # noqa: SLF001 - no public way


def _take_socket(connection: KafkaConnection) -> socket.socket:
    """Detach the socket from kafka-python's event loop, and close its connection without the socket."""
    transport = connection.transport
    detached: socket.socket = transport._sock  # noqa: SLF001 - no public accessor, and pinned to kafka-python 3
    connection.net.unregister_event(detached, selectors.EVENT_READ | selectors.EVENT_WRITE)
    transport._sock = None  # noqa: SLF001
    connection.close()
    return detached


def _good_until(connection: KafkaConnection) -> float:
    login = connection._reauth  # noqa: SLF001 - there is no public way
    if not login.session_lifetime_ms:
        return math.inf
    return float(login.authenticated_at + _USED_FOR * login.session_lifetime_ms / 1_000)


def _newest_version(connection: KafkaConnection) -> int:
    newest: int = connection.broker_version_data.api_versions.get(fetch.API_KEY, (0, 0))[1]
    if newest < fetch.API_VERSION:
        raise UnsupportedFormatError(
            f"broker {connection.node_id} speaks Fetch up to version {newest}; "
            f"version {fetch.API_VERSION} ({OLDEST_KAFKA} or later) is needed, so upgrade it"
        )
    return newest


_KEPT_AT_MOST: Final = 8
_IDLE_LIMIT_S: Final = 240.0
"""Upper limit on ``connections.max.idle.ms``: by default a broker closes connections after ten minutes."""


class Session:
    """Connections to one cluster for one read at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self._brokers = Brokers(settings)
        self.leaders = Leaders()
        self.visible = KafkaLogBounds(KafkaAdmin(settings, self._brokers, self.leaders))
        """Of what a reader sees."""
        self.written = KafkaLogBounds(KafkaAdmin(settings, self._brokers, self.leaders, read_committed=False))
        """Of that and of what is in open transactions."""
        self.read_committed = settings.read_committed
        self._connections: dict[int, BrokerConnection] = {}
        # All connections share it: a response is decoded before the next one is received.
        self._memory = ResponseMemory()
        self._idle_limit_s = min(_IDLE_LIMIT_S, settings.millis("connections.max.idle.ms") / 1000)
        self._topics: dict[str, Topic | None] = {}
        """By the last metadata responses; ``None``: they lacked it."""
        self.replicas: dict[Split, int] = {}
        """Replicas that leaders have named to read from instead (KIP-392)."""
        self.densities: dict[str, float] = {}
        self.throttled_by: set[int] = set()
        """Brokers whose quotas have been logged."""
        self._left_at = time.monotonic()

    def node_of(self, split: Split) -> int | None:
        """Return the broker to read a split from; ``None`` if it is unknown."""
        leader = self.leaders.of(split)
        return self.replicas.get(split, None if leader is None else leader.node)

    def other_id(self, split: Split, expected: str | None) -> str | None:
        """Return the id of the split's topic by the last metadata response, if it is not the one that is expected."""
        topic = self._topics.get(split.log)
        return None if topic is None or expected in (None, topic.id) else topic.id

    def absent(self, split: Split) -> bool:
        """Return whether the last metadata response lacked the topic, or the partition."""
        topic = self._topics.get(split.log)
        return split.log in self._topics and (topic is None or split.number not in topic.leaders)

    def forget(self, split: Split, node: int) -> None:
        """Forget a broker as the one to read a split from. Another broker that is known to lead it remains."""
        if self.node_of(split) == node:
            self.leaders.doubt({split})
            self.replicas.pop(split, None)

    def refresh(
        self, topics: Collection[str], limit_ms: int, *, anyone: bool = False, doubted: int | None = None
    ) -> None:
        """Request the leaders of the topics' partitions; raises ``SourceError`` subclasses.

        ``anyone`` and ``doubted`` select other brokers: see ``Cluster.request_any``. A leader of an older epoch never
        replaces a newer one.
        """
        metadata = self._brokers.metadata(topics, limit_ms, anyone=anyone, doubted=doubted)
        self._topics |= {**metadata.topics, **dict.fromkeys(metadata.unknown)}
        self.leaders.learn(metadata.topics)

    def connection(self, node: int, limit_ms: int) -> BrokerConnection:
        """Return the connection to a broker, a new one if none is reusable; raises ``SourceError`` subclasses."""
        kept = self._connections.get(node)
        if kept is not None and kept.reusable and time.monotonic() - kept.used_at <= self._idle_limit_s:
            return kept
        self.drop(node)
        connection = self._connections[node] = self._brokers.connection_to(node, limit_ms, self._memory)
        return connection

    def drop(self, node: int) -> None:
        """Close the connection to a broker."""
        if (connection := self._connections.pop(node, None)) is not None:
            connection.close()

    @property
    def stale(self) -> bool:
        """Whether the session was unused for longer than the network may keep its connections."""
        return time.monotonic() - self._left_at > self._idle_limit_s

    def settle(self) -> None:
        """Prepare for the next read: close the connections whose response has not arrived."""
        for node in [node for node, connection in self._connections.items() if connection.awaiting]:
            self.drop(node)
        self._memory.trim()
        self._left_at = time.monotonic()

    def close(self) -> None:
        """Close all connections."""
        for node in list(self._connections):
            self.drop(node)
        self._brokers.close()


class _Kept:
    """Unused sessions by the settings they were created with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: list[tuple[bytes, Session]] = []
        # A forked child shares sockets and epoll sets with its parent, and must not even close them.
        self._inherited: list[tuple[bytes, Session]] = []

    def take(self, key: bytes) -> Session | None:
        """Remove and return a session with these settings; ``None`` without one."""
        with self._lock:
            self._expire()
            for i in range(len(self._sessions) - 1, -1, -1):
                if self._sessions[i][0] == key:
                    return self._sessions.pop(i)[1]
        return None

    def give(self, key: bytes, session: Session) -> None:
        """Keep a session for the next read; the oldest one is closed if there are too many."""
        with self._lock:
            self._sessions.append((key, session))
            if len(self._sessions) > _KEPT_AT_MOST:
                self._sessions.pop(0)[1].close()

    def discard(self, key: bytes) -> None:
        """Close the sessions with these settings."""
        while (session := self.take(key)) is not None:
            session.close()

    def clear(self) -> None:
        """Close all sessions."""
        with self._lock:
            while self._sessions:
                self._sessions.pop()[1].close()

    def _expire(self) -> None:
        for entry in [entry for entry in self._sessions if entry[1].stale]:
            self._sessions.remove(entry)
            entry[1].close()

    def begin_child(self) -> None:
        """Begin without sessions in a forked child."""
        self._inherited += self._sessions
        self._sessions = []


_kept = _Kept()
os.register_at_fork(after_in_child=_kept.begin_child)


@contextmanager
def leased(settings: ClientSettings, *, fresh: bool) -> Iterator[Session]:
    """Lend a session for one read; ``fresh`` (a task's retry) closes the kept sessions and opens a new one."""
    key = pickle.dumps(settings)
    if fresh:
        _kept.discard(key)
    session = _kept.take(key) or Session(settings)
    try:
        yield session
    finally:
        session.settle()
        _kept.give(key, session)
