"""Offsets of many partitions at once: one request to each leader, again while another try may help."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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
from pyspark_aligned_kafka.cluster.deadline import API_TIMEOUT, Deadline
from pyspark_aligned_kafka.cluster.list_offsets import NEWEST, Found, OffsetsRequest, OffsetsResponse
from pyspark_aligned_kafka.cluster.metadata import Leaders, TopicLookup
from watermark_source.errors import (
    CorruptDataError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
    listed,
)
from watermark_source.planning.split import Split

# Questions that keep nobody waiting: one to a slow or dead broker outlives the call it was asked in.


_PATIENCE_MS: Final = 3_000
"""More than a broker takes that is only busy."""
_AWAY_SECONDS: Final = 5.0
"""Without a call for so long nobody has listened."""
_LISTENING: Final = 0.1
"""Of the time between two calls, the share for which the later one listens: a connection is made in several steps."""


LookUp = Callable[[Mapping[Split, int], Deadline, dict[Split, Found]], Awaitable[Any]]
"""Looks offsets up, and puts each into the last argument as soon as it is told: one of many may have no leader."""


class _Question(NamedTuple):
    splits: Set[Split]
    """Those that nothing is told of yet."""
    over: Any
    """kafka-python's future of the look-up's end."""
    told: Mapping[Split, Found]
    """What is told by now."""


class _Silence(NamedTuple):
    """A split about which nothing has been answered for a while."""

    since: float
    wanted_at: float
    """When the last call ended that asked about it."""
    was_listened_to: bool = True
    """Whether there was no such time since then."""
    failure: SourceError | None = None
    """What went wrong with the last question about it."""


class _Late(NamedTuple):
    """An answer that came after the call, until somebody asks about the split."""

    answer: Found
    at: float
    """As ``_Silence.wanted_at``."""


class PendingRequests:
    """The look-ups that brokers have not answered yet. They go on whenever the cluster is asked anything.

    Between two calls nobody listens, and a batch may take long. Who was not listened to is no error before it had the
    whole time limit in one call.
    """

    def __init__(self, cluster: Cluster, limit_ms: int) -> None:
        self._cluster = cluster
        self._limit_ms = limit_ms
        self._open: list[_Question] = []
        self._called_at = self._listened_at = time.monotonic()
        """When the last call began and ended."""
        self._wanted: Set[Split] = frozenset()
        """What it asked about."""
        self._silent: dict[Split, _Silence] = {}
        self._late: dict[Split, _Late] = {}

    @property
    def splits(self) -> Set[Split]:
        """The splits they are about."""
        return {split for question in self._open for split in question.splits}

    def forget(self) -> None:
        """Ask anew next time."""
        self._open.clear()
        self._silent.clear()
        self._late.clear()

    async def close(self, wanted: Set[Split]) -> Mapping[Split, Found]:
        """Close those that have been answered, and return the answers about ``wanted``; the others are kept for later.

        One that timed out may be asked again.

        Raises:
            SourceError: an answer about ``wanted`` is another error.
        """
        self._forget_unwanted()
        self._called_at, self._wanted = time.monotonic(), wanted
        away = self._called_at - self._listened_at
        if away < min(_AWAY_SECONDS, self._limit_seconds):
            await self._listen(wanted, Deadline.after(round(away * _LISTENING * 1_000)))
        else:
            await self._listen(wanted, self._soon())
            self._silent = {split: at._replace(was_listened_to=False) for split, at in self._silent.items()}
        self._open = [still for each in self._open if (still := self._still_open(each, wanted)).splits]
        return {split: self._late.pop(split).answer for split in wanted & self._late.keys()}

    async def ask(self, parts: Sequence[Mapping[Split, int]], look_up: LookUp) -> Mapping[Split, Found]:
        """Begin a look-up of each part and return what is answered soon; the others stay open.

        Raises:
            SourceError: an answer is an error.
            UnreachableError, ResponseTimeoutError: there has been none about some split for the whole time limit.
        """
        begun = time.monotonic()
        soon, at_last = self._soon(), self._limit()
        asked = [self._begin(part, look_up) for part in parts]
        found: dict[Split, Found] = {}
        for splits, over, told in asked:
            silent = {split: self._silent[split] for split in splits & self._silent.keys()}
            # A question ends before its limit where another try would begin after that: one more tells.
            overdue = {
                split: at
                for split, at in silent.items()
                if (soon.at if at.failure else begun) - at.since >= self._limit_seconds
            }
            is_over = await self._cluster.is_answered(over, soon)
            if not is_over and any(not at.was_listened_to for split, at in overdue.items() if split not in told):
                is_over = await self._cluster.is_answered(over, at_last)
            found.update(told)
            rest = frozenset() if is_over else splits - told.keys()
            self._heard(splits - rest)
            if late := rest & overdue.keys():
                failures = filter(None, (overdue[split].failure for split in late))
                raise next(failures, None) or ResponseTimeoutError(
                    f"no offset of {listed(late)} within {self._limit().told}"
                )
            if rest:
                self._open.append(_Question(rest, over, told))
            for split in rest:
                self._silent.setdefault(split, _Silence(begun, self._called_at))
        self._listened_at = time.monotonic()
        for split in self._wanted & self._silent.keys():
            self._silent[split] = self._silent[split]._replace(wanted_at=self._listened_at)
        return found

    async def _listen(self, wanted: Set[Split], deadline: Deadline) -> None:
        """Let what came meanwhile be read, and what ran out of time meanwhile end; the rest has until ``deadline``."""
        for question in self._open:
            if not wanted.isdisjoint(question.splits):
                with suppress(Exception):
                    await self._cluster.is_answered(question.over, deadline)

    def _begin(self, part: Mapping[Split, int], look_up: LookUp) -> _Question:
        told: dict[Split, Found] = {}
        return _Question(part.keys(), self._cluster.begin(look_up, part, self._limit(), told), told)

    def _still_open(self, question: _Question, wanted: Set[Split]) -> _Question:
        """Take what a question was told, and return it with the splits that it is still open about."""
        splits, over, told = question
        new = splits & told.keys()
        self._late.update({split: _Late(told[split], self._called_at) for split in new})
        # Their broker is slow, not silent.
        self._heard(new)
        rest = splits - new
        if over.is_done:
            if over.succeeded():
                self._heard(rest)
                rest = frozenset()
            elif isinstance(over.exception, (UnreachableError, ResponseTimeoutError)):
                for split in rest & self._silent.keys():
                    self._silent[split] = self._silent[split]._replace(failure=over.exception)
                rest = frozenset()
            elif not wanted.isdisjoint(rest):
                raise over.exception
        return question._replace(splits=rest)

    def _heard(self, splits: Set[Split]) -> None:
        for split in splits:
            self._silent.pop(split, None)

    def _forget_unwanted(self) -> None:
        """Forget splits that no call has asked about for the time limit: their topics may be gone, and made again."""
        since = self._called_at - self._limit_seconds
        self._silent = {split: at for split, at in self._silent.items() if at.wanted_at > since}
        self._late = {split: late for split, late in self._late.items() if late.at > since}
        self._open = [each for each in self._open if not self._silent.keys().isdisjoint(each.splits)]

    @property
    def _limit_seconds(self) -> float:
        return self._limit_ms / 1_000

    def _soon(self) -> Deadline:
        return Deadline.after(min(_PATIENCE_MS, self._limit_ms))

    def _limit(self) -> Deadline:
        return Deadline.after(self._limit_ms, API_TIMEOUT)


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
