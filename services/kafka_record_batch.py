"""Record batches of format version 2, built from arrays by one compiled pass.

Layout: Kafka protocol guide, "Record Batch" and "Record". Written independently of the connector's decoder, so that
each checks the other; the broker checks both.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import numba
import numpy as np
import numpy.typing as npt

from services.errors import ServiceError

Bytes = npt.NDArray[np.uint8]
Millis = npt.NDArray[np.int64]

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# Partition leader epoch and magic stand before the checksum; everything from the attributes on is under it.
_BEFORE_CHECKSUM = struct.Struct(">qiib")
_UNDER_CHECKSUM = struct.Struct(">hiqqqhii")
_NO_PRODUCER = -1
# Of one record besides key and value: six varints of at most 10 bytes in all cases that fit a batch, two bytes.
_RECORD_OVERHEAD = 40
_POLYNOMIAL = 0x82F63B78


def numbered_values(first: int, count: int, size: int) -> Bytes:
    """Values of ``size`` bytes: eight bytes with the record's number (big endian), then letters that compress by half.

    The same arguments give the same bytes. Sizes under eight keep the number's low bytes.
    """
    rows = np.empty((count, size), dtype=np.uint8)
    _fill_values(rows, np.uint64(first))
    return rows


def encode_batch(
    timestamps: Millis,
    values: Bytes,
    keys: Bytes | None = None,
    *,
    header: tuple[str, Bytes] | None = None,
    codec: str = "none",
) -> bytes:
    """One record batch: record i has ``timestamps[i]`` (milliseconds), ``values[i]`` and ``keys[i]`` (null when None).

    ``header`` is the name of one that each record has, with a value for each.

    Raises:
        ServiceError: an unknown codec, no record, or arrays of different length.
    """
    if codec not in CODECS:
        raise ServiceError(f"codec {codec!r}: accepted are {', '.join(CODECS)}")
    count = len(timestamps)
    if count == 0 or len(values) != count or (keys is not None and len(keys) != count):
        raise ServiceError(
            f"a batch needs as many values and keys as timestamps, and at least one: "
            f"{count} timestamps, {len(values)} values, {'no' if keys is None else len(keys)} keys"
        )
    key_rows = np.empty((count, 0), dtype=np.uint8) if keys is None else keys
    tails = np.zeros((count, 1), dtype=np.uint8) if header is None else _with_header(*header)
    size = values.shape[1] + key_rows.shape[1] + tails.shape[1] + _RECORD_OVERHEAD
    buffer = np.empty(count * size, dtype=np.uint8)
    used = _write_records(buffer, timestamps, values, key_rows, keys is not None, tails)
    records = compressed(buffer[:used].tobytes(), codec)
    body = (
        _UNDER_CHECKSUM.pack(
            CODECS[codec],
            count - 1,
            int(timestamps[0]),
            int(timestamps.max()),
            _NO_PRODUCER,
            _NO_PRODUCER,
            _NO_PRODUCER,
            count,
        )
        + records
    )
    head = _BEFORE_CHECKSUM.pack(0, len(body) + 9, -1, 2)
    return head + struct.pack(">I", crc32c(body)) + body


def _with_header(name: str, values: Bytes) -> Bytes:
    """Return what follows the value of each record: one header."""
    encoded = name.encode()
    # Zigzag varints of one byte.
    before = bytes([2, 2 * len(encoded)]) + encoded + bytes([2 * values.shape[1]])
    return np.hstack([np.tile(np.frombuffer(before, np.uint8), (len(values), 1)), values])


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli, RFC 3720 B.4)."""
    return int(_crc(np.frombuffer(data, dtype=np.uint8), _TABLES))


def compressed(plain: bytes, codec: str) -> bytes:
    """Records as Kafka's own producer packs them."""
    match codec:
        case "gzip":
            return bytes(cramjam.gzip.compress(plain, level=1))
        case "snappy":
            # Java clients frame snappy as xerial does: magic, two versions, then blocks with their length.
            block = bytes(cramjam.snappy.compress_raw(plain))
            return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
        case "lz4":
            # Kafka reads independent blocks only.
            frame = cramjam.lz4.Compressor(level=1, block_linked=False)
            frame.compress(plain)
            return bytes(frame.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(plain, level=3))
        case _:
            return plain


def _make_tables() -> npt.NDArray[np.uint32]:
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1).astype(np.uint32)
    tables = [row]
    for _ in range(7):
        tables.append((tables[-1] >> 8) ^ row[tables[-1] & 0xFF])
    return np.stack(tables)


_TABLES = _make_tables()

compiled: Any = numba.njit(cache=True, nogil=True)


@compiled
def _crc(data, tables):  # type: ignore[no-untyped-def]
    """Eight bytes a step, one table each (slicing by eight)."""
    crc = np.uint32(0xFFFFFFFF)
    at = 0
    while at + 8 <= data.size:
        low = crc ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, low & 0xFF]
            ^ tables[6, (low >> 8) & 0xFF]
            ^ tables[5, (low >> 16) & 0xFF]
            ^ tables[4, (low >> 24) & 0xFF]
            ^ tables[3, data[at + 4]]
            ^ tables[2, data[at + 5]]
            ^ tables[1, data[at + 6]]
            ^ tables[0, data[at + 7]]
        )
        at += 8
    while at < data.size:
        crc = tables[0, (crc ^ data[at]) & 0xFF] ^ (crc >> np.uint32(8))
        at += 1
    return crc ^ np.uint32(0xFFFFFFFF)


@compiled
def _varint_size(number):  # type: ignore[no-untyped-def]
    rest = (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> np.int64(63))
    size = 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled
def _write_varint(buffer, at, number):  # type: ignore[no-untyped-def]
    rest = (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> np.int64(63))
    while rest >= np.uint64(128):
        buffer[at] = np.uint8((rest & np.uint64(127)) | np.uint64(128))
        rest >>= np.uint64(7)
        at += 1
    buffer[at] = np.uint8(rest)
    return at + 1


@compiled
def _write_records(buffer, timestamps, values, keys, with_keys, tails):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    key_size = np.int64(keys.shape[1])
    value_size = np.int64(values.shape[1])
    key_length = key_size if with_keys else np.int64(-1)
    fixed = 1 + _varint_size(key_length) + key_size + _varint_size(value_size) + value_size + tails.shape[1]
    at = 0
    for i in range(timestamps.size):
        since = np.int64(timestamps[i] - timestamps[0])
        number = np.int64(i)
        at = _write_varint(buffer, at, np.int64(fixed + _varint_size(since) + _varint_size(number)))
        buffer[at] = 0
        at = _write_varint(buffer, at + 1, since)
        at = _write_varint(buffer, at, number)
        at = _write_varint(buffer, at, key_length)
        for k in range(key_size):
            buffer[at + k] = keys[i, k]
        at = _write_varint(buffer, at + key_size, value_size)
        for k in range(value_size):
            buffer[at + k] = values[i, k]
        at += value_size
        for k in range(tails.shape[1]):
            buffer[at + k] = tails[i, k]
        at += tails.shape[1]
    return at


@compiled
def _fill_values(rows, first):  # type: ignore[no-untyped-def]
    count, size = rows.shape
    numbered = min(8, size)
    for i in range(count):
        number = first + np.uint64(i)
        for k in range(numbered):
            rows[i, k] = np.uint8((number >> np.uint64(8 * (numbered - 1 - k))) & np.uint64(0xFF))
        state = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for k in range(numbered, size):
            # One xorshift step (Marsaglia) a byte; sixteen letters carry four bits each.
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            rows[i, k] = np.uint8(97) + np.uint8(state & np.uint64(15))
