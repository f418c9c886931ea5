"""The few requests of the Kafka protocol that are sent here by hand, over one plain socket."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from services.errors import ServiceError

_PRODUCE = (0, 7)  # the first version that takes zstd
_METADATA = (3, 1)
_CLIENT_ID = b"services"
_NULL = -1


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Where one partition is written."""

    topic: str
    partition: int
    leader: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one broker knows of its cluster: brokers by node id, and the partitions that have a leader."""

    brokers: dict[int, tuple[str, int]]
    leaders: tuple[PartitionLeader, ...]


class BrokerConnection:
    """One connection; answers come back in the order of the requests (the protocol guarantees it)."""

    def __init__(self, host: str, port: int, *, timeout_seconds: float = 30.0) -> None:
        self._peer = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        except OSError as failure:
            raise ServiceError(f"no connection to the broker at {self._peer}: {failure}") from failure
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent = 0
        self._received = 0

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    @property
    def in_flight(self) -> int:
        """Requests whose answer has not been read."""
        return self._sent - self._received

    def cluster(self, topic: str | None = None) -> ClusterView:
        """Brokers of the cluster and the leaders of ``topic`` (of no topic when None)."""
        self._send(_METADATA, [struct.pack(">i", 0) if topic is None else struct.pack(">i", 1) + _string(topic)])
        return _parse_metadata(_Reader(self._receive()))

    def send_produce(self, topic: str, batches: dict[int, bytes]) -> None:
        """Send one record batch for each partition, acks=1, without waiting for the answer."""
        pieces = [struct.pack(">hhii", _NULL, 1, 30_000, 1), _string(topic), struct.pack(">i", len(batches))]
        for partition, batch in batches.items():
            pieces += [struct.pack(">ii", partition, len(batch)), batch]
        self._send(_PRODUCE, pieces)

    def receive_produce(self) -> dict[int, int]:
        """The answer to the oldest unanswered produce request: base offset of each partition's batch.

        Raises:
            ServiceError: the broker refused a batch.
        """
        reader = _Reader(self._receive())
        offsets: dict[int, int] = {}
        for _ in range(reader.int32()):
            topic = reader.string()
            for _ in range(reader.int32()):
                partition, error, offset, _time, _beginning = reader.unpack(">ihqqq")
                if error:
                    raise ServiceError(
                        f"the broker at {self._peer} refused a batch of {topic}-{partition}: code {error}"
                    )
                offsets[partition] = offset
        return offsets

    def _send(self, api: tuple[int, int], body: list[bytes]) -> None:
        header = struct.pack(">hhih", *api, self._sent, len(_CLIENT_ID)) + _CLIENT_ID
        size = len(header) + sum(map(len, body))
        try:
            self._socket.sendall(b"".join([struct.pack(">i", size), header, *body]))
        except OSError as failure:
            raise ServiceError(f"the broker at {self._peer} took no request: {failure}") from failure
        self._sent += 1

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        (correlation,) = struct.unpack_from(">i", answer)
        if correlation != self._received:
            raise ServiceError(
                f"{self._peer} answered request {correlation}, expected {self._received}: not a Kafka broker?"
            )
        self._received += 1
        return answer[4:]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except OSError as failure:
                raise ServiceError(f"no answer from the broker at {self._peer}: {failure}") from failure
            if not piece:
                raise ServiceError(f"the broker at {self._peer} closed the connection")
            data += piece
        return bytes(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return values

    def int32(self) -> int:
        return self.unpack(">i")[0]

    def string(self) -> str:
        (length,) = self.unpack(">h")
        if length == _NULL:
            return ""
        text = self._data[self._at : self._at + length].decode()
        self._at += length
        return text


def _parse_metadata(reader: _Reader) -> ClusterView:
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(reader.int32()):
        node = reader.int32()
        host = reader.string()
        brokers[node] = (host, reader.int32())
        reader.string()  # rack
    reader.int32()  # controller
    leaders: list[PartitionLeader] = []
    for _ in range(reader.int32()):
        reader.unpack(">h")  # error: its partitions are missing then
        topic = reader.string()
        reader.unpack(">b")  # internal
        for _ in range(reader.int32()):
            _error, partition, leader = reader.unpack(">hii")
            for _ in range(2):  # replicas, in-sync replicas
                reader.unpack(f">{reader.int32()}i")
            if leader >= 0:
                leaders.append(PartitionLeader(topic, partition, leader))
    return ClusterView(brokers, tuple(leaders))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
