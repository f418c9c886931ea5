"""Receives the progress reports of tasks, and keeps them until they are used.

The messages are described in ``exchange/report_protocol.py``. A report that does not arrive costs nothing but time:
the runner looks at the range again by itself.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable

from watermark_source.planning.range_report import Coverage, RangeReport, cover, whole
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.exchange import report_protocol as protocol
from watermark_source.spark.exchange.report_protocol import ReportAddress

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 64
_PAUSE = 0.1
"""Seconds after a connection could not be accepted."""
_TELL_SECONDS = 10.0
"""Between two warnings about strangers."""


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
        """Return what the reports tell about a range."""
        return self.cover_each([wanted])[0]

    def cover_each(self, wanted: Iterable[SplitRange]) -> list[Coverage]:
        """Return what the reports tell about each range."""
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

    Listens where ``SPARK_LOCAL_IP`` says, by default everywhere, on the first of ``ports`` that is free, by default on
    any. Tasks are told ``host``, or the addresses this machine finds of itself.
    """

    def __init__(self, book: ReportBook, *, host: str | None = None, ports: range | None = None) -> None:
        self._book = book
        self._key = secrets.token_bytes(32)
        self._closed = False
        self._told_at = -math.inf
        self._untold = 0
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._socket = _listen(os.environ.get("SPARK_LOCAL_IP", ""), ports)
        bound, port = self._socket.getsockname()[:2]
        self.address = ReportAddress(_reachable_at(bound) if host is None else (host,), port, self._key)
        threading.Thread(target=self._accept, name="progress-reports", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        # shutdown wakes the thread blocked in accept; close alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError as error:
                if self._closed:
                    return
                # Too many open files, or a peer that was gone before it was accepted: the next one is welcome.
                _log.warning("no progress report can be received for a moment: %s", error)
                time.sleep(_PAUSE)
                continue
            if not self._slots.acquire(blocking=False):
                self._tell(f"progress report from {peer} turned away: {_MAX_CONNECTIONS} connections are open")
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection, peer), daemon=True).start()
            except RuntimeError as error:
                # Too many threads: what this task saw is looked at again, and the next one may find a thread.
                self._slots.release()
                connection.close()
                self._tell(f"progress report from {peer} turned away: {error}")
                time.sleep(_PAUSE)

    def _tell(self, what: str) -> None:
        """Warn at most once in a while: whoever scans ports makes thousands of connections."""
        now = time.monotonic()
        if now - self._told_at < _TELL_SECONDS:
            self._untold += 1
            return
        others, self._untold, self._told_at = self._untold, 0, now
        _log.warning("%s%s", what, f" ({others} more since the last time)" if others else "")

    def _serve(self, connection: socket.socket, peer: object) -> None:
        try:
            with connection:
                deadline = time.monotonic() + protocol.TIMEOUT
                connection.settimeout(protocol.TIMEOUT)
                challenge = secrets.token_bytes(protocol.CHALLENGE)
                connection.sendall(challenge)
                digest = protocol.receive(connection, protocol.DIGEST, deadline)
                (length,) = protocol.LENGTH.unpack(protocol.receive(connection, protocol.LENGTH.size, deadline))
                if length > protocol.MAX_BODY:
                    raise ValueError(f"a report of {length} bytes")
                body = protocol.receive(connection, length, deadline)
                if not hmac.compare_digest(digest, protocol.sign(self._key, challenge, body)):
                    raise PermissionError("wrong key")
                self._book.add(protocol.decode(body))
                connection.sendall(protocol.OK)
        except (OSError, ValueError, EOFError) as error:
            self._tell(f"progress report from {peer} refused: {error}")
        finally:
            self._slots.release()


def _listen(local: str, ports: range | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    for port in ports or (0,):
        try:
            return socket.create_server((local, port), family=family, backlog=_MAX_CONNECTIONS)
        except OSError as error:  # noqa: PERF203 - once, and few
            problem = error
    # Reports only save time: a query does not fail for want of them.
    _log.warning(
        "progress reports cannot be received where they should be (SPARK_LOCAL_IP %r, ports %s: %s); they are received "
        "on any port, which executors may not reach",
        local, ports, problem,
    )  # fmt: skip
    return socket.create_server(("", 0), backlog=_MAX_CONNECTIONS)


def _reachable_at(bound: str) -> tuple[str, ...]:
    if bound not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound to
        return (bound,)
    return tuple(dict.fromkeys(("127.0.0.1", *_outward_address(), socket.gethostname())))


def _outward_address() -> tuple[str, ...]:
    """Return this machine's address on the way out: its name may well stand for 127.0.1.1 in its own hosts file."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: a datagram socket only looks up its route. The address is reserved (RFC 5737).
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ()
        return (str(probe.getsockname()[0]),)
