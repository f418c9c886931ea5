"""What a worker process keeps between two reads of the same cluster: connections, leaders, densities."""

from __future__ import annotations

import math
import os
import pickle
import selectors
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final, NamedTuple

from kafka.errors import KafkaConnectionError, UnknownBrokerIdError
from kafka.net.connection import KafkaConnection

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.broker_errors import OLDEST_KAFKA
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.metadata import Leader, Leaders, Metadata, metadata_request, read_metadata
from pyspark_aligned_kafka.cluster.retry import Deadline
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from pyspark_aligned_kafka.reading import fetch
from pyspark_aligned_kafka.reading.connection import BrokerConnection, ResponseMemory
from watermark_source.errors import UnreachableError, UnsupportedFormatError
from watermark_source.planning.split import Split, SplitRange

# Metadata, and authenticated sockets to the brokers that lead partitions.


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


_KEPT_AT_MOST: Final = 8
_IDLE_LIMIT_S: Final = 240.0
"""At most, whatever ``connections.max.idle.ms`` is: a broker closes connections after ten minutes by default."""


class Session:
    """Connections to one cluster for one read at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self._brokers = Brokers(settings)
        self._leaders = Leaders()
        self._bounds = KafkaLogBounds(KafkaAdmin(settings, self._brokers, self._leaders))
        self._connections: dict[int, BrokerConnection] = {}
        # A response is decoded before the next one is received, from whichever broker.
        self._memory = ResponseMemory()
        self._idle_limit_s = min(_IDLE_LIMIT_S, settings.millis("connections.max.idle.ms") / 1000)
        self._partitions: dict[str, int] = {}
        self.replicas: dict[Split, int] = {}
        """Replicas that leaders have told us to read from instead (KIP-392)."""
        self.densities: dict[str, float] = {}
        self.throttled_by: set[int] = set()
        """Brokers of whose quotas was warned."""
        self._left_at = time.monotonic()

    def leader(self, split: Split) -> Leader | None:
        """Return who leads a split, if that is known."""
        return self._leaders.of(split)

    def node_of(self, split: Split) -> int | None:
        """Return the broker to read a split from, if one is known."""
        leader = self.leader(split)
        return self.replicas.get(split, None if leader is None else leader.node)

    def absent(self, split: Split) -> bool:
        """Whether the last look at the metadata found no such topic, or no such partition in it."""
        return split.log in self._partitions and split.number >= self._partitions[split.log]

    def forget(self, split: Split, node: int) -> None:
        """Forget that a split is to be read from a broker; who is known to lead it instead stays so."""
        if self.node_of(split) == node:
            self._leaders.doubt({split})
            self.replicas.pop(split, None)

    def refresh(
        self, topics: Collection[str], limit_ms: int, *, anyone: bool = False, doubted: int | None = None
    ) -> None:
        """Ask the cluster who leads what; raises ``SourceError`` subclasses.

        ``anyone`` and ``doubted`` make it a second opinion: see ``Cluster.ask_any``. An older epoch replaces no newer
        one.
        """
        found = self._brokers.metadata(topics, limit_ms, anyone=anyone, doubted=doubted)
        self._partitions.update({name: len(topic.leaders) for name, topic in found.topics.items()})
        self._partitions.update(dict.fromkeys(found.unknown, 0))
        self._leaders.learn(found.topics)

    def connection(self, node: int, limit_ms: int) -> BrokerConnection:
        """Return the connection to a broker, made if there is none that works; raises ``SourceError`` subclasses."""
        kept = self._connections.get(node)
        if kept is not None and kept.reusable and time.monotonic() - kept.used_at <= self._idle_limit_s:
            return kept
        self.drop(node)
        login = self._brokers.socket_to(node, limit_ms)
        made = self._connections[node] = BrokerConnection(login.socket, self._memory, login.good_until)
        return made

    def drop(self, node: int) -> None:
        """Close the connection to a broker."""
        if (connection := self._connections.pop(node, None)) is not None:
            connection.close()

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return what each log holds as a reader sees it; partitions that do not exist are left out."""
        starts, ends = self._bounds.earliest_positions(splits), self._bounds.end_positions(splits)
        return {split: SplitRange(split, start, ends[split]) for split, start in starts.items() if split in ends}

    @property
    def stale(self) -> bool:
        """Whether nobody has used it for so long that the connections may be cut off on the way."""
        return time.monotonic() - self._left_at > self._idle_limit_s

    def settle(self) -> None:
        """Get ready for the next read: a connection that still owes a response is closed."""
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
    """Sessions nobody is using, by the settings they were made with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._sessions: list[tuple[bytes, Session]] = []
        # A forked child shares sockets and epoll sets with its parent: they must not be touched, not even by closing.
        self._inherited: list[tuple[bytes, Session]] = []

    def take(self, key: bytes) -> Session | None:
        """Return a session made with these settings and used not long ago."""
        with self._lock:
            self._check_process()
            self._expire()
            for i in range(len(self._sessions) - 1, -1, -1):
                if self._sessions[i][0] == key:
                    return self._sessions.pop(i)[1]
        return None

    def give(self, key: bytes, session: Session) -> None:
        """Keep a session for the next read; the one kept longest makes room."""
        with self._lock:
            self._check_process()
            self._sessions.append((key, session))
            if len(self._sessions) > _KEPT_AT_MOST:
                self._sessions.pop(0)[1].close()

    def discard(self, key: bytes) -> None:
        """Close the sessions made with these settings."""
        while (session := self.take(key)) is not None:
            session.close()

    def clear(self) -> None:
        """Close all sessions."""
        with self._lock:
            self._check_process()
            while self._sessions:
                self._sessions.pop()[1].close()

    def _expire(self) -> None:
        for entry in [entry for entry in self._sessions if entry[1].stale]:
            self._sessions.remove(entry)
            entry[1].close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._inherited += self._sessions
            self._sessions = []
            self._process = os.getpid()


_kept = _Kept()


def close_kept() -> None:
    """Close everything this process keeps; later reads connect anew."""
    _kept.clear()


@contextmanager
def leased(settings: ClientSettings, *, fresh: bool) -> Iterator[Session]:
    """Lend a session for one read; ``fresh`` (a task's retry) throws away what is kept and starts anew."""
    key = pickle.dumps(settings)
    if fresh:
        _kept.discard(key)
    session = _kept.take(key) or Session(settings)
    try:
        yield session
    finally:
        session.settle()
        _kept.give(key, session)
