"""Any bytes at a live report server: it survives, and the next honest report arrives.

An input: a byte for how to connect, then what is sent. With the right key it is signed: JSON of any kind.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from typing import Any

from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.hostile_json import document
from watermark_source.planning.range_report import RangeReport, RowTotals
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark import report_protocol as protocol
from watermark_source.spark.driver import report_server
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.executor import reading
from watermark_source.spark.executor.reading import send_reports

_ORIGINALS: list[Any] = [
    json.loads(
        next(
            protocol.messages(
                [RangeReport(SplitRange(Split("orders", n), 0, 10), Millis(99), RowTotals(read=10, future=1))]
            )
        )
    )
    for n in range(3)
]
_FLOOD = 300
"""Connections at once; more than the server serves."""
_BETWEEN_FLOODS = 30.0
_MOST_THREADS = 100
_SECONDS = 10.0

# So long a silent peer is borne with; five seconds for each input would be too long here.
protocol.TIMEOUT = 0.5
for _module in (report_server, reading):
    logging.getLogger(_module.__name__).setLevel(logging.CRITICAL)

_book = ReportBook()
_server = ReportServer(_book)
_flooded_at = 0.0
_crashes: list[object] = []
threading.excepthook = _crashes.append
_honest = RangeReport(SplitRange(Split("honest", 0), 0, 10), Millis(7), RowTotals(read=10))


def check(data: bytes) -> str:
    """Send an input; return what the server kept of it."""
    bits = Bits(data)
    match bits.byte() % 8:
        case 0:
            _send(bits.rest(), half_open=False)
        case 1:
            _send(bits.rest(), half_open=True)
        case 2:
            _sign_and_send(bits.rest(), cut=0)
        case 3:
            cut = bits.byte()
            _sign_and_send(bits.rest(), cut=cut)
        case 4:
            _flood_now_and_then(bits.rest())
        case _:
            _sign_and_send(document(_ORIGINALS, bits).encode(), cut=0)
    _expect_an_honest_report()
    return repr(_kept())


def _expect_an_honest_report() -> None:
    _book.forget(_honest.range.split)
    end = time.monotonic() + _SECONDS
    while not send_reports(_server.address, [_honest]):
        # After a flood, until what holds the places has been closed.
        reading._avoided_until.clear()
        assert time.monotonic() < end, "the server takes no report any more"
        time.sleep(0.05)
    assert not _book.cover(_honest.range).missing
    assert not _crashes, _crashes
    assert threading.active_count() < _MOST_THREADS


def _kept() -> list[object]:
    """Return what the book states of every range an input could report about; all of it must be possible."""
    found: list[object] = []
    for split, kept in list(_book._reports.items()):
        for report in kept.values():
            assert 0 <= report.range.start <= report.range.end < 2**63, report
            assert 0 <= report.rows.read < 2**63, report
            assert 0 <= report.rows.future < 2**63, report
            assert report.max_event_time is None or MIN <= report.max_event_time <= MAX, report
            found.append(_book.cover(report.range))
        if split != _honest.range.split:
            _book.forget(split)
    return found


def _connect() -> tuple[socket.socket, bytes]:
    connection = socket.create_connection(("127.0.0.1", _server.address.port), timeout=5)
    return connection, connection.recv(32)


def _send(data: bytes, *, half_open: bool) -> None:
    connection, _ = _connect()
    with connection, contextlib.suppress(OSError):
        connection.sendall(data)
        if half_open:
            connection.shutdown(socket.SHUT_WR)
        else:
            # A reset instead of an orderly end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _sign_and_send(body: bytes, *, cut: int) -> None:
    connection, challenge = _connect()
    with connection, contextlib.suppress(OSError):
        message = protocol.header(_server.address.key, challenge, body) + body
        connection.sendall(message[: len(message) - cut] if cut else message)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(2)


def _flood_now_and_then(data: bytes) -> None:
    """Open more connections than there are places; seldom, as they stay taken until the server's patience ends."""
    global _flooded_at
    if time.monotonic() < _flooded_at + _BETWEEN_FLOODS:
        return
    _flooded_at = time.monotonic()
    with contextlib.ExitStack() as held:
        for _ in range(_FLOOD):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", _server.address.port), timeout=5))
            with contextlib.suppress(OSError):
                connection.sendall(data)
