"""GTID events: number and commit time, of each form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import EventType
from pyspark_mysql_cdc_wm.binlog.gtid import gtid_at
from pyspark_mysql_cdc_wm.binlog.wire import padded
from tests.unit.mysql.compiled_late import compiled_late
from watermark_source.machine_code.native import address_of

# A body of a server of version 9.1.0 with a tag, and what it states.
TAGGED = bytes.fromhex(
    "027800000002aaaaaaaa8888666644442222222222220473201b06147365636f6e64746573740"
    "8c10e0ad10e0c7f23354861bd260610590412a3ff0a"
)


@compiled_late("Tuple((int64, int64))(uint8[::1], int64, int64)")
def _gtid(array: Any, kind: Any, stop: Any) -> Any:
    number, time = gtid_at(address_of(array), kind, np.int64(0), stop)
    return number, time


def test_an_identifier_with_a_tag_gives_number_and_commit_time() -> None:
    assert _gtid(padded(TAGGED), EventType.GTID_TAGGED, len(TAGGED)) == (111111, 1731444683060515)


@pytest.mark.parametrize("stop", range(len(TAGGED)))
def test_an_identifier_cut_anywhere_is_refused_or_complete_up_to_there(stop: int) -> None:
    number, time = _gtid(padded(TAGGED[:stop]), EventType.GTID_TAGGED, stop)
    assert number in (-1, 111111)
    assert time in (0, 1731444683060515)


def number_of_bytes(value: int, size: int) -> bytes:
    """Encode a number in one to nine bytes, as tagged GTIDs have them."""
    ones = size - 1
    if ones == 8:
        return b"\xff" + value.to_bytes(8, "little")
    return ((value << size) | ((1 << ones) - 1)).to_bytes(size, "little")


@pytest.mark.parametrize("size", range(1, 10))
def test_numbers_of_a_tagged_identifier_may_have_up_to_nine_bytes(size: int) -> None:
    largest = 2 ** min(7 * size, 62) - 1
    field = number_of_bytes
    head = field(1, 1) + field(100, 2) + field(0, 1)
    uuid = field(1, 1) + b"".join(field(255, 2) for _ in range(16))
    number, tag = field(2, 1) + field(largest & ~1, size), field(3, 1) + field(3, 1) + b"abc"
    body = head + uuid + number + tag + field(6, 1) + field(largest, size)
    assert _gtid(padded(body), EventType.GTID_TAGGED, len(body)) == (largest // 2, largest)


@pytest.mark.parametrize("size", [4, 2**63 - 1, 2**64 - 1, 2**64 - 9])
def test_a_tag_longer_than_its_event_is_refused(size: int) -> None:
    body = number_of_bytes(0, 1) * 3 + number_of_bytes(3, 1) + number_of_bytes(size, 9) + b"abc"
    assert _gtid(padded(body), EventType.GTID_TAGGED, len(body)) == (-1, 0)


@pytest.mark.parametrize(("sequence", "time"), [(2, 5 | 1 << 54), (0, 0), (3, 0)])
def test_a_plain_identifier_tells_its_commit_time_where_sequence_numbers_come_before(sequence: int, time: int) -> None:
    # The highest bit of seven bytes states that the original time follows.
    body = bytes(17) + (8).to_bytes(8, "little") + bytes([sequence]) + bytes(16) + (5 | 3 << 54).to_bytes(7, "little")
    assert _gtid(padded(body), EventType.GTID, len(body)) == (8, time)
    assert _gtid(padded(body), EventType.GTID, len(body) - 1) == (8, 0)
    assert _gtid(padded(body), EventType.ANONYMOUS_GTID, 25) == (8, 0)
    assert _gtid(padded(body), EventType.GTID, 24) == (-1, 0)


def test_an_identifier_of_mariadb_has_no_commit_time() -> None:
    body = (2**60 + 8).to_bytes(8, "little") + bytes(5)
    assert _gtid(padded(body), EventType.MARIADB_GTID, 13) == (2**60 + 8, 0)
    assert _gtid(padded(body), EventType.MARIADB_GTID, 12) == (-1, 0)
