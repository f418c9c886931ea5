"""A TCP proxy on loopback between a client and a real server, which does what a broken network does.

Each connection has a fate from its beginning: bytes come late, in small pieces or slowly, and after so many of them it
is reset, or one side or both hear nothing more. The same seed gives the n-th connection the same fate.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Final

from services.local_server import free_ports

_BLOCK: Final = 65_536
_SHORT_PIECES: Final = 64
"""Of what is received together so many pieces are short: frames begin there, and a megabyte of single bytes takes long.
"""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER by which ``close`` sends RST."""


class Break(Enum):
    """How a connection ends before its time."""

    RESET = auto()
    """Both ends get RST, in the middle of whatever was on its way."""
    CLOSED = auto()
    """Both ends get FIN there."""
    SILENCE = auto()
    """Nothing arrives any more at either end and both stay open, as after the other machine is gone without FIN."""
    SERVER_UNHEARD = auto()
    """What the client sends arrives, and nothing of what the server sends."""
    CLIENT_UNHEARD = auto()
    """What the server sends arrives, and nothing of what the client sends."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What the network does to one connection, in both directions."""

    delay_seconds: float = 0.0
    """Before each piece."""
    piece_bytes: int = _BLOCK
    bytes_per_second: float | None = None
    breaks: Break | None = None
    after_bytes: int = 0
    """How many have passed in both directions when it breaks. With 0 and ``SILENCE`` it is accepted, and that is all.
    """


CALM: Final = Fate()
"""Nothing happens to the connection."""


def random_fates(seed: int, *, most_bytes: int = 200_000, calm: float = 0.2) -> Callable[[int], Fate]:
    """Return the fates of connections by their number; about ``calm`` of them suffer nothing.

    Most breaks come early: a login has a few hundred bytes, a response up to ``most_bytes``.
    """

    def fate(number: int) -> Fate:
        chance = random.Random(f"{seed} {number}")
        if chance.random() < calm:
            return CALM
        breaks = chance.choice((*Break, None))
        return Fate(
            delay_seconds=chance.choice((0.0, 0.0, 0.0, 0.001, 0.01)),
            piece_bytes=chance.choice((1, 3, 1_000, _BLOCK, _BLOCK)),
            bytes_per_second=chance.choice((None, None, None, 1e6)),
            breaks=breaks,
            after_bytes=0 if breaks is None else int(most_bytes ** chance.random()) - 1,
        )

    return fate


class TcpProxy:
    """Listens on ``port`` from the beginning; all of it runs in one thread until ``close``.

    ``server`` and ``fates`` may be changed at any time: they count for connections from then on.
    """

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        """``server`` may be set later: one that has to know the proxy's port starts after it."""
        self.server = server
        self.fates: Callable[[int], Fate] = lambda _: CALM
        self.host = "127.0.0.1"
        (self.port,) = free_ports(1)
        self.accepted = 0
        self._links: set[_Link] = set()
        self._listener = socket.create_server((self.host, self.port), backlog=256)
        self._listener.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="TCP proxy", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def open_clients(self) -> int:
        """How many connections their client has not closed, and the network has not reset."""
        return sum(link.is_held for link in tuple(self._links))

    def break_open(self, how: Break) -> None:
        """Break all connections that are open now."""

        def break_each() -> None:
            for link in tuple(self._links):
                link.break_now(how)

        self._loop.call_soon_threadsafe(break_each)

    def close(self) -> None:
        """Reset all connections and stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.create_task(self._accept())
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._listener.close()
        self._loop.close()

    async def _accept(self) -> None:
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            client.setblocking(False)
            link = _Link(self._loop, client, self.fates(self.accepted))
            self.accepted += 1
            self._links.add(link)
            link.task = self._loop.create_task(link.run(self.server))
            # A task that is cancelled before it has begun runs nothing of its own.
            link.task.add_done_callback(partial(self._end, link))

    def _end(self, link: _Link, _: asyncio.Task[None]) -> None:
        self._links.discard(link)
        link.close()


class _Link:
    """One connection: the client's socket, and one to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: socket.socket, fate: Fate) -> None:
        self._loop, self._client, self._fate = loop, client, fate
        self._server = socket.socket()
        self._server.setblocking(False)
        self._passed = 0
        self._broken: Break | None = None
        self._resets = True
        self.is_held = True
        self.task: asyncio.Task[None] | None = None

    def break_now(self, how: Break) -> None:
        self._fate = replace(self._fate, breaks=how, after_bytes=self._passed)
        self._broken = how
        if how in (Break.RESET, Break.CLOSED) and self.task is not None:
            self.task.cancel()

    async def run(self, address: tuple[str, int] | None) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            for each in (self._client, self._server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._note(0)
            if self._broken is Break.SILENCE or address is None:
                await self._pass(self._client, self._server)
                return
            await self._loop.sock_connect(self._server, address)
            heard = self._loop.create_task(self._pass(self._server, self._client))
            heard.add_done_callback(self._end_if_failed)
            try:
                await self._pass(self._client, self._server)
                self.is_held = False
                if self._broken is None:
                    await heard
                    self._resets = False
            finally:
                heard.cancel()

    def close(self) -> None:
        """Close both sockets, with RST unless both sides have ended or it is to be FIN."""
        self.is_held = False
        for each in (self._client, self._server):
            if self._resets and self._broken is not Break.CLOSED:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            each.close()

    def _end_if_failed(self, heard: asyncio.Task[None]) -> None:
        if not heard.cancelled() and heard.exception() is not None and self.task is not None:
            self.task.cancel()

    async def _pass(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what arrives until the source is closed or the connection breaks."""
        is_client = source is self._client
        lost = (Break.SILENCE, Break.CLIENT_UNHEARD if is_client else Break.SERVER_UNHEARD)
        while data := await self._loop.sock_recv(source, _BLOCK):
            for piece in _pieces(data, self._fate.piece_bytes):
                await self._wait(len(piece))
                if self._broken not in lost:
                    # A direction that continues after the break loses none of its bytes.
                    is_cut = self._broken is None and self._fate.breaks in (*lost, Break.RESET, Break.CLOSED)
                    left = max(0, self._fate.after_bytes - self._passed)
                    await self._loop.sock_sendall(target, piece[:left] if is_cut else piece)
                self._note(len(piece))
                if self._broken in (Break.RESET, Break.CLOSED):
                    assert self.task is not None
                    self.task.cancel()
                    return
        if self._broken in lost:
            # The end does not arrive either: the other side waits until it gives up.
            return
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    async def _wait(self, size: int) -> None:
        rate = self._fate.bytes_per_second
        seconds = self._fate.delay_seconds + (0.0 if rate is None else size / rate)
        if seconds:
            await asyncio.sleep(seconds)

    def _note(self, size: int) -> None:
        self._passed += size
        if self._fate.breaks is not None and self._passed >= self._fate.after_bytes:
            self._broken = self._fate.breaks


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    short = data[: size * _SHORT_PIECES]
    for at in range(0, len(short), size):
        yield short[at : at + size]
    if len(data) > len(short):
        yield data[len(short) :]
