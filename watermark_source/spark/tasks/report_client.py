"""Sends progress reports to the runner; what the messages are is described in ``exchange/report_protocol.py``."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence

from watermark_source.planning.range_report import RangeReport
from watermark_source.spark.exchange import report_protocol as protocol
from watermark_source.spark.exchange.report_protocol import ReportAddress
from watermark_source.spark_process import noted_query

_log = logging.getLogger(__name__)

_SLOW = 1.0
"""Seconds after which a failure counts as slow: of a host that is down, or of a name nobody knows."""
_ATTEMPTS = 3
"""Connections for a message whose place the server needed for others."""
_AVOIDED_SECONDS = 120.0
"""So long an address that failed slowly is not tried again by this process."""

_avoided_until: dict[tuple[str, int], float] = {}


def send_reports(address: ReportAddress, seen: Sequence[RangeReport]) -> bool:
    """Send reports and wait for the acknowledgement; return whether it came. Never raises for the network's sake."""
    if all(_is_delivered(address, body) for body in protocol.messages(seen, noted_query())):
        return True
    _log.warning(
        "no progress report could be delivered to %s, port %d; the source will look at up to %d ranges again",
        " or ".join(address.hosts),
        address.port,
        len(seen),
    )
    return False


def _is_delivered(address: ReportAddress, body: bytes) -> bool:
    now = time.monotonic()
    # A worker serves many tasks: an address that leads nowhere is waited for once in a while, not by every task.
    return any(
        _avoided_until.get((host, address.port), 0.0) <= now and _deliver(host, address, body) for host in address.hosts
    )


def _deliver(host: str, address: ReportAddress, body: bytes) -> bool:
    began = time.monotonic()
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            with socket.create_connection((host, address.port), timeout=protocol.TIMEOUT) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                deadline = time.monotonic() + protocol.TIMEOUT
                challenge = protocol.receive(connection, protocol.CHALLENGE, deadline)
                try:
                    connection.sendall(protocol.header(address.key, challenge, body) + body)
                    return protocol.receive(connection, len(protocol.OK), deadline) == protocol.OK
                except (EOFError, ConnectionError):
                    # A report server, which was busy with strangers, or this process was late.
                    if attempt == _ATTEMPTS or time.monotonic() - began > _SLOW:
                        raise
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
