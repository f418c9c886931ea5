"""Members of an alignment group behind a network that breaks: right answers from their store, or declared errors."""

from __future__ import annotations

import contextlib
import random
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TypeVar

import pytest

from services.postgres import Postgres, url_of
from services.tcp_proxy import CALM, Break, TcpProxy, random_fates
from services.wait_until import wait_until
from tests.integration.broken_network import Figures, leaves_nothing
from watermark_source.errors import UnreachableError
from watermark_source.group_store import store_waits
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.watermark import Millis

pytestmark = pytest.mark.service

_Answer = TypeVar("_Answer")

_LIMITS = {
    "CUT_AFTER": 0.5, "LONGEST": 0.2, "FIRST_ANSWER": 1.0, "SILENT_AFTER": 0.5, "SETTLING": 0.1, "COMING": 0.5,
    "LATE_SETTLING": 0.7,
}  # fmt: skip
_CALM_CUT_AFTER = 10
"""Seconds, once the network is whole: the machine may be busy."""
_CONNECT = 2
"""Seconds: PostgreSQL's driver takes no shorter limit."""
_LONGEST_CALL = 60.0
"""Three tries to connect, the one of the statement, and the time a busy machine takes."""
_AT_ONCE = 12


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in _LIMITS.items():
        monkeypatch.setattr(store_waits, name, seconds)


def _url(server: Postgres, proxy: TcpProxy) -> str:
    return f"{url_of(server).replace(f':{server.port}/', f':{proxy.port}/')}?connect_timeout={_CONNECT}"


def _who(group: str, name: str) -> Identity:
    return Identity(group, name, name, 1_000, 60_000, writer=uuid.uuid4().hex)


def _at(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


def _repeated(call: Callable[[], _Answer], tries: int = 10) -> _Answer:
    """Return what a call over a whole network answers: on a busy machine one may take longer than these limits."""
    try:
        return call()
    except UnreachableError:
        if tries == 1:
            raise
    return _repeated(call, tries - 1)


def exchanges(server: Postgres, seed: int) -> Figures:
    """Let one member exchange through the proxy, and another directly, which always knows what is right."""
    group, chance = uuid.uuid4().hex, random.Random(seed)
    errors, wrong, reported, heard = 0, [], 0, 0
    with (
        closing(TcpProxy((server.host, server.port))) as proxy,
        closing(GroupStore(database_of(_url(server, proxy)))) as store,
        closing(GroupStore(database_of(url_of(server)))) as other,
    ):
        here, there = _who(group, "here"), _who(group, "there")
        proxy.fates = random_fates(seed, most_bytes=20_000)
        end, calm = time.monotonic() + 1.5, False
        while True:
            if not calm and time.monotonic() >= end:
                calm, proxy.fates = True, lambda _: CALM
                proxy.break_open(Break.RESET)
                store_waits.CUT_AFTER = _CALM_CUT_AFTER
            reported += 1
            answer = _repeated(lambda: other.exchange(there, _at(reported)))  # noqa: B023 - called here and now
            if answer is None or (answer.minimum or 0) < heard:
                wrong.append(f"the other member got {answer} after {heard}")
            begun = time.monotonic()
            try:
                found = store.exchange(here, _at(reported))
                heard = reported
                if found is None or found.minimum != reported or found.slowest != "there":
                    wrong.append(f"got {found} where {reported} was told")
                if calm:
                    break
            except UnreachableError as error:
                errors += 1
                if store.location not in str(error):
                    wrong.append(f"names no place: {error}")
                if calm and time.monotonic() > end + 90:
                    wrong.append(f"still no answer: {error}")
                    break
            except Exception as error:  # noqa: BLE001 - what the test is about
                wrong.append(f"not declared: {type(error).__name__}: {error}")
                if calm:
                    break
            if time.monotonic() - begun > _LONGEST_CALL:
                wrong.append(f"a call took {time.monotonic() - begun:.1f} s")
            if not calm and chance.random() < 0.05:
                proxy.break_open(chance.choice(tuple(Break)))
            time.sleep(0.01)
        # The last reset may come only now.
        with contextlib.suppress(UnreachableError):
            store.leave(here)
        _repeated(lambda: other.leave(there))
        store.close()
        try:
            wait_until(lambda: proxy.open_clients == 0, 60, "closed connections")
        except Exception as left:  # noqa: BLE001 - a figure
            wrong.append(f"{proxy.open_clients} connections left: {left}")
    return Figures(1, errors, wrong=tuple(wrong))


def meetings(server: Postgres, seed: int) -> Figures:
    """Let two members keep each other up through two proxies: neither ever relies on more than the other reported."""
    group, chance, wrong, troubles = uuid.uuid4().hex, random.Random(seed), [], 0
    with (
        closing(TcpProxy((server.host, server.port))) as first,
        closing(TcpProxy((server.host, server.port))) as second,
    ):
        clients = {
            name: HeartbeatClient(GroupStore(database_of(_url(server, proxy))), _who(group, name))
            for name, proxy in (("a", first), ("b", second))
        }
        reported = {"a": 0, "b": 0}
        for number, proxy in enumerate((first, second)):
            proxy.fates = random_fates(seed + number, most_bytes=20_000)

        def turn(*, advances: bool) -> list[bool]:
            nonlocal troubles
            agreed = []
            for name, client in clients.items():
                other = "b" if name == "a" else "a"
                if advances:
                    reported[name] += chance.randrange(10)
                client.publish(_at(reported[name]), waits=True)
                found = client.others(Millis(-1))
                troubles += client.trouble is not None
                if found.ceiling is None and (found.members > 1 or (found.minimum or 0) > reported[other]):
                    wrong.append(f"{name} believes {found}, and {other} has reported {reported[other]}")
                agreed.append(found.ceiling is None and found.minimum == reported[other])
            time.sleep(0.02)
            return agreed

        end = time.monotonic() + 2
        while time.monotonic() < end:
            turn(advances=True)
            if chance.random() < 0.05:
                chance.choice((first, second)).break_open(chance.choice(tuple(Break)))
        for proxy in (first, second):
            proxy.fates = lambda _: CALM
            proxy.break_open(Break.RESET)
        store_waits.CUT_AFTER = _CALM_CUT_AFTER
        end = time.monotonic() + 120
        while not all(turn(advances=False)):
            if time.monotonic() > end:
                wrong.append(f"they do not meet again: {[client.trouble for client in clients.values()]}")
                break
        for client in clients.values():
            client.close()
    return Figures(1, troubles, wrong=tuple(wrong))


def _run(postgres: Postgres, history: Callable[[Postgres, int], Figures], seeds: range) -> Figures:
    # It counts what is left; the histories have proxies of their own.
    with closing(TcpProxy()) as none, leaves_nothing(none), ThreadPoolExecutor(_AT_ONCE) as threads:
        return sum(threads.map(partial(history, postgres), seeds), Figures())


_KINDS = pytest.mark.parametrize("history", [exchanges, meetings])


@_KINDS
def test_a_broken_network_to_the_store_makes_no_member_believe_what_was_not_reported(
    postgres: Postgres, history: Callable[[Postgres, int], Figures]
) -> None:
    figures = _run(postgres, history, range(_AT_ONCE))
    figures.check()
    assert figures.errors > 0


@_KINDS
@pytest.mark.long("test_a_broken_network_to_the_store_makes_no_member_believe_what_was_not_reported")
def test_however_often_the_network_breaks_members_believe_only_what_was_reported(
    postgres: Postgres, history: Callable[[Postgres, int], Figures], request: pytest.FixtureRequest
) -> None:
    count, first = (request.config.getoption(f"--{name}") for name in ("broken-networks", "networks-seed"))
    total = _run(postgres, history, range(first + _AT_ONCE, first + _AT_ONCE + count))
    sys.stdout.write(f"{total}\n")
    total.check()
