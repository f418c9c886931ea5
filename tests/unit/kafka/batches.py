"""Record batches of magic 2 built byte by byte, as the fixtures of the decoder's tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


@dataclass(frozen=True, slots=True)
class Rec:
    """One record; ``delta`` is its offset's distance from the batch's base."""

    delta: int
    value: bytes | None = b"v"
    key: bytes | None = None
    millis: int = 0
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_table_entry(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Zigzag varint."""
    rest = ((number << 1) ^ (number >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(data: bytes | None) -> bytes:
    """Length and bytes, -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(rec: Rec, base_time: int) -> bytes:
    """A record without its own length."""
    headers = b"".join(sized(key) + sized(value) for key, value in rec.headers)
    return (
        b"\0"
        + varint(rec.millis - base_time)
        + varint(rec.delta)
        + sized(rec.key)
        + sized(rec.value)
        + varint(len(rec.headers))
        + headers
    )


def records_bytes(recs: Sequence[Rec], base_time: int = 0) -> bytes:
    """Records one after another."""
    return b"".join(sized(record_body(rec, base_time)) for rec in recs)


def batch(
    base: int,
    recs: Sequence[Rec],
    *,
    attributes: int = 0,
    last_delta: int | None = None,
    base_time: int = 0,
    max_time: int | None = None,
    producer: int = -1,
    payload: bytes | None = None,
    count: int | None = None,
    epoch: int = 0,
) -> bytes:
    """A whole batch with a right checksum; ``payload`` replaces the records (compressed or wrong on purpose)."""
    body = records_bytes(recs, base_time) if payload is None else payload
    newest = max((rec.millis for rec in recs), default=-1) if max_time is None else max_time
    delta = (recs[-1].delta if recs else 0) if last_delta is None else last_delta
    checked = (
        struct.pack(
            ">hiqqqhii", attributes, delta, base_time, newest, producer, 0, 0, len(recs) if count is None else count
        )
        + body
    )
    return struct.pack(">qiibI", base, 9 + len(checked), epoch, 2, crc32c(checked)) + checked


def marker(base: int, producer: int, *, abort: bool) -> bytes:
    """A transaction's end."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    return batch(base, [Rec(0, b"\0" * 6, key)], attributes=TRANSACTIONAL | CONTROL, producer=producer)
