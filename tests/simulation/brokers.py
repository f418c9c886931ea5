"""Simulated Kafka brokers and a simulated clock, for the driver's real look-ups of offsets.

What brokers do happens at its time. What the client does happens only while a call runs, as on kafka-python's event
loop: an answer that comes between two calls lies there until the next one.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Set
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from kafka.errors import (
    FencedLeaderEpochError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.metadata import MetadataResponse

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp, OffsetsRequest, OffsetsResponse
from pyspark_aligned_kafka.cluster.metadata import Leaders, TopicLookup
from pyspark_aligned_kafka.cluster.offset_lookup import OffsetLookupInTime, OffsetsInTime
from pyspark_aligned_kafka.cluster.retry import Deadline
from tests.simulation.log import SimulatedLog
from watermark_source.planning.split import Split

LIMIT_MS = 20_000


class Timeline:
    """The simulated clock, in seconds, and what is to happen."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def module(self) -> SimpleNamespace:
        """Return what stands for the module ``time``."""
        return SimpleNamespace(monotonic=self.monotonic, time=self.monotonic, sleep=self.advance)

    def at(self, moment: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._due, (max(moment, self.now), next(self._order), happens))

    @property
    def next_at(self) -> float | None:
        return self._due[0][0] if self._due else None

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, happens = heapq.heappop(self._due)
            happens()
        self.now = end


class Outcome:
    """What kafka-python's futures are to the look-ups."""

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: Exception | None = None
        self.then: list[Callable[[], None]] = []

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def end(self, value: Any = None, error: Exception | None = None) -> None:
        if not self.is_done:
            self.is_done, self.value, self.exception = True, value, error
            for each in self.then:
                each()

    def __await__(self) -> Generator[Outcome, None, Any]:
        if not self.is_done:
            yield self
        if self.exception is not None:
            raise self.exception
        return self.value


@dataclass
class Broker:
    """One broker; a request takes it ``delay`` seconds, and frozen it answers none until it is resumed."""

    delay: float = 0.01
    frozen: bool = False
    down: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Requests that it has received while it was frozen."""
    connected: list[Outcome] = field(default_factory=list)
    """Answers that are lost if it dies."""


class Brokers:
    """A cluster of three, one topic ``log``; partitions and their rows are those of a simulated log."""

    def __init__(self, log: SimulatedLog) -> None:
        self.time = Timeline()
        self.log = log
        self.brokers = {node: Broker() for node in range(3)}
        self.leaders = {split: (split.number % 3, 0) for split in log.splits}

    def create(self, split: Split, node: int) -> None:
        self.leaders[split] = node, 0

    def move(self, split: Split, node: int) -> None:
        self.leaders[split] = node, self.leaders[split][1] + 1

    def resume(self, node: int) -> None:
        broker = self.brokers[node]
        broker.frozen = broker.down = False
        waiting, broker.waiting = broker.waiting, []
        for each in waiting:
            self.time.at(self.time.now + broker.delay, each)

    def kill(self, node: int) -> None:
        """Its connections break."""
        broker = self.brokers[node]
        connected, broker.connected = broker.connected, []
        broker.down, broker.frozen, broker.waiting = True, False, []
        for answer in connected:
            answer.end(error=KafkaConnectionError("broken"))

    def receive(self, node: int, request: OffsetsRequest, answer: Outcome) -> None:
        broker = self.brokers[node]
        broker.connected.append(answer)

        def work() -> None:
            if broker.frozen:
                broker.waiting.append(work)
            elif not answer.is_done:
                answer.end(self._response(node, request))

        self.time.at(self.time.now + broker.delay, work)

    def _response(self, node: int, request: OffsetsRequest) -> OffsetsResponse:
        offsets: dict[Split, OffsetAndTimestamp] = {}
        errors: dict[Split, int] = {}
        for split in request.asked.wanted:
            leader, epoch = self.leaders.get(split, (None, 0))
            asked = request.asked.epochs.get(split)
            if split not in self.log.splits:
                errors[split] = UnknownTopicOrPartitionError.errno
            elif leader != node:
                errors[split] = NotLeaderForPartitionError.errno
            elif asked is not None and asked != epoch:
                errors[split] = (FencedLeaderEpochError if asked < epoch else UnknownLeaderEpochError).errno
            else:
                offsets[split] = OffsetAndTimestamp(self.log.splits[split].readable_end, None)
        return OffsetsResponse(0, offsets, errors)

    def metadata(self) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            topic.MetadataResponsePartition(
                version=9, error_code=0, partition_index=split.number, leader_id=node, leader_epoch=epoch
            )
            for split, (node, epoch) in self.leaders.items()
            if split in self.log.splits
        ]
        there = topic(version=9, error_code=0, name="log", is_internal=False, partitions=partitions)
        return MetadataResponse(version=9, brokers=[], topics=[there] if partitions else [])


class Client:
    """What look-ups use of ``Cluster``, on a simulated event loop that stands still between calls."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.time = brokers.time
        self._ready: list[tuple[Coroutine[Any, Any, Any], Outcome]] = []

    def run(self, work: Callable[[Deadline], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            return await work(Deadline.after(LIMIT_MS))

        over = self.begin(whole)
        while True:
            while self._ready:
                self._step(*self._ready.pop(0))
            if over.is_done:
                break
            assert self.time.next_at is not None, "a call that waits for nothing"
            self.time.advance(self.time.next_at - self.time.now)
        if over.exception is not None:
            raise over.exception
        return over.value

    def begin(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Outcome:
        outcome = Outcome()
        self._ready.append((work(*args), outcome))
        return outcome

    def _step(self, task: Coroutine[Any, Any, Any], outcome: Outcome) -> None:
        try:
            awaited: Outcome = task.send(None)
        except StopIteration as end:
            outcome.end(end.value)
        except Exception as error:  # noqa: BLE001 - for anyone who awaits it
            outcome.end(error=error)
        else:
            awaited.then.append(lambda: self._ready.append((task, outcome)))

    async def _sleep_until(self, moment: float) -> None:
        over = Outcome()
        self.time.at(moment, over.end)
        await over

    async def await_answer(self, answer: Outcome, deadline: Deadline) -> bool:
        either = Outcome()
        answer.then.append(either.end)
        if answer.is_done:
            either.end()
        self.time.at(deadline.at, either.end)
        await either
        if answer.exception is not None:
            raise answer.exception
        return answer.is_done

    def backoff(self, deadline: Deadline) -> Any:
        async def wait() -> bool:
            if deadline.left_ms <= 100:
                return False
            await self._sleep_until(self.time.now + 0.1)
            return True

        return SimpleNamespace(wait=wait)

    async def request(self, node: int, request: OffsetsRequest, deadline: Deadline) -> OffsetsResponse:
        if self.brokers.brokers[node].down:
            await self._sleep_until(self.time.now + 0.001)
            raise KafkaConnectionError("refused")
        answer = Outcome()
        self.brokers.receive(node, request, answer)
        self.time.at(deadline.at, lambda: answer.end(error=KafkaTimeoutError("no answer")))
        response: OffsetsResponse = await answer
        return response

    async def request_any(self, request: Callable[[], Any], deadline: Deadline, *, anyone: bool = False) -> Any:
        await self._sleep_until(self.time.now + 0.01)
        return self.brokers.metadata()

    def learn_brokers(self, metadata: Any) -> None: ...


class Admin(KafkaAdmin):
    """The real look-ups of offsets, of these brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self.client = cast(Any, Client(brokers))
        leaders = Leaders()
        topics = TopicLookup(self.client, leaders)
        self.lookup = OffsetLookupInTime(self.client, topics, leaders, limit_ms=LIMIT_MS, read_committed=False)

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        found: Mapping[Split, OffsetAndTimestamp] = self.client.run(
            lambda deadline: self.lookup.look_up(dict(wanted), deadline)
        )
        return found

    def list_offsets_in_time(self, wanted: Mapping[Split, int]) -> OffsetsInTime:
        found: OffsetsInTime = self.client.run(lambda deadline: self.lookup.look_up_in_time(wanted, deadline))
        return found

    def note_listed(self, splits: Set[Split]) -> None:
        self.lookup.requests.note_listed(splits)
