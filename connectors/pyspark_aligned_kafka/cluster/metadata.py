"""A cluster's metadata: which topics exist, and who leads their partitions."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.errors import AuthorizationError, NoError, RetriableError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from pyspark_aligned_kafka.cluster.broker_errors import MissingRightError
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import ResponseTimeoutError, SourceError, listed
from watermark_source.planning.split import Split

_EPOCHS_SINCE = 9
"""Before this version of the answer epochs can be stale (KAFKA-9212), and a stale one is refused for ever."""


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch of its leadership where the cluster reports it."""

    node: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists, and the leader of each partition (``None`` while there is none)."""

    leaders: Mapping[int, Leader | None]
    internal: bool
    id: str | None = None
    """Its id (KIP-516) as Kafka's tools show it; ``None`` from brokers before 2.8. A topic that is deleted and created
    again has another one."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """One broker's answer."""

    topics: Mapping[str, Topic]
    unknown: frozenset[str]
    """Requested topics that this broker does not know."""
    unready: bool
    """Whether it had no answer about some topic for the moment."""


def metadata_request(names: Collection[str] | None, *, with_rights: bool = False) -> MetadataRequest:
    """Ask for the topics named, or for all; ``with_rights`` also for what the user may do with them."""
    return MetadataRequest(
        topics=MetadataRequest.ALL_TOPICS
        if names is None
        else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)],
        # Looking at a topic must not make it.
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=with_rights,
    )


def read_metadata(answer: Any) -> Metadata:
    """Read a ``MetadataResponse``; raises ``MissingRightError`` for topics that the user may not describe."""
    topics: dict[str, Topic] = {}
    unknown: set[str] = set()
    refused: set[str] = set()
    unready = False
    for topic in answer.topics:
        kind = for_code(topic.error_code)
        if kind is NoError:
            leaders = {p.partition_index: _leader(p, answer.API_VERSION) for p in topic.partitions}
            topics[topic.name] = Topic(leaders, bool(topic.is_internal), id_text(topic.topic_id))
        elif issubclass(kind, AuthorizationError):
            refused.add(topic.name)
        elif issubclass(kind, UnknownTopicOrPartitionError):
            unknown.add(topic.name)
        elif issubclass(kind, RetriableError):
            unready = True
    if refused:
        raise MissingRightError("Describe", "topic", refused)
    return Metadata(topics, frozenset(unknown), unready)


_READ: Final = 3
"""The operation Read, among what a user may do as a broker reports it (KIP-430)."""


def unreadable(answer: Any) -> frozenset[str]:
    """Return the topics of a ``MetadataResponse`` with rights that the user may describe and not read."""
    there = [topic for topic in answer.topics if not topic.error_code]
    return frozenset(topic.name for topic in there if not includes_read(topic.authorized_operations))


def includes_read(operations: Collection[int] | None) -> bool:
    """Return whether the user may read; also where a broker did not report what it may do."""
    return operations is None or _READ in operations


def id_text(topic_id: UUID | None) -> str | None:
    """Return the id of a topic as Kafka's tools show it: base64 for URLs, without padding."""
    if topic_id is None or not topic_id.int:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def id_bytes(text: str) -> bytes:
    """Return the bytes of an id as Kafka's tools show it; raises ``ValueError``."""
    return base64.urlsafe_b64decode(text + "==")


def _leader(partition: Any, version: int) -> Leader | None:
    if partition.leader_id < 0:
        return None
    known = version >= _EPOCHS_SINCE and partition.leader_epoch >= 0
    return Leader(partition.leader_id, partition.leader_epoch if known else None)


# Who leads which partition, and which there are: learned from every answer, shared by a query's look-ups.


class Leaders:
    """Partitions and their leaders by the brokers' metadata. Threads may share it.

    A broker that is cut off from the others still answers, with earlier leaders too: an older epoch never replaces a
    newer one, until a leader itself answers that it does not know it (the topic may have been created again).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: dict[Split, Leader] = {}
        self._existing: set[Split] = set()
        self.changes = 0
        """How often another leader has been learnt, or one forgotten: while it is the same, so are all leaders."""

    def learn(self, topics: Mapping[str, Topic]) -> None:
        """Take in the topics of one response."""
        with self._lock:
            for name, topic in topics.items():
                for number, leader in topic.leaders.items():
                    self._learn(Split(name, number), leader)

    def _learn(self, split: Split, leader: Leader | None) -> None:
        self._existing.add(split)
        known = self._leaders.get(split)
        if leader is None:
            self._forget(split)
        elif leader != known and not _is_older(leader, known):
            self._leaders[split] = leader
            self.changes += 1

    def _forget(self, split: Split) -> None:
        self.changes += self._leaders.pop(split, None) is not None

    def doubt(self, splits: Set[Split]) -> None:
        """Forget leaders that did not answer as leaders do."""
        with self._lock:
            for split in splits:
                self._forget(split)

    def forget(self, missing: Set[str | Split]) -> None:
        """Forget topics and partitions that are not there any more."""
        with self._lock:
            for split in [split for split in self._existing if split in missing or split.log in missing]:
                self._existing.discard(split)
                self._forget(split)

    def of(self, split: Split) -> Leader | None:
        """Return the leader of a partition, if one is known."""
        return self._leaders.get(split)

    def unknown(self, splits: Set[Split]) -> Set[Split]:
        """Return those of the partitions whose leader is not known."""
        return splits - self._leaders.keys()

    def existed(self, names: Set[str | Split]) -> bool:
        """Return whether one of the topics or partitions was there when it was looked for last."""
        if not names:
            return False
        with self._lock:
            return not names.isdisjoint(self._existing) or not names.isdisjoint({s.log for s in self._existing})


def _is_older(leader: Leader, known: Leader | None) -> bool:
    return known is not None and known.epoch is not None and leader.epoch is not None and leader.epoch < known.epoch


# Absence: since when all answers have lacked something, and after how long it counts as gone.


GONE_AFTER_S: Final = 5.0
"""Seconds after which a topic that existed counts as deleted: by mistake, it would be read from its beginning again.

A broker that just started may not know of it yet.
"""
_Named = TypeVar("_Named")


def gone_after(limit_s: float) -> float:
    """Return after how many seconds a topic counts as deleted: at most half of a time limit."""
    return min(GONE_AFTER_S, limit_s / 2)


def absent_since(before: Mapping[_Named, float], absent: Iterable[_Named]) -> dict[_Named, float]:
    """Return since when, by ``time.monotonic()``, all answers in a row have lacked what the one of now lacks.

    ``before`` is the same as of the answer before. Time without an answer does not count.
    """
    now = time.monotonic()
    return {each: before.get(each, now) for each in absent}


# Which topics exist, and who leads their partitions: requested again before any counts as deleted.


# A topic just made, or a broker just started, may be missing from one broker's metadata for a moment.
_UNKNOWN_AFTER_S = 1.0


class TopicLookup:
    """Requests metadata and keeps the leaders in it."""

    def __init__(self, cluster: Cluster, leaders: Leaders) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self.missing: set[str | Split] = set()
        """What was looked for long enough, and not there."""

    async def settled(
        self,
        names: Collection[str] | None,
        splits: Set[Split],
        deadline: Deadline,
        *,
        existed: bool = False,
    ) -> Mapping[str, Topic]:
        """Return the topics named, or all for ``None``: again, until what is missing has been looked for long enough.

        The ``splits`` are to be there; what of them was there before is looked for longer, as all of them are if they
        ``existed`` when the query ran last.

        Raises:
            ResponseTimeoutError: what was there before is missing, and no time was left to look for it long enough.
        """
        backoff = self._cluster.backoff(deadline)
        missing_since: dict[str | Split, float] = {}
        while True:
            _, topics = await self._metadata(names, deadline, anyone=bool(missing_since))
            missing: set[str | Split] = {name for name in names or () if name not in topics}
            missing |= {split for split in splits if not _exists(split, topics)}
            missing_since = absent_since(missing_since, missing)
            were_there = (existed and splits & missing) or self._leaders.existed(missing)
            patience = gone_after(deadline.total_ms / 1_000) if were_there else _UNKNOWN_AFTER_S
            over = all(time.monotonic() - since >= patience for since in missing_since.values())
            if missing <= self.missing or over:
                break
            if not await backoff.wait():
                if were_there:
                    raise ResponseTimeoutError(
                        f"the Kafka brokers say that {listed(map(str, missing))} does not exist, which was there "
                        "before, and answered too late to be asked again; check them and the network, or allow more "
                        "time, for example kafka.default.api.timeout.ms = 120000"
                    )
                break
        if names is None and missing:
            # A list of all lacks what the user may not describe any more, which is refused by name.
            _, by_name = await self._metadata({split.log for split in splits if split in missing}, deadline)
            topics = {**topics, **by_name}
            missing = {split for split in splits if not _exists(split, topics)}
        self.missing |= missing
        self._leaders.forget(missing)
        return topics

    async def by_all_brokers(self, name: str, deadline: Deadline) -> Topic | None:
        """Return a topic with each partition that any broker knows; ``None`` if none knows the topic.

        A broker may lag behind in its metadata, but the leader of a partition knows it before the first row is written.
        So the leader's answer names it. A leader that is gone is no longer named by the others, and a broker that
        names it no longer has learned of its partitions before that.

        Raises:
            ResponseTimeoutError: a broker that another one still names gave no answer.
            SourceError: the topic was deleted and created again, and not all brokers know that yet; or a broker knows
                the topic, and does not name its partitions for the moment.
        """
        first, _ = await self._metadata([name], deadline)
        answers: dict[int | str, Any] = {self._cluster.answered_by: first}
        while more := next((each for each in answers.values() if _brokers_in(each) - answers.keys()), None):
            if more is not first:
                self._cluster.learn_brokers(more)
            new = _brokers_in(more) - answers.keys()
            answers |= await self._cluster.request_each(new, lambda: metadata_request([name]), deadline)
        found = [read_metadata(each) for each in answers.values()]
        if any(each.unready for each in found):
            raise SourceError(
                f"a broker does not name the partitions of topic {name} for the moment; it is asked again"
            )
        topics = [topic for each in found if (topic := each.topics.get(name)) is not None]
        if not topics:
            return None
        if len({topic.id for topic in topics}) > 1:
            raise SourceError(
                f"topic {name} was deleted and created again, and brokers still name it by several ids: "
                f"{listed(str(topic.id) for topic in topics)}; the next try, once they agree, succeeds"
            )
        for topic in topics:
            self._leaders.learn({name: topic})
        numbers = {number for topic in topics for number in topic.leaders}
        leaders = {number: self._leaders.of(Split(name, number)) for number in sorted(numbers)}
        return Topic(leaders, topics[0].internal, topics[0].id)

    async def _metadata(
        self, names: Collection[str] | None, deadline: Deadline, *, anyone: bool = False
    ) -> tuple[Any, Mapping[str, Topic]]:
        backoff = self._cluster.backoff(deadline)
        while True:
            answer = await self._cluster.request_any(lambda: metadata_request(names), deadline, anyone=anyone)
            self._cluster.learn_brokers(answer)
            found = read_metadata(answer)
            if not found.unready or not await backoff.wait():
                self._learn(found.topics)
                return answer, found.topics

    def _learn(self, topics: Mapping[str, Topic]) -> None:
        if self.missing:
            there = {Split(name, number) for name, topic in topics.items() for number in topic.leaders}
            self.missing -= topics.keys() | there
        self._leaders.learn(topics)


def _brokers_in(answer: Any) -> set[int | str]:
    return {broker.node_id for broker in answer.brokers}


def _exists(split: Split, topics: Mapping[str, Topic]) -> bool:
    return split.log in topics and split.number in topics[split.log].leaders


# How many replicas partitions have, and how many are in sync.


class PartitionReplicas(NamedTuple):
    """Of one partition, as one broker sees it."""

    leader: int | None
    """``None``: it can be neither read nor written."""
    all: int
    in_sync: int


def read_replicas(answer: Any) -> Mapping[Split, PartitionReplicas]:
    """Read a ``MetadataResponse``; topics with an error are left out."""
    return {
        Split(topic.name, each.partition_index): PartitionReplicas(
            None if each.leader_id < 0 else each.leader_id, len(each.replica_nodes), len(each.isr_nodes)
        )
        for topic in answer.topics
        if not topic.error_code
        for each in topic.partitions
    }


# How topics are set, for example whose clock dates their records: its producers' or the brokers'.


TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
_TOPIC: Final = 2


def topic_settings_request(topics: Collection[str], names: Collection[str]) -> DescribeConfigsRequest:
    """Ask for settings of topics."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=sorted(names))
        for topic in sorted(topics)
    ]
    return DescribeConfigsRequest(resources=asked)


def read_topic_settings(answer: Any) -> Mapping[str, Mapping[str, str]]:
    """Read a ``DescribeConfigsResponse``; topics whose settings may not be read are left out."""
    return {
        topic.resource_name: {each.name: str(each.value) for each in topic.configs}
        for topic in answer.results
        if not topic.error_code
    }
