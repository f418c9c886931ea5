"""Bodies of events read from their beginning on."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.wire import Scan
from tests.unit.mysql.binlog.length_encoded import NUMBERS


@pytest.mark.parametrize(("encoded", "number"), [*NUMBERS, (b"\xfe" + b"\1\2\3\4\5\6\7\x88", 0x8807_0605_0403_0201)])
def test_a_length_encoded_number_is_read_to_its_end_and_no_further(encoded: bytes, number: int) -> None:
    scan = Scan(encoded + b"\7")
    assert (scan.lenenc(), scan.at, scan.left, scan.byte()) == (number, len(encoded), 1, 7)
    with pytest.raises(IndexError):
        Scan(encoded[:-1]).lenenc()


@pytest.mark.parametrize("first", [0xFB, 0xFF])
def test_what_begins_no_length_is_refused(first: int) -> None:
    with pytest.raises(ValueError, match=f"{first:#x}"):
        Scan(bytes([first]) + bytes(8)).lenenc()


def test_bytes_are_taken_in_order_and_no_more_than_there_are() -> None:
    scan = Scan(b"abcdef")
    scan.skip(1)
    assert (scan.take(2), scan.uint(2), scan.at, scan.left) == (b"bc", 0x6564, 5, 1)
    with pytest.raises(IndexError):
        scan.take(2)
    assert (scan.take(1), scan.take(0), scan.left) == (b"f", b"", 0)
