"""Receives the progress reports of tasks, and keeps them until they are used.

The messages are described in ``report_protocol.py``. A report that does not arrive costs only time: the driver reads
the range again.

Anything may connect to the port. One thread serves all connections; one that has not proved within half a second that
it knows the key of this query is closed, and earlier if its place is needed. Until then it holds 68 bytes.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from watermark_source.planning.range_report import Coverage, RangeReport, cover, whole
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark import report_protocol as protocol
from watermark_source.spark.report_protocol import ReportAddress
from watermark_source.spark.unexamined_query import warn_of_unexamined
from watermark_source.spark_process import note_query

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 256
_PAUSE = 0.1
"""Seconds after a connection could not be accepted."""
_LOG_SECONDS = 10.0
"""Between two warnings about connections that were closed."""
_PIECE = 1 << 16


class ReportBook:
    """The reports received and not yet used, by split."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[Split, dict[SplitRange, RangeReport]] = {}

    def add(self, arrived: Iterable[RangeReport]) -> None:
        """Keep reports; one for a range that is already known replaces it."""
        with self._lock:
            for report in arrived:
                self._reports.setdefault(report.range.split, {})[report.range] = report

    def cover(self, wanted: SplitRange) -> Coverage:
        """Return the reports about a range."""
        return self.cover_each([wanted])[0]

    def cover_each(self, wanted: Iterable[SplitRange]) -> list[Coverage]:
        """Return the reports about each range."""
        with self._lock:
            return [self._cover(each) for each in wanted]

    def forget(self, *splits: Split) -> None:
        """Drop the reports of splits: they are part of the watermarks now."""
        with self._lock:
            for split in splits:
                self._reports.pop(split, None)

    def _cover(self, wanted: SplitRange) -> Coverage:
        known = self._reports.get(wanted.split, {})
        report = known.get(wanted)
        return cover(wanted, known.values()) if report is None else whole(report)


class ReportServer:
    """Receives reports into a book until closed.

    Listens at the driver's address (``driver_address``), by default at the addresses that this machine knows of itself,
    on the first of ``ports`` that is free, by default on any. Tasks are given ``host``, or else those addresses.
    """

    def __init__(self, book: ReportBook, *, host: str | None = None, ports: range | None = None) -> None:
        self._book = book
        self._key = secrets.token_bytes(32)
        self._closed = False
        self.run: str | None = None
        """The id of the query's run, once a task has reported it."""
        self._peers: dict[socket.socket, _Peer] = {}
        self._strangers = _Strangers()
        self._selector = selectors.DefaultSelector()
        self._wakes, self._waker = socket.socketpair()
        bound, reachable = _addresses(driver_settings())
        self._listeners = _listen(bound, ports)
        if reachable is None:
            reachable = tuple(dict.fromkeys(each.getsockname()[0] for each in self._listeners))
        self.address = ReportAddress(
            reachable if host is None else (host,), self._listeners[0].getsockname()[1], self._key
        )
        for each in (self._wakes, *self._listeners):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="progress-reports", daemon=True).start()

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def strangers(self) -> str | None:
        """Return which connections that proved nothing were closed since the last call; ``None`` if there were none."""
        return self._strangers.take()

    def _run(self) -> None:
        while not self._closed:
            until = min((each.until for each in self._peers.values()), default=math.inf)
            ready = self._selector.select(None if until == math.inf else max(0.0, until - time.monotonic()))
            # Before deadlines: where this process stood still, what arrived in time is there.
            now = time.monotonic()
            for key, _ in ready:
                if isinstance(key.data, _Peer):
                    self._serve(key.data)
                elif key.fileobj is not self._wakes:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
            for peer in [each for each in self._peers.values() if each.until <= now]:
                self._refuse(peer, "nothing more came in time" if peer.proven else protocol.UNPROVEN)
        for each in (*self._peers, *self._listeners, self._wakes, self._waker):
            each.close()
        self._selector.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            # Too many open files, or a peer that was gone before it was accepted: the next one is welcome.
            self._strangers.log(f"no progress report can be received for a moment: {error}")
            if stranger := self._oldest_stranger():
                self._refuse(stranger, "its place was needed for another connection")
            time.sleep(_PAUSE)
            return
        peer = _Peer(connection, str(address[0]))
        if len(self._peers) >= _MAX_CONNECTIONS:
            # Connections that have proven the key end by themselves.
            stranger = self._oldest_stranger() or peer
            self._refuse(stranger, "its place was needed for another connection")
            if stranger is peer:
                return
        try:
            connection.setblocking(False)
            connection.sendall(peer.challenge)
        except OSError:
            connection.close()
            return
        self._peers[connection] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _oldest_stranger(self) -> _Peer | None:
        return next((each for each in self._peers.values() if not each.proven), None)

    def _serve(self, peer: _Peer) -> None:
        """Read what has arrived of a message, and answer one that is whole."""
        if peer.connection not in self._peers:
            return
        try:
            while peer.missing:
                part = peer.connection.recv(min(peer.missing, _PIECE))
                if not part:
                    raise EOFError("the connection was closed")
                peer.received += part
                if not peer.missing and not peer.proven:
                    peer.prove(self._key)
            body = peer.body()
            if (source := protocol.unexamined_source(body)) is not None:
                warn_of_unexamined(source)
            else:
                self._book.add(protocol.decode(body))
                sender = protocol.sender_of(body)
                self.run = sender.run or self.run
                note_query(sender.query)
            peer.connection.sendall(protocol.OK)
            self._drop(peer)
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001 - what one connection sends must not end the reports of all others
            self._refuse(peer, str(error))

    def _refuse(self, peer: _Peer, why: str) -> None:
        if not peer.proven:
            self._strangers.add(peer.address, why)
        self._drop(peer)
        self._strangers.log(
            f"a connection from {peer.address} to port {self.address.port}, where progress reports are received, was "
            f"refused: {why}"
        )

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.connection, None) is not None:
            self._selector.unregister(peer.connection)
        peer.connection.close()


class _Peer:
    """One connection, and what it has sent so far."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.challenge = secrets.token_bytes(protocol.CHALLENGE)
        self.until = time.monotonic() + protocol.PROOF_TIMEOUT
        self.received = bytearray()
        self.header: protocol.Header | None = None

    @property
    def proven(self) -> bool:
        """Whether it knows the key."""
        return self.header is not None

    @property
    def missing(self) -> int:
        """Bytes of the header, and behind it of the body, that have not come yet."""
        whole = protocol.HEADER if self.header is None else self.header.length
        return whole - len(self.received)

    def prove(self, key: bytes) -> None:
        """Read the header; raises ``PermissionError`` or ``ValueError`` for one that was not made with the key."""
        self.header = protocol.read_header(key, self.challenge, bytes(self.received))
        self.received.clear()
        # The time limit is for the whole message, so a peer that sends a byte now and then does not keep its place.
        self.until += protocol.TIMEOUT

    def body(self) -> bytes:
        """Return the body; raises ``ValueError`` for one that is not the header's."""
        assert self.header is not None
        return self.header.checked(bytes(self.received))


class _Strangers:
    """Connections that were closed: counted until asked for, and logged at most once in a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._last = 0, ""
        self._logged_at, self._unlogged = -math.inf, 0

    def add(self, address: str, why: str) -> None:
        with self._lock:
            self._count, self._last = self._count + 1, f"the last from {address}: {why}"

    def take(self) -> str | None:
        with self._lock:
            count, self._count = self._count, 0
            return f"{count} ({self._last})" if count else None

    def log(self, text: str) -> None:
        """Warn at most once in a while: a port scanner makes thousands of connections."""
        now = time.monotonic()
        if now - self._logged_at < _LOG_SECONDS:
            self._unlogged += 1
            return
        others, self._unlogged, self._logged_at = self._unlogged, 0, now
        _log.warning("%s%s", text, f" ({others} more since the last such line)" if others else "")


_BIND, _HOST = "spark.driver.bindAddress", "spark.driver.host"


def driver_settings() -> dict[str, str]:
    """Return where Spark's driver listens and how executors reach it, as far as its command line shows.

    Spark gives a source's process none of its settings. It is a child of the driver's JVM, whose command line has those
    that ``spark-submit``, PySpark's builder and the entry points of containers were given.
    """
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        words = []
    pairs = [each.removeprefix("-D") for each in words if each.startswith(("spark.", "-Dspark.")) and "=" in each]
    found = dict(pair.split("=", 1) for pair in pairs)
    return {name: found[name].strip("[]") for name in (_BIND, _HOST) if found.get(name)}


def _addresses(settings: dict[str, str]) -> tuple[list[str], tuple[str, ...] | None]:
    """Return where to listen, and how tasks reach it; ``None`` for the same addresses."""
    bound = settings.get(_BIND) or settings.get(_HOST) or os.environ.get("SPARK_LOCAL_IP", "")
    reached = settings.get(_HOST)
    if bound and bound not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound to
        return [bound], None if reached is None else (reached,)
    own = ["127.0.0.1", *_outward_addresses()]
    if bound:
        return [bound], (reached,) if reached else (*own, socket.gethostname())
    return own, None


def _listen(addresses: list[str], ports: range | None) -> list[socket.socket]:
    """Return sockets that listen at each of the addresses, all at one port."""
    problem: OSError | None = None
    # A port that is free at one address may be in use at another.
    for port in ports or (0,) * 20:
        try:
            return _at_port(addresses, port)
        except OSError as error:
            problem = error
    # Reports only save time: a query does not fail for want of them.
    _log.warning(
        "progress reports cannot be received where they should be (%s, ports %s: %s); they are received at this "
        "machine's own addresses and any port, which executors may not reach",
        " and ".join(addresses), ports or "any", problem,
    )  # fmt: skip
    for fallback in (["127.0.0.1", *_outward_addresses()], ["127.0.0.1"]):
        with contextlib.suppress(OSError):
            return _at_port(fallback, 0)
    return [socket.create_server(("127.0.0.1", 0), backlog=_MAX_CONNECTIONS)]


def _at_port(addresses: list[str], port: int) -> list[socket.socket]:
    listening: list[socket.socket] = []
    try:
        for address in addresses:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            listening.append(socket.create_server((address, port), family=family, backlog=_MAX_CONNECTIONS))
            port = listening[0].getsockname()[1]
    except OSError:
        for each in listening:
            each.close()
        raise
    return listening


def _outward_addresses() -> list[str]:
    """Return this machine's address on the way out: its name may well stand for 127.0.1.1 in its own hosts file."""
    found: list[str] = []
    # Reserved addresses (RFC 5737, RFC 3849). A datagram socket sends nothing here: it only looks up its route.
    for family, anywhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((anywhere, 9))
            found = found or [str(probe.getsockname()[0])]
    if not found:
        # No way out, as in a closed network: what the machine's name stands for.
        with contextlib.suppress(OSError):
            found = [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return [each for each in dict.fromkeys(found) if each != "127.0.0.1"]
