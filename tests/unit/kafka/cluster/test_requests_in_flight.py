"""Look-ups that are slow: who asked gets the answer, however late, and only who was listened to is an error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import pytest
from kafka.errors import TopicAuthorizationFailedError

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster import offset_lookup
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp
from pyspark_aligned_kafka.cluster.offset_lookup import RequestsInFlight
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import RefusedError, ResponseTimeoutError
from watermark_source.planning.availability import SILENCES
from watermark_source.planning.split import Split

A, B, C, D = (Split("t", number) for number in range(4))
LIMIT = 0.6
NO_LIMIT_MS = 200_000
"""For what no limit ends, however long this process stands still."""


class Brokers:
    """Leaders that answer after ``seconds``, or with ``errors``; a limit of 0.6 s, patience of 60 ms."""

    def __init__(self) -> None:
        self.cluster = Cluster(parse_settings({"kafka.bootstrap.servers": "localhost:1"}))
        self.in_flight = RequestsInFlight(self.cluster, int(LIMIT * 1_000))
        self.seconds: dict[Split, float] = {}
        self.steps: dict[Split, int] = {}
        """So many times it has to be sent something more, and answers after half a millisecond."""
        self.limit = LIMIT
        self.held: set[Split] = set()
        """Splits whose leaders do not answer before they are taken out of it."""
        self.errors: dict[Split, Exception] = {}
        self.begun: Counter[Split] = Counter()
        """Questions about each."""

    async def look_up(
        self, part: Mapping[Split, int], deadline: Deadline, arrived: dict[Split, OffsetAndTimestamp]
    ) -> None:
        self.begun.update(part.keys())
        for split in part:
            await self.look_one_up(split)
            arrived[split] = OffsetAndTimestamp(7, None)

    async def look_one_up(self, split: Split) -> None:
        wait = self.seconds.get(split, 0.0)
        assert self.cluster._net is not None
        await self.cluster._net.sleep(min(wait, self.limit))
        while split in self.held:
            await self.cluster._net.sleep(0.005)
        for _ in range(self.steps.get(split, 0)):
            await self.cluster._net.sleep(0.0005)
        if wait > LIMIT:
            raise ResponseTimeoutError(f"no offset of {split}")
        if split in self.errors:
            raise self.errors.pop(split)

    def ends(self, *wanted: Split, one_leader: bool = False) -> tuple[set[Split], set[Split]]:
        """Return which splits are reported, and which late; ``one_leader``: has all, and shows them in order."""

        async def work(_: Deadline) -> tuple[set[Split], set[Split]]:
            late = await self.in_flight.receive(set(wanted))
            asked = [{split: -1} for split in wanted if split not in self.in_flight.splits]
            if one_leader and asked:
                asked = [{split: spec for part in asked for split, spec in part.items()}]
            parts = [(part.keys(), partial(self.look_up, part)) for part in asked]
            return set(await self.in_flight.send(parts)), set(late)

        return self.cluster.run(work)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    monkeypatch.setattr(offset_lookup, "_PATIENCE_MS", 60)
    monkeypatch.setattr(offset_lookup, "_UNSERVED_SECONDS", 0.2)
    made = Brokers()
    yield made
    made.cluster.close()


def _ask_for(seconds: float, brokers: Brokers) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        brokers.ends(A, B)
        brokers.ends(A)
        time.sleep(0.02)


def test_one_that_takes_longer_than_a_trigger_is_late_each_time_and_no_error(brokers: Brokers) -> None:
    brokers.seconds[B] = 0.4
    late = 0
    for _ in range(10):
        late += B in brokers.ends(A, B)[1]
        time.sleep(0.25)
    assert late >= 2


def test_a_silent_one_is_an_error_though_others_are_asked_about_in_between(brokers: Brokers) -> None:
    brokers.seconds[B] = 60
    begun = time.monotonic()
    with pytest.raises(ResponseTimeoutError, match="no offset of t-1"):
        _ask_for(20 * LIMIT, brokers)
    assert time.monotonic() - begun >= LIMIT


@pytest.mark.parametrize(("own_limit", "questions"), [(LIMIT, 2), (LIMIT - 0.05, 2), (LIMIT / 3, 4)])
def test_a_silent_one_is_an_error_after_the_limit_though_its_question_may_end_earlier(
    brokers: Brokers, own_limit: float, questions: int
) -> None:
    brokers.seconds[B], brokers.limit = 60, own_limit
    begun = time.monotonic()
    with pytest.raises(ResponseTimeoutError, match="no offset of t-1"):
        _ask_for(20 * LIMIT, brokers)
    lasted = time.monotonic() - begun
    assert lasted >= LIMIT
    # When one is over there is one more. Where this process stood still meanwhile, the limit begins again.
    assert brokers.begun[B] <= questions + (lasted - LIMIT) / own_limit


def test_a_silent_one_is_an_error_though_each_call_waits_for_it_as_long_as_the_limit(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_lookup, "_PATIENCE_MS", 60_000)
    brokers.seconds[B], brokers.limit = 60, 1.1 * LIMIT
    begun = time.monotonic()
    with pytest.raises(ResponseTimeoutError, match="no offset of t-1"):
        _ask_for(20 * LIMIT, brokers)
    assert brokers.begun[B] <= 4 + (time.monotonic() - begun) / LIMIT


def test_one_that_answers_in_many_steps_is_listened_to_between_calls(brokers: Brokers) -> None:
    brokers.seconds[B], brokers.steps[B] = 0.1, 40
    brokers.in_flight._limit_ms = NO_LIMIT_MS
    calls = 1
    assert B not in brokers.ends(A, B)[0]
    while not any(B in reported for reported in brokers.ends(B)):
        calls += 1
        assert calls <= 20
        time.sleep(0.15)


def test_what_one_leader_tells_is_taken_though_it_does_not_report_all(brokers: Brokers) -> None:
    brokers.seconds[B] = 60
    assert brokers.ends(A, B, one_leader=True) == ({A}, set())
    # And late.
    brokers.seconds[C], brokers.seconds[D] = 0.3, 60
    heard: set[Split] = set()
    while C not in heard:
        heard.update(*brokers.ends(C, D, one_leader=True))
        time.sleep(0.02)
    assert heard == {C}
    with pytest.raises(ResponseTimeoutError, match=r"no offset of t-1$"):
        _ask_for(20 * LIMIT, brokers)


def test_an_error_of_long_ago_is_for_no_one(brokers: Brokers) -> None:
    brokers.held, brokers.errors[B] = {B}, TopicAuthorizationFailedError("t")
    assert B not in brokers.ends(A, B)[0]
    brokers.held.clear()
    begun = time.monotonic()
    while time.monotonic() < begun + 2 * LIMIT:
        time.sleep(0.25)
        brokers.ends(A)
    # What no one has asked for until the last call is forgotten in the next.
    for _ in range(2):
        brokers.ends(A)
    assert B not in brokers.errors
    while B not in brokers.ends(A, B)[0]:
        assert time.monotonic() < begun + 120


def test_an_error_is_for_who_asks_about_its_split(brokers: Brokers) -> None:
    brokers.held, brokers.errors[B] = {B}, TopicAuthorizationFailedError("t")
    brokers.in_flight._limit_ms = NO_LIMIT_MS
    assert B not in brokers.ends(A, B)[0]
    brokers.held.clear()
    end = time.monotonic() + 60
    while B in brokers.errors:
        assert time.monotonic() < end
        time.sleep(0.02)
        brokers.ends(A)
    with pytest.raises(RefusedError):
        brokers.ends(A, B)


def test_one_that_no_one_asked_about_for_long_begins_anew(brokers: Brokers) -> None:
    brokers.seconds[B] = 60
    assert B not in brokers.ends(A, B)[0]
    end = time.monotonic() + 120
    while brokers.in_flight._table.within(SILENCES):
        assert time.monotonic() < end
        brokers.ends(A)
        time.sleep(0.02)
    # It was made again, and its broker is slow just now.
    brokers.seconds[B], brokers.held = 0.0, {B}
    assert B not in brokers.ends(A, B)[0]
    brokers.held.clear()
    while B not in brokers.ends(A, B)[0]:
        assert time.monotonic() < end


def test_after_a_long_time_without_a_call_there_is_the_whole_limit(brokers: Brokers) -> None:
    brokers.seconds[B] = 60
    assert B not in brokers.ends(A, B)[0]
    time.sleep(1.5 * LIMIT)
    brokers.seconds[B] = 0.15
    assert B in brokers.ends(A, B)[0]


@pytest.mark.parametrize("one_leader", [True, False])
def test_an_answer_ends_a_silence_though_its_call_fails_for_another(brokers: Brokers, one_leader: bool) -> None:
    brokers.seconds[B] = brokers.seconds[C] = 60
    assert brokers.ends(B, C) == (set(), set())
    brokers.seconds[C] = 0.0
    end, has_failed = time.monotonic() + 30, False
    # Where this process stands still, an answer comes too late for its call.
    while not has_failed or brokers.in_flight._table.within(SILENCES) != {B}:
        assert time.monotonic() < end
        try:
            brokers.ends(*((C, B) if one_leader else (B, C)), one_leader=one_leader)
        except ResponseTimeoutError:
            has_failed = True


def test_a_call_that_fails_leaves_nothing_in_flight_that_it_did_not_wait_for(brokers: Brokers) -> None:
    brokers.errors[A] = TopicAuthorizationFailedError()
    brokers.held.add(B)
    with pytest.raises(RefusedError):
        brokers.ends(A, B)
    assert not brokers.in_flight.splits
    brokers.held.clear()
    assert brokers.ends(A, B) == ({A, B}, set())
