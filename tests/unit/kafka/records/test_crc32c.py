"""CRC-32C: both ways to compute it give what the standard states."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.records import record_batches
from watermark_source.machine_code import compiler, native

# RFC 3720, B.4.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]

# Which teaches numba the helpers of decoders.
assert compiler
_checksum: Any = record_batches.checksum
_by_tables: Any = record_batches.by_tables
_address_of: Any = native.address_of
_finish: Any = record_batches.finish


@numba.njit
def native_sum(data: Any, start: Any, stop: Any) -> Any:
    return _checksum(_address_of(data), start, stop)


@numba.njit
def portable_sum(data: Any, start: Any, stop: Any) -> Any:
    address = _address_of(data)
    crc, at = _by_tables(address, start, stop)
    return _finish(crc, address, at, stop)


def bitwise(data: bytes) -> int:
    """The definition, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data or b"\0"), np.uint8)


@pytest.mark.parametrize("way", [native_sum, portable_sum])
@pytest.mark.parametrize(("data", "crc"), KNOWN)
def test_vectors_of_the_standard(way: Any, data: bytes, crc: int) -> None:
    assert way(array(data), 0, len(data)) == crc


@given(st.binary(max_size=900), st.integers(0, 20), st.integers(0, 20))
def test_any_stretch_has_the_defined_sum(data: bytes, skip: int, drop: int) -> None:
    start, stop = min(skip, len(data)), max(min(skip, len(data)), len(data) - drop)
    expected = bitwise(data[start:stop])
    assert native_sum(array(data), start, stop) == expected
    assert portable_sum(array(data), start, stop) == expected


@pytest.mark.parametrize("size", [767, 768, 769, 6143, 6144, 6145, 20_000])
def test_long_stretches_where_streams_are_joined(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert native_sum(array(data), 0, size) == portable_sum(array(data), 0, size) == bitwise(data)
