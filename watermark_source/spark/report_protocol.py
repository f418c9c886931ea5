"""Progress reports on the wire: tasks report the event times that they read to the runner, over authenticated TCP.

A task also reports, once, that nothing has examined its query (``unexamined_query``).

A connection carries one message; longer reports take several connections. The server sends a random challenge. The
client sends a header: the body's length, its SHA-256, and an HMAC-SHA256 of challenge and both under a key that only
the runner and its tasks have; so the server recognises a foreign sender before the body. Then the client sends the
body, JSON, and the server answers ``OK``. Sizes and times are bounded on both sides. The server is in ``driver``, the
client in ``executor``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from watermark_source.errors import shortened
from watermark_source.grouping import grouped
from watermark_source.planning.canonical_json import canonical, value_of
from watermark_source.planning.disorder import BUCKETS, DisorderSegment
from watermark_source.planning.range_report import BOUNDS_MS, NONE_LATE, LateRows, RangeReport, RowTotals
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import MAX, MIN, Millis

CHALLENGE = 32
LENGTH = struct.Struct(">I")
DIGEST = hashlib.sha256().digest_size
OK = b"OK"
_BETWEEN = b", "
HEADER = LENGTH.size + 2 * DIGEST
TIMEOUT = 5.0
"""Seconds for a whole message."""
PROOF_TIMEOUT = 0.5
"""Seconds for its header."""
UNPROVEN = "it did not prove within half a second that it knows the key of this query"
MAX_BODY = 4 * 1024 * 1024
"""Bytes of a message: reports of ten thousand splits with the longest names, whose disorder is not counted."""


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Where and how a task reports."""

    hosts: tuple[str, ...]
    port: int
    key: bytes = field(repr=False)


class Header(NamedTuple):
    """The length and the digest of a message's body, by its header."""

    length: int
    digest: bytes

    def checked(self, body: bytes) -> bytes:
        """Return the body; raises ``ValueError`` if it is another one."""
        if hashlib.sha256(body).digest() != self.digest:
            raise ValueError("a body that does not match its header")
        return body


def header(key: bytes, challenge: bytes, body: bytes) -> bytes:
    """Return the header of a body, which proves that the sender has the key and has received this challenge."""
    described = LENGTH.pack(len(body)) + hashlib.sha256(body).digest()
    return described + _proof(key, challenge, described)


def read_header(key: bytes, challenge: bytes, seen: bytes) -> Header:
    """Return a checked header; raises ``PermissionError`` for a wrong key, ``ValueError`` for too long a body."""
    described, proof = seen[:-DIGEST], seen[-DIGEST:]
    if not hmac.compare_digest(proof, _proof(key, challenge, described)):
        raise PermissionError("wrong key")
    (length,) = LENGTH.unpack_from(described)
    if not 0 < length <= MAX_BODY:
        raise ValueError(f"a report of {length} bytes")
    return Header(length, described[LENGTH.size :])


def _proof(key: bytes, challenge: bytes, described: bytes) -> bytes:
    return hmac.new(key, challenge + described, hashlib.sha256).digest()


def receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return the next ``size`` bytes; raises ``OSError`` if they do not arrive in time, ``EOFError`` at the end."""
    parts: list[bytes] = []
    while size:
        # The deadline is for the whole message: a peer that sends single bytes cannot extend it.
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(min(size, 65_536))
        if not part:
            raise EOFError("the connection was closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Sender(NamedTuple):
    """The query of a task, which the task knows and the runner does not."""

    query: str | None = None
    """Its name, for people."""
    run: str | None = None
    """The id of its run: that of no other query, nor of the same one after a restart."""


def messages(reports: Sequence[RangeReport], sender: Sender | None = None) -> Iterator[bytes]:
    """Yield reports as the bodies of as many messages as they need; only a single report can be longer than one."""
    named = [] if sender is None else [json.dumps({"query": shortened(sender.query or ""), "run": sender.run}).encode()]
    room = MAX_BODY - sum(map(len, named)) - 2 * len(_BETWEEN)
    for body in grouped(map(_encoded, reports), lambda encoded: len(encoded) + len(_BETWEEN), room):
        yield b"[" + _BETWEEN.join([*named, *body]) + b"]"


def _encoded(r: RangeReport) -> bytes:
    late = r.rows.late
    return json.dumps(
        [
            r.range.split.log,
            r.range.split.number,
            r.range.start,
            r.range.end,
            r.max_event_time,
            r.rows.read,
            r.rows.future,
            [late.longest, min(late.total, MAX), *late.histogram] if late.histogram else [],
            r.rows.undated,
            r.rows.malformed,
            r.marked,
            [[before, highest, *(n for pair in counts for n in pair)] for before, highest, counts in r.segments],
            r.summary,
        ]
    ).encode()


_UNEXAMINED = b'{"unexamined": '


def unexamined(source: str) -> bytes:
    """Return the message that a source's rows are read by a query whose plan nothing has examined."""
    return _UNEXAMINED + json.dumps(shortened(source)).encode() + b"}"


def unexamined_source(body: bytes) -> str | None:
    """Return the source of such a message, ``None`` of reports."""
    return str(json.loads(body)["unexamined"]) if body.startswith(_UNEXAMINED) else None


def decode(body: bytes) -> list[RangeReport]:
    """Return the reports of a message; raises ``ValueError`` for values that no task can report."""
    try:
        entries = json.loads(body)
        # A sender is not a message of its own.
        return [_report(entry) for entry in entries[1 if body.startswith(_SENDER) and len(entries) > 1 else 0 :]]
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"not a report: {error}") from None


_SENDER = b"[{"


def sender_of(body: bytes) -> Sender:
    """Return who has sent a message, by its own words; the body is JSON."""
    if not body.startswith(_SENDER):
        return Sender()
    named, _ = json.JSONDecoder().raw_decode(body.decode(), 1)
    query, run = named.get("query"), named.get("run")
    return Sender(str(query) if query else None, str(run) if run else None)


def _report(entry: Sequence[object]) -> RangeReport:
    """Return a report of its fields on the wire."""
    log, number, start, end, highest, read, future, late, undated, malformed, marked, segments, summary = entry
    if not isinstance(log, str):
        raise TypeError(f"a log with the name {shortened(log)}")
    found = RangeReport(
        range=SplitRange(Split(log, _integer(number)), _integer(start), _integer(end)),
        max_event_time=_moment(highest),
        rows=RowTotals(
            read=_integer(read),
            future=_integer(future),
            undated=_integer(undated),
            malformed=_integer(malformed),
            late=_late(late),
        ),
        marked=_moment(marked),
        segments=_segments(segments),
        summary=_summary(summary),
    )
    if found.range.end < found.range.start:
        raise ValueError(f"{found.range} ends before it begins")
    return found


def _late(value: object) -> LateRows:
    if not isinstance(value, list):
        raise TypeError(f"late rows as {shortened(value)}")
    if not value:
        return NONE_LATE
    longest, total, *histogram = map(_integer, value)
    if len(histogram) != len(BOUNDS_MS) + 1:
        raise ValueError(f"late rows in {len(histogram)} buckets")
    return LateRows(tuple(histogram), longest, total)


def _segments(value: object) -> tuple[DisorderSegment, ...]:
    if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
        raise TypeError(f"disorder as {shortened(value)}")
    return tuple(_segment(*each) for each in value)


def _segment(before: object, highest: object, *counts: object) -> DisorderSegment:
    buckets = [_integer(bucket) for bucket in counts[::2]]
    rows = [_integer(each, minimum=1) for each in counts[1::2]]
    if len(buckets) != len(rows) or sorted(set(buckets)) != buckets or any(b >= BUCKETS for b in buckets):
        raise ValueError(f"disorder in the buckets {shortened(buckets)}")
    return DisorderSegment(_moment(before), _moment(highest), tuple(zip(buckets, rows, strict=True)))


def _summary(value: object) -> str | None:
    if value is None or (isinstance(value, str) and canonical(value_of(value)) == value):
        return value
    raise ValueError(f"{shortened(value)} as a summary")


def _moment(value: object) -> Millis | None:
    return None if value is None else Millis(_integer(value, minimum=MIN))


def _integer(value: object, *, minimum: int = 0) -> int:
    # Reported values become part of the checkpoint, which holds 64 bits.
    if type(value) is not int or not minimum <= value <= MAX:
        raise ValueError(f"{shortened(value)} is not a whole number from {minimum} to {MAX}")
    return value
