"""Offsets of many partitions at once: one request to each leader, sent again while another try may help."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

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

from pyspark_aligned_kafka.cluster.broker_errors import MissingRightError, RefusedByBrokerError, reason
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.epoch_ends import epoch_ends_request, read_epoch_ends
from pyspark_aligned_kafka.cluster.list_offsets import (
    NEWEST,
    OffsetAndTimestamp,
    OffsetsAsked,
    OffsetsRequest,
    OffsetsResponse,
)
from pyspark_aligned_kafka.cluster.metadata import Leaders, TopicLookup
from pyspark_aligned_kafka.cluster.retry import API_TIMEOUT, Deadline
from watermark_source.errors import (
    CorruptDataError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
    listed,
)
from watermark_source.planning.availability import AvailabilityTable
from watermark_source.planning.split import Split

# Requests in flight: one to a slow or dead broker outlives the call that sent it, so that no call waits for it long.


_PATIENCE_MS: Final = 3_000
"""A call waits this long for an answer: longer than a broker takes that is only busy."""
_UNSERVED_SECONDS: Final = 5.0
"""After this time without a call the connections count as unserved."""
_SERVED_SHARE: Final = 0.1
"""Share of the time between two calls for which the later one serves the connections, as making one takes several
steps."""


LookUp = Callable[[Deadline, dict[Split, OffsetAndTimestamp]], Awaitable[Any]]
"""Looks offsets up. Puts each into the last argument when it arrives: other partitions may have no leader."""


class _Request(NamedTuple):
    splits: Set[Split]
    outcome: Any
    """kafka-python's future of the end of the look-up."""
    arrived: Mapping[Split, OffsetAndTimestamp]
    """The offsets that have arrived by now."""


class RequestsInFlight:
    """Look-ups that brokers have not answered yet. They continue in each later call to the cluster.

    The connections are served only during calls, and a batch may take long. A broker whose connections were not served
    causes an error only after it had the whole time limit within one call.
    """

    def __init__(self, cluster: Cluster, limit_ms: int) -> None:
        self._cluster = cluster
        self._limit_ms = limit_ms
        self._requests: dict[int, _Request] = {}
        """Those that no call waits for, by their numbers in the table of availability."""
        self._called_at = self._returned_at = time.monotonic()
        """When the last call began and ended."""
        self._wanted: Set[Split] = frozenset()
        """The splits that the last call asked for."""
        self._table: AvailabilityTable[OffsetAndTimestamp] = AvailabilityTable()

    @property
    def splits(self) -> Set[Split]:
        """The splits with a request in flight."""
        return self._table.in_flight

    def forget(self) -> None:
        """Give all requests up: the next call sends new ones."""
        self._requests.clear()
        self._table.clear()

    def note_listed(self, splits: Set[Split]) -> None:
        """Take in which partitions exist. An answer about one that was deleted is not for one created again."""
        self._table.note_listed(splits)

    async def receive(self, wanted: Set[Split]) -> Mapping[Split, OffsetAndTimestamp]:
        """Begin a call: take in what has arrived since the last one, and return the late answers about ``wanted``.

        Late answers about other splits are kept for the next call that asks for them. A request that ended without an
        answer may be sent again.

        Raises:
            SourceError: a request about ``wanted`` has failed in another way.
        """
        self._table.expire(self._called_at - self._limit_seconds)
        self._called_at, self._wanted = time.monotonic(), wanted
        unserved = self._called_at - self._returned_at
        if unserved < min(_UNSERVED_SECONDS, self._limit_seconds):
            await self._serve(wanted, Deadline.after(round(unserved * _SERVED_SHARE * 1_000)))
        else:
            await self._serve(wanted, self._patience())
            self._table.note_unserved()
        for number, request in self._requests.items():
            self._take(number, request, wanted)
        self._requests = {number: each for number, each in self._requests.items() if self._waits(number, each)}
        return self._table.take_late(wanted)

    async def send(self, parts: Sequence[tuple[Set[Split], LookUp]]) -> Mapping[Split, OffsetAndTimestamp]:
        """Begin a look-up of each part and return the answers that arrive soon; the others stay in flight.

        Raises:
            SourceError: a look-up has failed. Nothing waits for the others any more.
            UnreachableError, ResponseTimeoutError: a split has been silent for the whole time limit.
        """
        sent_at = time.monotonic()
        patience, limit = self._patience(), self._limit()
        begun = [self._begin(splits, look_up) for splits, look_up in parts]
        unfinished = [each for each in begun if not await self._is_over(each, sent_at, patience, limit)]
        left = [(each, rest) for each in unfinished if (rest := each.splits - each.arrived.keys())]
        unanswered = frozenset[Split]().union(*(rest for _, rest in left))
        offsets: dict[Split, OffsetAndTimestamp] = {}
        for each in begun:
            self._table.answer(each.splits, unanswered)
            offsets.update(each.arrived)
        if late := self._overdue(unanswered, sent_at, patience):
            failures = [failure for split in late if (failure := self._table.of(split).failure) is not None]
            raise failures[0] if failures else ResponseTimeoutError(f"no offset of {listed(late)} within {limit.text}")
        for each, rest in left:
            self._requests[self._table.leave_in_flight(rest, sent_at=sent_at)] = each
        self._returned_at = time.monotonic()
        self._table.note_wanted(self._wanted, self._returned_at)
        return offsets

    async def _is_over(self, request: _Request, sent_at: float, patience: Deadline, limit: Deadline) -> bool:
        """Wait for a request: for the time limit if a split is overdue whose connections were not served."""
        splits, outcome, arrived = request
        if await self._cluster.await_answer(outcome, patience):
            return True
        overdue = self._overdue(splits, sent_at, patience) - arrived.keys()
        is_unserved = any(not self._table.of(split).was_served for split in overdue)
        return is_unserved and await self._cluster.await_answer(outcome, limit)

    def _overdue(self, splits: Set[Split], sent_at: float, patience: Deadline) -> Set[Split]:
        return self._table.overdue(splits, now=sent_at, call_ends_at=patience.at, limit=self._limit_seconds)

    async def _serve(self, wanted: Set[Split], deadline: Deadline) -> None:
        """Read what has arrived meanwhile, and end what has run out of time; the rest has until ``deadline``."""
        for number, request in self._requests.items():
            if not wanted.isdisjoint(self._waits(number, request)):
                with suppress(Exception):
                    await self._cluster.await_answer(request.outcome, deadline)

    def _begin(self, splits: Set[Split], look_up: LookUp) -> _Request:
        arrived: dict[Split, OffsetAndTimestamp] = {}
        return _Request(splits, self._cluster.begin(look_up, self._limit(), arrived), arrived)

    def _waits(self, number: int, request: _Request) -> Set[Split]:
        return self._table.waiting_for(number, request.splits)

    def _take(self, number: int, request: _Request, wanted: Set[Split]) -> None:
        """Take in the answers to a request of an earlier call, and its end."""
        splits, outcome, arrived = request
        self._table.answer_late(number, {split: arrived[split] for split in splits & arrived.keys()}, self._called_at)
        rest = self._waits(number, request)
        if not outcome.is_done:
            return
        if outcome.succeeded():
            # What it leaves out does not exist.
            self._table.answer_late(number, dict.fromkeys(rest), self._called_at)
        elif isinstance(outcome.exception, (UnreachableError, ResponseTimeoutError)):
            self._table.time_out(rest, sent_at=self._called_at, failure=outcome.exception)
        elif not wanted.isdisjoint(rest):
            raise outcome.exception

    @property
    def _limit_seconds(self) -> float:
        return self._limit_ms / 1_000

    def _patience(self) -> Deadline:
        return Deadline.after(min(_PATIENCE_MS, self._limit_ms))

    def _limit(self) -> Deadline:
        return Deadline.after(self._limit_ms, API_TIMEOUT)


# Look-ups themselves: at the leaders that are known, after a look-up of topics whose leader is not.


_KEPT: Final = 2
"""Look-ups that are kept as they were divided and encoded: of all partitions, and of those with new rows."""
_NOT_CONNECTED = (KafkaConnectionError, NodeNotReadyError, RefusedByBrokerError)


@dataclass(slots=True)
class Attempt:
    """One try of a look-up, over all leaders."""

    offsets: dict[Split, OffsetAndTimestamp] = field(default_factory=dict)
    failed: dict[Split, KafkaError] = field(default_factory=dict)
    """Splits for which another try may help, and why this one failed."""


class OffsetsInTime(NamedTuple):
    """A look-up that did not wait for every broker."""

    offsets: Mapping[Split, OffsetAndTimestamp]
    """As ``list_offsets`` returns it."""
    unknown: Mapping[Split, OffsetAndTimestamp | None]
    """Splits without an answer in time; with the late answer to an earlier request, if one came since the last call."""


class _Division(NamedTuple):
    """A look-up divided by leaders; it holds while the same is wanted and no leader changes."""

    wanted: Mapping[Split, int]
    changes: int
    """``Leaders.changes``."""
    asked: Mapping[int | None, OffsetsAsked]
    """By the leaders' numbers; ``None``: of partitions that have none."""


class OffsetLookup:
    """Sends requests to the leaders that are known, and looks topics up whose leader is not."""

    def __init__(self, cluster: Cluster, topics: TopicLookup, leaders: Leaders, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._topics = topics
        self._leaders = leaders
        self._read_committed = read_committed

    async def look_up(
        self,
        wanted: Mapping[Split, int],
        deadline: Deadline,
        offsets: dict[Split, OffsetAndTimestamp] | None = None,
        *,
        asked: Mapping[int | None, OffsetsAsked] | None = None,
    ) -> Mapping[Split, OffsetAndTimestamp]:
        """See ``KafkaAdmin.list_offsets``; each is put into ``offsets`` when it arrives.

        ``asked``: what is wanted, divided by the leaders that are known.
        """
        backoff = self._cluster.backoff(deadline)
        offsets = {} if offsets is None else offsets
        while True:
            if asked is None:
                rest = {split: spec for split, spec in wanted.items() if split not in offsets}
                if self._leaders.unknown(rest.keys()):
                    await self._topics.settled({split.log for split in rest}, rest.keys(), deadline)
                    # A topic that was missing before has been looked up again: it may have been created again.
                    rest = {split: spec for split, spec in rest.items() if split not in self._topics.missing}
                asked = self.divided(rest)
            attempt = await self.try_once(asked, deadline, offsets)
            if not attempt.failed:
                return offsets
            self._leaders.doubt(attempt.failed.keys())
            asked = None
            if not await backoff.wait():
                raise _gave_up(attempt.failed, deadline)

    def divided(self, wanted: Mapping[Split, int]) -> Mapping[int | None, OffsetsAsked]:
        """Divide a look-up by the leaders that are known."""
        by_node: defaultdict[int | None, dict[Split, int]] = defaultdict(dict)
        epochs: dict[Split, int | None] = {}
        for split, spec in wanted.items():
            leader = self._leaders.of(split)
            by_node[None if leader is None else leader.node][split] = spec
            if leader is not None:
                epochs[split] = leader.epoch
        return {node: OffsetsAsked(part, epochs, read_committed=self._read_committed) for node, part in by_node.items()}

    async def try_once(
        self,
        asked: Mapping[int | None, OffsetsAsked],
        deadline: Deadline,
        offsets: dict[Split, OffsetAndTimestamp],
    ) -> Attempt:
        """Send one request to each known leader, all at the same time; ``offsets`` as in ``look_up``."""
        attempt = Attempt(offsets)
        requests = []
        for node, part in asked.items():
            if node is None:
                failure = LeaderNotAvailableError("the partition has no leader")
                attempt.failed.update(dict.fromkeys(part.wanted, failure))
            else:
                requests.append(self._cluster.begin(self._request, node, part, deadline, attempt))
        for request in requests:
            await request
        return attempt

    async def _request(self, node: int, asked: OffsetsAsked, deadline: Deadline, attempt: Attempt) -> None:
        """Send a request to one leader and take in its response, whatever the other leaders do."""
        try:
            response = await self._response(node, asked, deadline)
        except IncompatibleBrokerVersion:
            if NEWEST not in asked.wanted.values():
                raise
            attempt.offsets.update(dict.fromkeys(asked.wanted, OffsetAndTimestamp(None, None)))
        except KafkaError as error:
            attempt.failed.update(dict.fromkeys(asked.wanted, error))
        else:
            _read_offsets(response, asked.wanted, attempt)

    async def _response(self, node: int, asked: OffsetsAsked, deadline: Deadline) -> OffsetsResponse:
        response: OffsetsResponse = await self._cluster.request(node, OffsetsRequest(asked), deadline)
        return response


class OffsetLookupInTime(OffsetLookup):
    """Also looks up what it has within seconds, and leaves the rest in flight."""

    def __init__(
        self, cluster: Cluster, topics: TopicLookup, leaders: Leaders, *, read_committed: bool, limit_ms: int
    ) -> None:
        super().__init__(cluster, topics, leaders, read_committed=read_committed)
        self.requests = RequestsInFlight(cluster, limit_ms)
        self._kept: tuple[_Division, ...] = ()

    async def look_up_in_time(self, wanted: Mapping[Split, int], deadline: Deadline) -> OffsetsInTime:
        """See ``KafkaAdmin.list_offsets_in_time``."""
        late = await self.requests.receive(wanted.keys())
        in_flight = self.requests.splits
        unsent = {s: spec for s, spec in wanted.items() if s not in in_flight} if in_flight else wanted
        division = await self._division(unsent, deadline)
        parts = [
            (part.wanted.keys(), partial(self.look_up, part.wanted, asked=None if node is None else {node: part}))
            for node, part in division.asked.items()
        ]
        offsets = await self.requests.send(parts)
        return OffsetsInTime(offsets, {split: late.get(split) for split in self.requests.splits & wanted.keys()})

    async def _division(self, wanted: Mapping[Split, int], deadline: Deadline) -> _Division:
        """Divide a look-up that is likely to be wanted again, after one of the leaders that are not known."""
        changes = self._leaders.changes
        division = next((each for each in self._kept if each.changes == changes and each.wanted == wanted), None)
        if division is None:
            if unknown := self._leaders.unknown(wanted.keys()) - self._topics.missing:
                await self._topics.settled({split.log for split in unknown}, unknown, deadline)
            changes = self._leaders.changes
            division = _Division(wanted, changes, self.divided(wanted))
        self._kept = (division, *(each for each in self._kept if each is not division))[:_KEPT]
        return division


class EpochEndLookup(OffsetLookup):
    """Looks up where epochs end: of the highest one up to a number, the first offset behind it (KIP-101)."""

    async def _response(self, node: int, asked: OffsetsAsked, deadline: Deadline) -> OffsetsResponse:
        request = epoch_ends_request(asked.wanted, asked.epochs)
        return read_epoch_ends(await self._cluster.request(node, request, deadline))


def _read_offsets(response: OffsetsResponse, requested: Mapping[Split, int], attempt: Attempt) -> None:
    if not (response.offsets.keys() <= requested.keys() and response.errors.keys() <= requested.keys()):
        others = (response.offsets.keys() | response.errors.keys()) - requested.keys()
        raise CorruptDataError(
            f"a Kafka broker returned offsets of {listed(others)}, which were not requested; its response was damaged "
            "on the way, or another kind of server answered"
        )
    attempt.offsets.update(response.offsets)
    for split, error in response.errors.items():
        kind = for_code(error)
        if kind is UnsupportedForMessageFormatError:
            raise UnsupportedFormatError(
                f"{split} is stored in a record format without timestamps, so no offset in it can be found by time; "
                "only records of Kafka 0.11 and later are read. Copy the topic with a current producer"
            )
        if issubclass(kind, AuthorizationError):
            raise MissingRightError("Describe", "topic", [split.log])
        if not issubclass(kind, RetriableError):
            raise kind(f"looking up an offset of {split}")
        attempt.failed[split] = kind()


def _gave_up(failed: Mapping[Split, KafkaError], deadline: Deadline) -> SourceError:
    unreachable = all(isinstance(error, _NOT_CONNECTED) for error in failed.values())
    kind: type[SourceError] = UnreachableError if unreachable else ResponseTimeoutError
    reasons = "; ".join(sorted({reason(error) for error in failed.values()}))
    return kind(f"no offset of {listed(failed)} within {deadline.text}; the last tries failed with: {reasons}")
