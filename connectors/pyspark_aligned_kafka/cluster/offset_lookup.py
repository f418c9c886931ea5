"""Offsets of many partitions at once: one request to each leader, again while another try may help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    RetriableError,
    UnsupportedForMessageFormatError,
    for_code,
)

from pyspark_aligned_kafka.cluster.broker_errors import RefusedByBrokerError, reason
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline
from pyspark_aligned_kafka.cluster.leaders import Leaders
from pyspark_aligned_kafka.cluster.list_offsets import NEWEST, Found, OffsetsRequest, OffsetsResponse
from pyspark_aligned_kafka.cluster.topic_lookup import TopicLookup
from pyspark_aligned_kafka.cluster.unanswered_requests import PendingRequests
from watermark_source.errors import (
    CorruptDataError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
    listed,
)
from watermark_source.planning.split import Split

_NOT_CONNECTED = (KafkaConnectionError, NodeNotReadyError, RefusedByBrokerError)


@dataclass(slots=True)
class Round:
    """One try of a look-up, over all leaders."""

    found: dict[Split, Found] = field(default_factory=dict)
    again: dict[Split, KafkaError] = field(default_factory=dict)


class InTime(NamedTuple):
    """A look-up that did not wait for every broker."""

    found: Mapping[Split, Found]
    """As ``list_offsets`` returns it."""
    unknown: Mapping[Split, Found | None]
    """Splits without an answer in time; with the answer to an earlier question, if that came since the last call."""


class OffsetLookup:
    """Goes by the leaders that are known, and has topics looked up whose leader is not."""

    def __init__(
        self, cluster: Cluster, topics: TopicLookup, leaders: Leaders, *, limit_ms: int, read_committed: bool
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._leaders = leaders
        self._read_committed = read_committed
        self._open = PendingRequests(cluster, limit_ms)

    def forget(self) -> None:
        """Ask anew next time what has not been answered yet."""
        self._open.forget()

    async def found(
        self, wanted: Mapping[Split, int], deadline: Deadline, found: dict[Split, Found] | None = None
    ) -> Mapping[Split, Found]:
        """See ``KafkaAdmin.list_offsets``; each is in ``found`` as soon as it is told."""
        backoff = self._cluster.backoff(deadline)
        found = {} if found is None else found
        while True:
            rest = {split: spec for split, spec in wanted.items() if split not in found}
            if self._leaders.unknown(rest.keys()):
                await self._topics.settled({split.log for split in rest}, rest.keys(), deadline)
                # What was missing a moment ago has been looked for again: it may have been made anew.
                rest = {split: spec for split, spec in rest.items() if split not in self._topics.missing}
            tried = await self.asked_once(rest, deadline, found)
            if not tried.again:
                return found
            self._leaders.doubt(tried.again.keys())
            if not await backoff.wait():
                raise _gave_up(tried.again, deadline)

    async def found_in_time(self, wanted: Mapping[Split, int], deadline: Deadline) -> InTime:
        """See ``KafkaAdmin.list_offsets_in_time``."""
        late = await self._open.close(wanted.keys())
        asked = wanted.keys() - self._open.splits
        unknown = self._leaders.unknown(asked) - self._topics.missing
        if unknown:
            await self._topics.settled({split.log for split in unknown}, unknown, deadline)
        by_leader: defaultdict[int | None, dict[Split, int]] = defaultdict(dict)
        for split in asked:
            leader = self._leaders.of(split)
            by_leader[None if leader is None else leader.node][split] = wanted[split]
        found = await self._open.ask(tuple(by_leader.values()), self.found)
        return InTime(found, {split: late.get(split) for split in self._open.splits & wanted.keys()})

    async def asked_once(
        self, wanted: Mapping[Split, int], deadline: Deadline, found: dict[Split, Found] | None = None
    ) -> Round:
        """Return what the leaders that are known say when each is asked once, at the same time; ``found`` as above."""
        tried = Round() if found is None else Round(found)
        by_node: defaultdict[int, dict[Split, int]] = defaultdict(dict)
        epochs: dict[Split, int | None] = {}
        for split, spec in wanted.items():
            leader = self._leaders.of(split)
            if leader is None:
                tried.again[split] = LeaderNotAvailableError("the partition has no leader")
            else:
                by_node[leader.node][split] = spec
                epochs[split] = leader.epoch
        asked = [self._cluster.begin(self._ask, node, part, epochs, deadline, tried) for node, part in by_node.items()]
        for answer in asked:
            await answer
        return tried

    async def _ask(
        self, node: int, part: Mapping[Split, int], epochs: Mapping[Split, int | None], deadline: Deadline, tried: Round
    ) -> None:
        """Ask one leader and take in what it tells, whatever the others do."""
        request = OffsetsRequest(part, epochs, read_committed=self._read_committed)
        try:
            received = await self._cluster.ask(node, request, deadline)
        except IncompatibleBrokerVersion:
            if NEWEST not in part.values():
                raise
            tried.found.update(dict.fromkeys(part, Found(None, None)))
        except KafkaError as error:
            tried.again.update(dict.fromkeys(part, error))
        else:
            _read_offsets(received, part, tried)


def _read_offsets(response: OffsetsResponse, asked: Mapping[Split, int], tried: Round) -> None:
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


def _gave_up(again: Mapping[Split, KafkaError], deadline: Deadline) -> SourceError:
    unreachable = all(isinstance(error, _NOT_CONNECTED) for error in again.values())
    kind: type[SourceError] = UnreachableError if unreachable else ResponseTimeoutError
    reasons = "; ".join(sorted({reason(error) for error in again.values()}))
    return kind(f"no offset of {listed(again)} within {deadline.told}; at last: {reasons}")
