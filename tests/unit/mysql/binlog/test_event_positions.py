"""Where events end in a file, made by hand: rotations, heartbeats, events that a server leaves out, shortest sizes."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk
from pyspark_mysql_cdc_wm.binlog.event_headers import (
    ARTIFICIAL,
    HEADER_SIZE,
    POSITION,
    SECONDS,
    START,
    STOP,
    EventType,
    next_file,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.binlog.xa import begins_xa
from tests.unit.mysql.made_events import event, logged
from watermark_source.errors import CorruptDataError

BEFORE = 1_000
_CHECKSUM_ALGORITHM = b"\1"


def read(made: bytes, *, gaps: bool = False, position: int = BEFORE, checks: bool = True) -> tuple[PacketWalk, Longs]:
    walk = PacketWalk(position=position, checksums=False, check=checks, gaps=gaps)
    (row,) = walk.one_event(padded(made), 0, len(made), "log.000001")
    return walk, row


def test_a_header_tells_when_and_by_whom() -> None:
    _, row = read(event(EventType.XID, bytes(8), seconds=7, server=9))
    assert row[[START, STOP, SECONDS]].tolist() == [0, HEADER_SIZE + 8, 7]


@pytest.mark.parametrize(("sent", "name"), [(b"", ""), (b"log.000002", "log.000002"), (b"log\xff", "log\ufffd")])
def test_a_rotation_leads_to_another_file_and_a_position_of_eight_bytes_there(sent: bytes, name: str) -> None:
    made = event(EventType.ROTATE, (5 << 56).to_bytes(8, "little") + sent, flags=ARTIFICIAL)
    walk, row = read(made)
    assert (next_file(padded(made), row), walk.position, row[POSITION]) == (name, 5 << 56, BEFORE)


def test_a_rotation_that_has_no_whole_position_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="event size"):
        read(event(EventType.ROTATE, bytes(7), flags=ARTIFICIAL))


@pytest.mark.parametrize("kind", [EventType.HEARTBEAT, EventType.HEARTBEAT_V2])
def test_a_heartbeat_takes_no_room_in_a_file(kind: EventType) -> None:
    assert read(event(kind, b"log", end=BEFORE + 500))[0].position == BEFORE


@pytest.mark.parametrize(
    ("before", "end", "reached"),
    [
        (1_000, 1_500, 1_500),
        (1_000, 1_000, 1_000),
        # It states nothing, or was sent before what came last.
        (1_000, 0, 1_000),
        (1_000, 999, 1_000),
        (1_000, 1_000 + 0x7FFFFFFF, 1_000 + 0x7FFFFFFF),
        (1_000, 1_000 + 0x80000000, 1_000),
        ((1 << 32) - 256, 1, (1 << 32) + 1),
    ],
)
def test_behind_events_that_were_left_out_a_heartbeat_tells_how_far_the_file_is(
    before: int, end: int, reached: int
) -> None:
    assert read(event(EventType.HEARTBEAT, b"log", end=end), gaps=True, position=before)[0].position == reached


def test_a_heartbeat_of_the_second_kind_tells_it_elsewhere() -> None:
    assert read(event(EventType.HEARTBEAT_V2, b"log", end=BEFORE + 500), gaps=True)[0].position == BEFORE


def test_an_event_ends_where_its_size_leads_and_further_only_where_some_may_be_left_out() -> None:
    size = HEADER_SIZE + 8
    for end in (0, BEFORE + size):
        assert read(event(EventType.XID, bytes(8), end=end))[1][POSITION] == BEFORE + size
    later = event(EventType.XID, bytes(8), end=BEFORE + 900)
    assert read(later, gaps=True)[1][POSITION] == BEFORE + 900
    with pytest.raises(CorruptDataError, match="not where the events before it lead"):
        read(later)


def test_positions_go_on_beyond_the_32_bits_that_a_header_has() -> None:
    position = (3 << 32) - 20
    made = event(EventType.XID, bytes(8), end=HEADER_SIZE + 8 - 20)
    assert read(made, position=position)[1][POSITION] == (3 << 32) + HEADER_SIZE + 8 - 20


def test_what_was_made_for_a_dump_has_no_place_in_a_file() -> None:
    assert read(event(EventType.XID, bytes(8), end=77, flags=ARTIFICIAL))[1][POSITION] == BEFORE


@pytest.mark.parametrize("checksums", [0, 1])
def test_a_description_tells_whether_checksums_follow_in_its_last_byte_but_four(checksums: int) -> None:
    described = event(EventType.FORMAT_DESCRIPTION, bytes(57) + bytes([checksums]) + bytes(4))
    walk, row = read(described, checks=False)
    assert (row[STOP], walk.checksums) == (len(described) - 4, bool(checksums))
    # The first one of a dump within a file has no position, and takes no room there.
    assert row[POSITION] == BEFORE


def test_a_description_that_lacks_a_byte_is_refused() -> None:
    short = event(EventType.FORMAT_DESCRIPTION, bytes(57) + _CHECKSUM_ALGORITHM + bytes(3))
    walk = PacketWalk(position=BEFORE, checksums=False, check=False)
    with pytest.raises(CorruptDataError, match="event size"):
        walk.one_event(padded(bytes(40) + short), 40, 40 + len(short), "log.000001")


def test_a_checksum_needs_room_behind_the_header() -> None:
    walk = PacketWalk(position=BEFORE, checksums=True, check=False)
    short, least = event(EventType.XID, bytes(3)), event(EventType.XID, bytes(4))
    with pytest.raises(CorruptDataError, match="event size"):
        walk.one_event(padded(short), 0, len(short), "log.000001")
    (row,) = walk.one_event(padded(least), 0, len(least), "log.000001")
    assert row[STOP] == HEADER_SIZE


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("XA START X'61',X'',1", True),
        ("XA START ", True),
        ("XA START", False),
        ("XA END X'61',X'',1", False),
        ("BEGIN", False),
    ],
)
@pytest.mark.parametrize("variables", [b"", bytes(300)])
def test_a_transaction_of_xa_begins_with_a_statement_that_says_so(text: str, begins: bool, variables: bytes) -> None:
    block: tuple[Bytes, Longs] = logged(text, "X", variables=variables)
    assert begins_xa(block[0], block[1][2]) is begins


@pytest.mark.parametrize("number", [2, 3, 4, 5, *range(13, 20), *range(23, 43), *range(160, 164)])
def test_each_type_that_servers_number_and_this_reads_is_known(number: int) -> None:
    """The numbers of the server's manuals: a type that is not known, and not flagged as ignorable, ends a query."""
    assert EventType(number) == number
