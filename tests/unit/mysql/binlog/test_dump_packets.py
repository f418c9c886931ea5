"""Events in the packets of a dump: those of the file, and why a walk over them stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk, Stopped
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import PACKET_HEAD, Longs, padded
from tests.unit.mysql.recordings import MAGIC_SIZE, content
from watermark_source.errors import CorruptDataError

FEW = 6


def first_events(file: bytes, count: int) -> Iterator[bytes]:
    """Yield events as they lie back to back, each with its size in its header."""
    at = 0
    for _ in range(count):
        size = int.from_bytes(file[at + 9 : at + 13], "little")
        yield file[at : at + size]
        at += size


EVENTS = list(first_events(content("full"), FEW))
IN_FILE = [[event[4], int.from_bytes(event[13:17], "little")] for event in EVENTS]
"""Type and position of each, as its header has them."""


def packet(body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + b"\7" + body


PACKETS = [packet(b"\0" + event) for event in EVENTS]
SENT = b"".join(PACKETS)


def walker(capacity: int = 100) -> PacketWalk:
    return PacketWalk(position=MAGIC_SIZE, checksums=False, capacity=capacity)


def walked(sent: bytes, capacity: int = 100) -> tuple[Stopped, Longs, int]:
    return walker(capacity).walk(padded(sent), 0, len(sent), "log.000001")


def test_events_are_those_of_the_file_where_their_packets_have_them() -> None:
    why, events, at = walked(SENT)
    assert (why, at) == (Stopped.SHORT, len(SENT))
    assert events[:, [TYPE, POSITION]].tolist() == IN_FILE
    assert [SENT[event[START] : event[STOP] + 4] for event in events] == EVENTS


def test_a_packet_that_is_not_complete_waits_for_its_rest() -> None:
    second = len(PACKETS[0])
    for stop in (0, 1, PACKET_HEAD, PACKET_HEAD + 1, second - 1):
        assert [walked(SENT[:stop])[0], *walked(SENT[:stop])[2:]] == [Stopped.SHORT, 0]
    for stop in (second, second + PACKET_HEAD + 1, second + len(PACKETS[1]) - 1):
        _, events, at = walked(SENT[:stop])
        assert (len(events), at) == (1, second)
    walk, memory = walker(), padded(SENT)
    _, first, at = walk.walk(memory, 0, second + 9, "log.000001")
    why, events, at = walk.walk(memory, at, len(SENT), "log.000001", held=len(first))
    assert (why, len(events), at) == (Stopped.SHORT, FEW, len(SENT))
    assert events[:, POSITION].tolist() == [position for _, position in IN_FILE]


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (packet(b"\xff" + bytes(8)), Stopped.ERROR),
        (packet(b"\xfe"), Stopped.END),
        (packet(b"\xfe" + bytes(7)), Stopped.END),
        (b"\xff\xff\xff\7\0" + bytes(9), Stopped.LONG),
        (b"\xfe\xff\xff\7\0" + bytes(9), Stopped.SHORT),
    ],
)
def test_a_walk_stops_at_what_is_no_event(last: bytes, why: Stopped) -> None:
    found, events, at = walked(SENT + last + SENT)
    assert (found, len(events), at) == (why, FEW, len(SENT))


def test_a_walk_stops_when_the_table_is_full() -> None:
    assert walked(SENT, capacity=FEW)[0] == Stopped.SHORT
    why, events, at = walked(SENT, capacity=FEW - 1)
    assert (why, len(events), at) == (Stopped.FULL, FEW - 1, len(SENT) - len(PACKETS[-1]))


@pytest.mark.parametrize(
    "broken",
    [
        packet(b"\1" + EVENTS[1]),
        packet(b"\xfe" + EVENTS[1]),
        packet(b"\xfe" + bytes(8)),
        packet(b"\0" + bytes(3)),
        packet(b"\0" + EVENTS[1] + b"\0"),
        packet(b"\0" + EVENTS[1][:-1]),
        packet(b"\0" + EVENTS[1][: HEADER_SIZE - 1]),
        packet(b"\0" + EVENTS[1][:-1] + b"\0"),
    ],
)
def test_what_does_not_fit_its_packet_or_its_checksum_is_corrupt(broken: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"log\.000001 after position \d+"):
        walked(PACKETS[0] + broken)


def test_an_event_may_have_a_header_alone() -> None:
    stop = bytes(4) + bytes([EventType.STOP]) + bytes(4) + b"\x13\0\0\0" + b"\x17\0\0\0" + bytes(2)
    why, events, _ = walked(packet(b"\0" + stop))
    assert (why, events[:, [TYPE, POSITION]].tolist()) == (Stopped.SHORT, [[EventType.STOP, MAGIC_SIZE + len(stop)]])
    assert len(walker().one_event(padded(stop), 0, len(stop), "log.000001")) == 1


def test_an_event_of_several_packets_is_tabulated_as_one() -> None:
    walk = walker()
    for at, event in enumerate(EVENTS):
        (found,) = walk.one_event(padded(b"abc" + event), 3, 3 + len(event), "log.000001")
        assert found[[START, STOP]].tolist() == [3, 3 + len(event) - 4]
        assert found[[TYPE, POSITION]].tolist() == IN_FILE[at]
    for wrong in (EVENTS[1][:-1], EVENTS[1] + b"\0", EVENTS[1][: HEADER_SIZE - 1]):
        with pytest.raises(CorruptDataError, match=r"log\.000001 after position"):
            walker().one_event(padded(wrong), 0, len(wrong), "log.000001")
