"""The driver's look-ups in a Kafka cluster: topics, and offsets of many partitions at once."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.errors import (
    AuthorizationError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    RetriableError,
    UnsupportedForMessageFormatError,
    for_code,
)

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.batch_headers import BatchHeader, headers_request, read_headers
from pyspark_aligned_kafka.cluster.broker_errors import reason
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline
from pyspark_aligned_kafka.cluster.leaders import Leaders
from pyspark_aligned_kafka.cluster.list_offsets import NEWEST, Found, OffsetsRequest, OffsetsResponse
from pyspark_aligned_kafka.cluster.metadata import Leader, Topic, metadata_request, read_metadata
from pyspark_aligned_kafka.cluster.open_questions import OpenQuestions
from pyspark_aligned_kafka.cluster.replicas import Replicas, read_replicas
from pyspark_aligned_kafka.cluster.topic_settings import TIMESTAMP_TYPE, read_topic_settings, topic_settings_request
from watermark_source.errors import (
    CorruptDataError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
    listed,
)
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

# A topic just made, or a broker just started, may be missing from one broker's metadata for a moment.
_UNKNOWN_AFTER_MS = 1_000
_GLANCE_MS = 500
"""For what nobody needs who has to wait."""
_GONE_AFTER_MS = 5_000
"""What was there before is gone after this time only: gone by mistake, it would be read from its beginning again."""


@dataclass(slots=True)
class _Round:
    """One try of a look-up, over all leaders."""

    found: dict[Split, Found] = field(default_factory=dict)
    again: dict[Split, KafkaError] = field(default_factory=dict)


class Newest(NamedTuple):
    """The record with the highest timestamp of a partition."""

    offset: int
    """Its own, or that of the last in its batch."""
    timestamp: Millis


class InTime(NamedTuple):
    """A look-up that did not wait for every broker."""

    found: Mapping[Split, Found]
    """As ``list_offsets`` returns it."""
    unknown: Mapping[Split, Found | None]
    """Splits without an answer in time; with the answer to an earlier question, if that came since the last call."""


class KafkaAdmin:
    """Look-ups with the consumer's isolation level, or that of ``read_committed``.

    One thread; each call ends within ``default.api.timeout.ms``.

    Connects on first use. What another try may cure (a leader has moved, a broker is restarting) is tried again
    until the limit.
    """

    def __init__(
        self,
        settings: ClientSettings,
        cluster: Cluster | None = None,
        leaders: Leaders | None = None,
        *,
        read_committed: bool | None = None,
    ) -> None:
        self._cluster = Cluster(settings) if cluster is None else cluster
        self._read_committed = settings.read_committed if read_committed is None else read_committed
        self._leaders = Leaders() if leaders is None else leaders
        self._missing: set[str | Split] = set()
        self._open = OpenQuestions(self._cluster, settings.millis("default.api.timeout.ms"))

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._open.forget()
        self._cluster.close()

    def topics(self, names: Collection[str] | None, expected: Set[Split] = frozenset()) -> Mapping[str, Topic]:
        """Return the topics named, or all for ``None``. One that does not exist is left out, after a second look.

        What is ``expected`` was there before, and has gone only if it is missing for five seconds, whoever is asked.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: see ``watermark_source.errors``.
        """

        async def work(deadline: Deadline) -> Mapping[str, Topic]:
            return await self._settled_topics(names, expected, deadline)

        return self._cluster.run(work)

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, Found]:
        """Look up one offset for each split: ``EARLIEST``, ``LATEST``, ``NEWEST``, or the first at or after a time.

        One request to each leader. Splits that do not exist (any more) are left out.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, UnsupportedFormatError
        """

        async def work(deadline: Deadline) -> Mapping[Split, Found]:
            return await self._list_offsets(dict(wanted), deadline)

        return self._cluster.run(work) if wanted else {}

    def list_offsets_in_time(self, wanted: Mapping[Split, int]) -> InTime:
        """Look up offsets as ``list_offsets`` does, but wait only a few seconds for a slow or dead broker.

        The question to it stays open; later calls do not wait for it, nor ask again before it is answered. The error
        comes when a broker has been silent for ``default.api.timeout.ms``.
        """

        async def work(deadline: Deadline) -> InTime:
            return await self._list_in_time(wanted, deadline)

        return self._cluster.run(work) if wanted else InTime({}, {})

    def newest(self, splits: Set[Split]) -> Mapping[Split, Newest]:
        """Return each split's newest record, of brokers that answer soon."""

        async def work(_: Deadline) -> _Round:
            return await self._ask_leaders(dict.fromkeys(splits, NEWEST), Deadline.after(_GLANCE_MS))

        found = self._cluster.run(work).found
        return {s: Newest(at.offset, at.timestamp) for s, at in found.items() if at.offset is not None and at.timestamp}

    def batch_headers(self, offsets: Mapping[Split, int]) -> Mapping[Split, BatchHeader]:
        """Return the header of the batch that holds an offset, of leaders that answer soon."""
        by_node: defaultdict[int, dict[Split, tuple[int, Leader]]] = defaultdict(dict)
        for split, offset in offsets.items():
            if (leader := self._leaders.of(split)) is not None:
                by_node[leader.node][split] = offset, leader

        async def work(_: Deadline) -> Mapping[Split, BatchHeader]:
            deadline = Deadline.after(_GLANCE_MS)
            found: dict[Split, BatchHeader] = {}
            requests = [(n, headers_request(p, read_committed=self._read_committed)) for n, p in by_node.items()]
            for answer in [self._cluster.ask_soon(node, request, deadline) for node, request in requests]:
                with contextlib.suppress(KafkaError):
                    found.update(read_headers(await answer))
            return {split: header for split, header in found.items() if split in offsets}

        return self._cluster.run(work) if by_node else {}

    def timestamp_types(self, names: Collection[str]) -> Mapping[str, str]:
        """Return ``message.timestamp.type`` of topics, of those whose settings may be read and are told."""

        try:
            told = self.topic_settings(names, [TIMESTAMP_TYPE])
        except SourceError as error:
            _log.info("the timestamp type of %s cannot be told: %s", listed(names), error)
            return {}
        return {name: each[TIMESTAMP_TYPE] for name, each in told.items() if TIMESTAMP_TYPE in each}

    def topic_settings(self, topics: Collection[str], names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return settings of topics by their names, of those whose settings may be read.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: see ``watermark_source.errors``.
        """

        async def work(deadline: Deadline) -> Any:
            return await self._cluster.ask_any(lambda: topic_settings_request(topics, names), deadline)

        return read_topic_settings(self._cluster.run(work)) if topics else {}

    def replicas(self, topics: Collection[str]) -> Mapping[Split, Replicas]:
        """Return how many copies there are of topics' partitions; raises as ``topic_settings``."""

        async def work(deadline: Deadline) -> Any:
            return await self._cluster.ask_any(lambda: metadata_request(topics), deadline)

        return read_replicas(self._cluster.run(work)) if topics else {}

    async def _settled_topics(
        self, names: Collection[str] | None, splits: Set[Split], deadline: Deadline
    ) -> Mapping[str, Topic]:
        begun, backoff = time.monotonic(), self._cluster.backoff(deadline)
        second = False
        while True:
            topics = await self._metadata(names, deadline, anyone=second)
            missing: set[str | Split] = {name for name in names or () if name not in topics}
            missing |= {split for split in splits if not _exists(split, topics)}
            patience_ms = _GONE_AFTER_MS if splits & missing or self._leaders.existed(missing) else _UNKNOWN_AFTER_MS
            over = (time.monotonic() - begun) * 1_000 >= patience_ms
            if missing <= self._missing or over or not await backoff.wait():
                self._miss(missing)
                return topics
            second = True

    def _miss(self, missing: Set[str | Split]) -> None:
        self._missing |= missing
        self._leaders.gone(missing)

    async def _metadata(
        self, names: Collection[str] | None, deadline: Deadline, *, anyone: bool = False
    ) -> Mapping[str, Topic]:
        backoff = self._cluster.backoff(deadline)
        while True:
            answer = await self._cluster.ask_any(lambda: metadata_request(names), deadline, anyone=anyone)
            self._cluster.learn_brokers(answer)
            found = read_metadata(answer)
            if not found.unready or not await backoff.wait():
                self._learn(found.topics)
                return found.topics

    def _learn(self, topics: Mapping[str, Topic]) -> None:
        if self._missing:
            there = {Split(name, number) for name, topic in topics.items() for number in topic.leaders}
            self._missing -= topics.keys() | there
        self._leaders.learn(topics)

    async def _list_offsets(self, wanted: Mapping[Split, int], deadline: Deadline) -> Mapping[Split, Found]:
        backoff = self._cluster.backoff(deadline)
        found: dict[Split, Found] = {}
        while True:
            rest = {split: spec for split, spec in wanted.items() if split not in found}
            if self._leaders.unknown(rest.keys()):
                await self._settled_topics({split.log for split in rest}, rest.keys(), deadline)
                # What was missing a moment ago has been looked for again: it may have been made anew.
                rest = {split: spec for split, spec in rest.items() if split not in self._missing}
            tried = await self._ask_leaders(rest, deadline)
            found.update(tried.found)
            if not tried.again:
                return found
            self._leaders.doubt(tried.again.keys())
            if not await backoff.wait():
                raise _gave_up(tried.again, deadline)

    async def _list_in_time(self, wanted: Mapping[Split, int], deadline: Deadline) -> InTime:
        late = self._open.close()
        asked = wanted.keys() - self._open.splits
        unknown = self._leaders.unknown(asked) - self._missing
        if unknown:
            await self._settled_topics({split.log for split in unknown}, unknown, deadline)
        by_leader: defaultdict[int | None, dict[Split, int]] = defaultdict(dict)
        for split in asked:
            leader = self._leaders.of(split)
            by_leader[None if leader is None else leader.node][split] = wanted[split]
        found = await self._open.ask(tuple(by_leader.values()), self._list_offsets)
        return InTime(found, {split: late.get(split) for split in self._open.splits & wanted.keys()})

    async def _ask_leaders(self, wanted: Mapping[Split, int], deadline: Deadline) -> _Round:
        tried = _Round()
        by_node: defaultdict[int, dict[Split, int]] = defaultdict(dict)
        epochs: dict[Split, int | None] = {}
        for split, spec in wanted.items():
            leader = self._leaders.of(split)
            if leader is None:
                tried.again[split] = LeaderNotAvailableError("the partition has no leader")
            else:
                by_node[leader.node][split] = spec
                epochs[split] = leader.epoch
        asked = []
        for node, part in by_node.items():
            request = OffsetsRequest(part, epochs, read_committed=self._read_committed)
            asked.append((part, self._cluster.ask_soon(node, request, deadline)))
        for part, answer in asked:
            await _fold(part, answer, tried)
        return tried


async def _fold(part: Mapping[Split, int], answer: Awaitable[Any], tried: _Round) -> None:
    try:
        received = await answer
    except IncompatibleBrokerVersion:
        if NEWEST not in part.values():
            raise
        tried.found.update(dict.fromkeys(part, Found(None, None)))
    except AuthorizationError:
        raise
    except KafkaError as error:
        tried.again.update(dict.fromkeys(part, error))
    else:
        _read_offsets(received, part, tried)


def _read_offsets(response: OffsetsResponse, asked: Mapping[Split, int], tried: _Round) -> None:
    others = (response.found.keys() | response.errors.keys()) - asked.keys()
    if others:
        raise CorruptDataError(
            f"a Kafka broker told offsets of {listed(others)}, which it was not asked for; its answer was damaged on "
            "the way, or it is no Kafka broker"
        )
    tried.found.update(response.found)
    for split, error in response.errors.items():
        kind = for_code(error)
        if kind is UnsupportedForMessageFormatError:
            raise UnsupportedFormatError(
                f"{split} is stored in a record format without timestamps, so no offset in it can be found by time; "
                "only records of Kafka 0.11 and later are read. Copy the topic with a current producer"
            )
        if not issubclass(kind, RetriableError):
            raise kind(f"looking up an offset of {split}")
        tried.again[split] = kind()


def _exists(split: Split, topics: Mapping[str, Topic]) -> bool:
    return split.log in topics and split.number in topics[split.log].leaders


def _gave_up(again: Mapping[Split, KafkaError], deadline: Deadline) -> SourceError:
    unreachable = all(isinstance(error, (KafkaConnectionError, NodeNotReadyError)) for error in again.values())
    kind: type[SourceError] = UnreachableError if unreachable else ResponseTimeoutError
    reasons = "; ".join(sorted({reason(error) for error in again.values()}))
    return kind(
        f"no offset of {listed(again)} within {deadline.total_ms / 1000:g} s (kafka.default.api.timeout.ms); "
        f"at last: {reasons}"
    )
