"""Numbers as MySQL writes them, read in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.wire import lenenc_at, padded, uint16_at, uint32_at, uint_at
from tests.unit.mysql.binlog.length_encoded import NUMBERS
from tests.unit.mysql.compiled_late import compiled_late
from watermark_source.machine_code.native import address_of

NONE = (0, -1)


@compiled_late("Tuple((int64, int64))(uint8[::1], int64, int64)")
def _lenenc(array: Any, start: Any, stop: Any) -> Any:
    return lenenc_at(address_of(array), start, stop)


@compiled_late("Tuple((int64, int64, int64))(uint8[::1], int64, int64)")
def _numbers(array: Any, at: Any, width: Any) -> Any:
    data = address_of(array)
    return uint16_at(data, at), uint32_at(data, at), uint_at(data, at, np.int64(width))


@pytest.mark.parametrize(("encoded", "number"), NUMBERS)
def test_a_length_encoded_number_ends_within_its_event_or_is_none(encoded: bytes, number: int) -> None:
    memory, stop = padded(b"abc" + encoded), 3 + len(encoded)
    assert _lenenc(memory, 3, stop) == (number, stop)
    assert _lenenc(padded(b"abc" + encoded + b"\xff"), 3, stop + 1) == (number, stop)
    for end in range(3, stop):
        assert _lenenc(memory, 3, end) == NONE


@pytest.mark.parametrize("first", [0xFB, 0xFF])
def test_what_begins_no_length_is_none(first: int) -> None:
    assert _lenenc(padded(bytes([first]) + bytes(8)), 0, 9) == NONE


def test_numbers_begin_with_their_lowest_byte() -> None:
    memory = padded(b"\xff\1\2\3\4\5\6\7\x88\xff")
    assert _numbers(memory, 1, 3) == (0x201, 0x4030201, 0x30201)
    assert _numbers(memory, 1, 7)[2] == 0x7060504030201
    # One of eight bytes may come out negative.
    assert _numbers(memory, 1, 8)[2] == 0x8807_0605_0403_0201 - 2**64
