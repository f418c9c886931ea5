"""A group of a thousand sources: what one of them takes to plan, and what all of them ask of the store."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, spread
from benchmarks.planning import ALIGNED, make_topics, measured
from services.kafka import kafka_service
from services.postgres import postgres_service, url_of
from watermark_source.errors import UnreachableError
from watermark_source.group_store import store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.store import Answer, GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.watermark import Millis

MEMBERS = 1_000
PLANNING_SPLITS = 8
_STATEMENTS = 300
_SECONDS = 10.0
_CONNECTIONS = 4
_DRIFT, _HOUR = 10_000, 3_600_000
_FAR_AHEAD = Millis(4_000_000_000_000)


def alignment_group(rounds: int) -> Iterator[Figure]:
    """Measure with the store in a file and in PostgreSQL."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        server = held.enter_context(postgres_service())
        urls = {"SQLite": f"sqlite:///{folder / 'alignment.sqlite'}", "PostgreSQL": url_of(server)}
        for name, url in urls.items():
            _fill(url)
            yield _one_statement(name, url)
            yield from _traffic(name, url)
            yield _all_members(name, url)
        with kafka_service() as kafka:
            variants = {f"one of {MEMBERS} sources, {name}": _options(url) for name, url in urls.items()}
            yield from measured(make_topics(kafka.bootstrap, PLANNING_SPLITS), rounds, variants)


class _CountedStore(GroupStore):
    exchanges = 0

    def exchange(self, identity: Identity, report: GroupMember | None, *, takes_over: bool = True) -> Answer | None:
        self.exchanges += 1
        return super().exchange(identity, report, takes_over=takes_over)


def _options(url: str) -> dict[str, str]:
    return {**ALIGNED, "alignmentStore": url}


def _identity(number: int) -> Identity:
    return Identity(ALIGNED["alignmentGroup"], f"{number:012x}", f"source {number}", _DRIFT, _HOUR)


def _fill(url: str) -> None:
    """Let all members but one have told something, that holds nobody for the hour they are taken to live."""
    store = GroupStore(database_of(url))
    for number in range(1, MEMBERS):
        store.exchange(_identity(number), GroupMember(MemberStatus.ACTIVE, Millis(_FAR_AHEAD + number)))
    store.close()


def _one_statement(name: str, url: str) -> Figure:
    store = GroupStore(database_of(url))
    took = []
    for turn in range(_STATEMENTS):
        begun = time.perf_counter()
        answer = store.exchange(_identity(0), GroupMember(MemberStatus.ACTIVE, Millis(turn)), takes_over=turn == 0)
        took.append((time.perf_counter() - begun) * 1_000)
        if answer is None or answer.members != MEMBERS - 1:
            raise RuntimeError(f"not the whole group: {answer}")
    store.leave(_identity(0))
    store.close()
    return Figure(
        f"{MEMBERS} members, {name}: one member's question", statistics.median(took), "ms", detail=spread(took, 2)
    )


def _traffic(name: str, url: str) -> Iterator[Figure]:
    """Count the statements a member sends, without traffic and while some of its splits wait."""
    for label, waits, interval in (
        ("without traffic", False, store_waits.LONGEST),
        ("while it waits", True, store_waits.SHORTEST),
    ):
        store = _CountedStore(database_of(url))
        client = HeartbeatClient(store, _identity(0))
        client.others(None)
        client.publish(GroupMember(MemberStatus.ACTIVE, Millis(1)), waits=waits)
        time.sleep(2 * store_waits.LONGEST)
        client.publish(GroupMember(MemberStatus.ACTIVE, Millis(1)), waits=waits)
        before = store.exchanges
        time.sleep(_SECONDS)
        counted = store.exchanges - before
        yield Figure(
            f"{MEMBERS} members, {name}: statements a member and interval, {label}", counted * interval / _SECONDS,
            "", at_most=1.1, detail=f"{counted} in {_SECONDS:g} s",
        )  # fmt: skip
        client.close()


def _all_members(name: str, url: str) -> Figure:
    """Ask for all members as fast as the store answers, on a few connections."""
    end = time.monotonic() + _SECONDS
    asked = [0] * _CONNECTIONS

    def ask(number: int) -> None:
        store = GroupStore(database_of(url))
        member = number
        while time.monotonic() < end:
            member = (member + _CONNECTIONS) % MEMBERS
            report = GroupMember(MemberStatus.ACTIVE, Millis(_FAR_AHEAD + asked[number]))
            # A member asks again within a second where others keep the file of SQLite locked.
            with contextlib.suppress(UnreachableError):
                store.exchange(_identity(member), report, takes_over=False)
                asked[number] += 1
        store.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Figure(
        f"{MEMBERS} members, {name}: statements the store answers, asked by one process", sum(asked) / _SECONDS, "a s",
        detail=f"{_CONNECTIONS} connections; a group of {MEMBERS} without traffic asks "
        f"{MEMBERS / store_waits.LONGEST:g} times a second",
    )  # fmt: skip
