"""Progress reports on the wire: tasks tell the runner what they saw, over authenticated TCP.

A connection carries one message. The server sends a random challenge; the client answers with an HMAC-SHA256 of
challenge and body under a key that only the runner and its tasks have, then the body, JSON; the server says ``OK``.
Sizes and times are bounded on both sides. A report that does not arrive costs nothing but time: the runner looks at the
range again by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from watermark_source.errors import shortened
from watermark_source.eventtime.disorder import BUCKETS, Stretch
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.late_rows import BOUNDS_MS, NONE_LATE, LateRows
from watermark_source.planning.report import Coverage, RangeReport, cover
from watermark_source.planning.split import Split, SplitRange

_log = logging.getLogger(__name__)

_CHALLENGE = 32
_LENGTH = struct.Struct(">I")
_DIGEST = hashlib.sha256().digest_size
_MAX_BODY = 4 * 1024 * 1024
"""Reports of ten thousand splits with the longest names; a peer without the key can make us hold this much."""
_TIMEOUT = 5.0
"""Seconds for a whole message."""
_MAX_CONNECTIONS = 64
_PAUSE = 0.1
"""Seconds after a connection could not be accepted."""
_TELL_SECONDS = 10.0
"""Between two warnings about strangers."""
_SLOW = 1.0
"""Seconds after which a failure counts as slow: of a host that is down, or of a name nobody knows."""
_AVOIDED_SECONDS = 120.0
"""So long an address that failed slowly is not tried again by this process."""
_OK = b"OK"

_avoided_until: dict[tuple[str, int], float] = {}


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Where and how a task reports."""

    hosts: tuple[str, ...]
    port: int
    key: bytes = field(repr=False)


class ReportBook:
    """The reports received and not yet used, by split."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[Split, dict[SplitRange, RangeReport]] = {}

    def add(self, reports: Iterable[RangeReport]) -> None:
        """Keep reports; one for a range that is already known replaces it."""
        with self._lock:
            for report in reports:
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
        whole = known.get(wanted)
        return cover(wanted, known.values() if whole is None else (whole,))


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
                deadline = time.monotonic() + _TIMEOUT
                connection.settimeout(_TIMEOUT)
                challenge = secrets.token_bytes(_CHALLENGE)
                connection.sendall(challenge)
                digest = _receive(connection, _DIGEST, deadline)
                (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
                if length > _MAX_BODY:
                    raise ValueError(f"a report of {length} bytes")
                body = _receive(connection, length, deadline)
                if not hmac.compare_digest(digest, _sign(self._key, challenge, body)):
                    raise PermissionError("wrong key")
                self._book.add(_decode(body))
                connection.sendall(_OK)
        except (OSError, ValueError, EOFError) as error:
            self._tell(f"progress report from {peer} refused: {error}")
        finally:
            self._slots.release()


def send_reports(address: ReportAddress, reports: Sequence[RangeReport]) -> bool:
    """Send reports and wait for the acknowledgement; return whether it came. Never raises for the network's sake."""
    body = _encode(reports)
    now = time.monotonic()
    for host in address.hosts:
        # A worker serves many tasks: an address that leads nowhere is waited for once in a while, not by every task.
        if _avoided_until.get((host, address.port), 0.0) <= now and _deliver(host, address, body):
            return True
    _log.warning(
        "no progress report could be delivered to %s, port %d; the source will look at %d ranges again",
        " or ".join(address.hosts),
        address.port,
        len(reports),
    )
    return False


def _deliver(host: str, address: ReportAddress, body: bytes) -> bool:
    began = time.monotonic()
    try:
        with socket.create_connection((host, address.port), timeout=_TIMEOUT) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            deadline = time.monotonic() + _TIMEOUT
            challenge = _receive(connection, _CHALLENGE, deadline)
            connection.sendall(_sign(address.key, challenge, body) + _LENGTH.pack(len(body)) + body)
            return _receive(connection, len(_OK), deadline) == _OK
    # A name that no resolver can be asked for is a UnicodeError.
    except (OSError, EOFError, UnicodeError) as error:
        _log.info("progress report to %s:%d not delivered: %s", host, address.port, error)
        if isinstance(error, TimeoutError) or time.monotonic() - began > _SLOW:
            _avoid(host, address.port)
        return False


def _avoid(host: str, port: int) -> None:
    now = time.monotonic()
    for expired in [address for address, until in _avoided_until.items() if until <= now]:
        del _avoided_until[expired]
    _avoided_until[host, port] = now + _AVOIDED_SECONDS


def _sign(key: bytes, challenge: bytes, body: bytes) -> bytes:
    return hmac.new(key, challenge + body, hashlib.sha256).digest()


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size:
        # The deadline is for the whole message: a peer that sends a byte now and then does not keep its place.
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(min(size, 65_536))
        if not part:
            raise EOFError("the connection was closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _encode(reports: Sequence[RangeReport]) -> bytes:
    return json.dumps(
        [
            [
                r.range.split.log,
                r.range.split.number,
                r.range.start,
                r.range.end,
                r.max_event_time,
                r.rows,
                r.future_rows,
                [r.late.longest, r.late.total, *r.late.histogram] if r.late.histogram else [],
                r.undated_rows,
                r.marked,
                [[before, highest, *(n for pair in counts for n in pair)] for before, highest, counts in r.stretches],
            ]
            for r in reports
        ]
    ).encode()


def _decode(body: bytes) -> list[RangeReport]:
    """Return the reports of a message; raises ``ValueError`` for anything that no task can have seen."""
    try:
        return [_report(*entry) for entry in json.loads(body)]
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a report: {error}") from None


def _report(  # noqa: PLR0917 - the fields as they are on the wire
    log: object,
    number: object,
    start: object,
    end: object,
    highest: object,
    rows: object,
    future: object,
    late: object,
    undated: object,
    marked: object,
    stretches: object,
) -> RangeReport:
    if not isinstance(log, str):
        raise TypeError(f"a log with the name {shortened(log)}")
    found = RangeReport(
        range=SplitRange(Split(log, _integer(number)), _integer(start), _integer(end)),
        max_event_time=_moment(highest),
        rows=_integer(rows),
        future_rows=_integer(future),
        late=_late(late),
        undated_rows=_integer(undated),
        marked=_moment(marked),
        stretches=_stretches(stretches),
    )
    if found.range.end < found.range.start:
        raise ValueError(f"not a report: {found.range} ends before it begins")
    return found


def _late(told: object) -> LateRows:
    if not isinstance(told, list):
        raise TypeError(f"late rows as {shortened(told)}")
    if not told:
        return NONE_LATE
    longest, total, *histogram = map(_integer, told)
    if len(histogram) != len(BOUNDS_MS) + 1:
        raise ValueError(f"not a report: late rows in {len(histogram)} buckets")
    return LateRows(tuple(histogram), longest, total)


def _stretches(told: object) -> tuple[Stretch, ...]:
    if not isinstance(told, list) or not all(isinstance(each, list) for each in told):
        raise TypeError(f"disorder as {shortened(told)}")
    return tuple(_stretch(*each) for each in told)


def _stretch(before: object, highest: object, *counts: object) -> Stretch:
    buckets = [_integer(bucket) for bucket in counts[::2]]
    rows = [_integer(each, minimum=1) for each in counts[1::2]]
    if len(buckets) != len(rows) or sorted(set(buckets)) != buckets or any(b >= BUCKETS for b in buckets):
        raise ValueError(f"not a report: disorder in the buckets {shortened(buckets)}")
    return Stretch(_moment(before), _moment(highest), tuple(zip(buckets, rows, strict=True)))


def _moment(value: object) -> Millis | None:
    return None if value is None else Millis(_integer(value, minimum=MIN))


def _integer(value: object, *, minimum: int = 0) -> int:
    # What is kept here is part of the checkpoint soon, which holds 64 bits.
    if type(value) is not int or not minimum <= value <= MAX:
        raise ValueError(f"not a report: {shortened(value)} is no whole number from {minimum} to {MAX}")
    return value


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
