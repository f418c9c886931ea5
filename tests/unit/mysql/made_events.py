"""Blocks of events made by hand."""

from __future__ import annotations

import struct

import numpy as np
import zstandard

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    EVENT_FIELDS,
    FLAGS,
    HEADER_SIZE,
    POSITION,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded


def logged(*texts: str | bytes, database: str = "shop", variables: bytes = b"") -> tuple[Bytes, Longs]:
    """A block of events: a statement behind a BEGIN and a commit, each with the number 100 times its place."""
    content = b""
    events = np.zeros((2 + len(texts), EVENT_FIELDS), np.int64)
    for i, text in enumerate(("BEGIN", None, *texts)):
        events[i, [START, TYPE, POSITION]] = len(content), EventType.QUERY if text else EventType.XID, 100 * i
        content += bytes(HEADER_SIZE)
        if text:
            name = database.encode()
            content += bytes(8) + bytes([len(name)]) + bytes(2) + len(variables).to_bytes(2, "little") + variables
            content += name + b"\0" + (text if isinstance(text, bytes) else text.encode())
        events[i, STOP] = len(content)
    return padded(content), events


def one_event(kind: int, body: bytes, *, flags: int = 0) -> tuple[Bytes, Longs]:
    """A block of one event at position 77."""
    memory = padded(bytes(HEADER_SIZE) + body)
    events = np.zeros((1, EVENT_FIELDS), np.int64)
    events[0, (START, STOP, TYPE, POSITION, FLAGS)] = (0, HEADER_SIZE + len(body), kind, 77, flags)
    return memory, events


def _long(number: int) -> bytes:
    return b"\xfe" + number.to_bytes(8, "little")


def payload_of(content: bytes, *, size: int | None = None, compression: int = 0) -> tuple[Bytes, Longs]:
    """A block of one compressed transaction."""
    packed = zstandard.ZstdCompressor().compress(content) if compression == 0 else content
    length = len(content) if size is None else size
    fields = b"\x02\x01" + bytes([compression])
    if compression >= 0xFB:
        fields = b"\x02\x03\xfc" + compression.to_bytes(2, "little")
    head = fields + b"\x03\x09" + _long(length) + b"\x01\x09" + _long(len(packed))
    return one_event(EventType.TRANSACTION_PAYLOAD, head + b"\x00" + packed)


def event(kind: int, body: bytes = b"", *, seconds: int = 0, server: int = 0, end: int = 0, flags: int = 0) -> bytes:
    """An event without a checksum, as it is in a compressed transaction."""
    header = struct.pack("<IBIIIH", seconds, kind, server, HEADER_SIZE + len(body), end, flags)
    return header + body


def bodies(memory: Bytes, events: Longs) -> list[bytes]:
    """What follows the header of each event."""
    return [memory[each[START] + HEADER_SIZE : each[STOP]].tobytes() for each in events]
