"""A cluster's metadata: which topics exist, and who leads their partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka.errors import AuthorizationError, NoError, RetriableError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.metadata import MetadataRequest

_EPOCHS_SINCE = 9
"""Before this version of the answer epochs can be stale (KAFKA-9212), and a stale one is refused for ever."""


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch of its leadership where the cluster tells."""

    node: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists, and the leader of each partition (``None`` while there is none)."""

    leaders: Mapping[int, Leader | None]
    internal: bool


@dataclass(frozen=True, slots=True)
class Metadata:
    """One broker's answer."""

    topics: Mapping[str, Topic]
    unknown: frozenset[str]
    """Topics asked for that this broker knows nothing of."""
    unready: bool
    """Whether it could not tell about some topic for the moment."""


def metadata_request(names: Collection[str] | None) -> MetadataRequest:
    """Ask for the topics named, or for all."""
    return MetadataRequest(
        topics=MetadataRequest.ALL_TOPICS
        if names is None
        else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)],
        # Looking at a topic must not make it.
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def read_metadata(answer: Any) -> Metadata:
    """Read a ``MetadataResponse``; raises kafka-python's ``AuthorizationError`` for a topic that may not be read."""
    topics: dict[str, Topic] = {}
    unknown: set[str] = set()
    unready = False
    for topic in answer.topics:
        kind = for_code(topic.error_code)
        if kind is NoError:
            leaders = {p.partition_index: _leader(p, answer.API_VERSION) for p in topic.partitions}
            topics[topic.name] = Topic(leaders, bool(topic.is_internal))
        elif issubclass(kind, AuthorizationError):
            raise kind(f"no right to read topic {topic.name}")
        elif issubclass(kind, UnknownTopicOrPartitionError):
            unknown.add(topic.name)
        elif issubclass(kind, RetriableError):
            unready = True
    return Metadata(topics, frozenset(unknown), unready)


def _leader(partition: Any, version: int) -> Leader | None:
    if partition.leader_id < 0:
        return None
    known = version >= _EPOCHS_SINCE and partition.leader_epoch >= 0
    return Leader(partition.leader_id, partition.leader_epoch if known else None)
