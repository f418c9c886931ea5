"""When transactions were committed, by the events that they begin with: plain, tagged, and MariaDB's."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import EVENT_FIELDS, HEADER_SIZE, SECONDS, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.gtid import commit_times
from pyspark_mysql_cdc_wm.binlog.wire import padded
from watermark_source.errors import CorruptDataError

MICROS = 1_700_000_000_123_457
PLAIN = bytes(17) + (7).to_bytes(8, "little")
SEQUENCE = b"\2" + bytes(16)
TIME = MICROS.to_bytes(7, "little")
WITH_ORIGINAL = (MICROS | 1 << 55).to_bytes(7, "little") + bytes(7)


def times(*begins: tuple[EventType, bytes]) -> list[int]:
    """Of events whose headers say 5 seconds, 6 and so on."""
    content, events = b"", np.zeros((len(begins), EVENT_FIELDS), np.int64)
    for i, (kind, body) in enumerate(begins):
        stop = len(content) + HEADER_SIZE + len(body)
        events[i, [START, STOP, TYPE, SECONDS]] = len(content), stop, kind, 5 + i
        content += bytes(HEADER_SIZE) + body
    return commit_times(padded(content), events, "log.000001").tolist()


def varint(number: int) -> bytes:
    """A number with as many ones at the low end of its first byte as bytes follow it."""
    size = max(1, -(-number.bit_length() // 7))
    if size > 8:
        return b"\xff" + number.to_bytes(8, "little")
    return (number << size | (1 << size - 1) - 1).to_bytes(size, "little")


def tagged(*fields: tuple[int, bytes], tag: bytes = b"nightly") -> tuple[EventType, bytes]:
    """With its number, 7, between its tag and the other fields."""
    named = [(0, varint(1)), (1, b"".join(varint(16 * i) for i in range(16))), (3, varint(len(tag)) + tag)]
    numbered = [*named, (2, varint(2 * 7)), *fields]
    body = varint(1) + varint(99) + varint(300) + b"".join(varint(field) + value for field, value in numbered)
    return EventType.GTID_TAGGED, body


def test_commit_times_are_to_the_microsecond_where_the_server_tells_them() -> None:
    for kind in (EventType.GTID, EventType.ANONYMOUS_GTID):
        assert times((kind, PLAIN + SEQUENCE + TIME), (kind, PLAIN + SEQUENCE + WITH_ORIGINAL)) == [MICROS] * 2
    assert times(tagged((4, varint(2)), (5, varint(4)), (6, varint(MICROS)), (7, varint(9)))) == [MICROS]
    assert times(tagged((6, varint(2**62)), (6, varint(1)))) == [2**62]
    assert times(tagged((6, varint(MICROS)), tag=b"")) == [MICROS]


def test_elsewhere_a_transaction_has_its_headers_second() -> None:
    old = PLAIN, PLAIN + SEQUENCE, PLAIN + SEQUENCE + TIME[:6], PLAIN + b"\1" + bytes(16) + TIME
    assert times(*((EventType.GTID, body) for body in old)) == [5_000_000, 6_000_000, 7_000_000, 8_000_000]
    assert times((EventType.MARIADB_GTID, bytes(13)), tagged()) == [5_000_000, 6_000_000]
    assert times(tagged((3, varint(1) + b"x"))) == [5_000_000]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EventType.GTID, PLAIN[:-1]),
        (EventType.MARIADB_GTID, bytes(12)),
        (EventType.GTID_TAGGED, b""),
        (EventType.GTID_TAGGED, varint(1) + varint(99)),
        (EventType.GTID_TAGGED, varint(1) + varint(99) + varint(0)),
        (EventType.GTID_TAGGED, tagged()[1] + b"\1"),
        (EventType.GTID_TAGGED, tagged()[1] + varint(5)),
        (EventType.GTID_TAGGED, tagged()[1] + varint(5) + varint(300)[:1]),
        (EventType.GTID_TAGGED, tagged()[1] + varint(1) + bytes(15)),
        (EventType.GTID_TAGGED, tagged((2, varint(1)))[1]),
        (EventType.GTID_TAGGED, tagged()[1] + varint(3)),
        (EventType.GTID_TAGGED, tagged()[1] + varint(3) + varint(9) + bytes(8)),
        (EventType.GTID_TAGGED, tagged()[1] + varint(3) + b"\xff" + b"\xff" * 8),
    ],
)
def test_an_event_that_ends_too_soon_or_has_a_number_below_zero_is_corrupt(kind: EventType, body: bytes) -> None:
    good = (EventType.GTID, PLAIN)
    for begins in ([(kind, body)], [good, (kind, body)]):
        with pytest.raises(CorruptDataError, match=r"log\.000001"):
            times(*begins)
