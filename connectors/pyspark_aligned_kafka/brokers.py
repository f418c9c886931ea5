"""Who leads which partition, and authenticated sockets to the leaders."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    NoError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.connection import KafkaConnection
from kafka.protocol.metadata import MetadataRequest

from pyspark_aligned_kafka import fetch
from pyspark_aligned_kafka.cluster import Cluster, Deadline
from watermark_source.errors import UnreachableError, UnsupportedFormatError
from watermark_source.planning.split import Split


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch of its leadership where the cluster tells."""

    node: int
    epoch: int | None


class Leaders(NamedTuple):
    """What a look at the metadata found."""

    known: Mapping[Split, Leader]
    partitions: Mapping[str, int]
    """How many partitions each topic has; none if the broker asked knows no such topic."""


class Brokers(Cluster):
    """Metadata and connections for reading."""

    def leaders(self, topics: Collection[str], limit_ms: int) -> Leaders:
        """Return the leaders of all partitions of the topics; those without one at the moment are left out.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
        """

        async def work(_: Deadline) -> Leaders:
            answer = await self.ask_any(lambda: _metadata_request(topics), Deadline.after(limit_ms))
            self.learn_brokers(answer)
            return _read_leaders(answer)

        return self.run(work)

    def socket_to(self, node: int, limit_ms: int) -> socket.socket:
        """Connect to a broker by kafka-python (TLS and login included) and take its socket over, blocking.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError
            UnsupportedFormatError: the broker is older than Kafka 2.3.
        """

        async def work(_: Deadline) -> socket.socket:
            try:
                connection = await self._connected(node, limit_ms)
            except UnknownBrokerIdError as error:
                raise UnreachableError(f"the cluster's metadata has no broker {node}") from error
            _check_version(connection)
            return _take_socket(connection)

        return self.run(work)


def _take_socket(connection: KafkaConnection) -> socket.socket:
    """Detach the socket from kafka-python's event loop and let its connection end without closing it."""
    transport = connection.transport
    taken: socket.socket = transport._sock  # noqa: SLF001 - there is no public way, and pinned to kafka-python 3
    connection.net.unregister_event(taken, selectors.EVENT_READ | selectors.EVENT_WRITE)
    transport._sock = None  # noqa: SLF001
    connection.close()
    return taken


def _check_version(connection: KafkaConnection) -> None:
    newest = connection.broker_version_data.api_versions.get(fetch.API_KEY, (0, 0))[1]
    if newest < fetch.API_VERSION:
        raise UnsupportedFormatError(
            f"broker {connection.node_id} speaks Fetch up to version {newest}; "
            f"version {fetch.API_VERSION} (Kafka 2.3 or later) is needed"
        )


def _metadata_request(topics: Collection[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _read_leaders(answer: Any) -> Leaders:
    known: dict[Split, Leader] = {}
    partitions: dict[str, int] = {}
    # Before version 9 epochs can be stale (KAFKA-9212), and a stale one is refused for ever.
    epochs = answer.API_VERSION >= 9
    for topic in answer.topics:
        kind: type[KafkaError] = for_code(topic.error_code)
        if kind is UnknownTopicOrPartitionError:
            partitions[topic.name] = 0
        elif issubclass(kind, AuthorizationError):
            raise kind(f"no right to read topic {topic.name}")
        elif kind is NoError:
            partitions[topic.name] = len(topic.partitions)
            for part in topic.partitions:
                if part.leader_id >= 0:
                    epoch = part.leader_epoch if epochs and part.leader_epoch >= 0 else None
                    known[Split(topic.name, part.partition_index)] = Leader(part.leader_id, epoch)
    return Leaders(known, partitions)
