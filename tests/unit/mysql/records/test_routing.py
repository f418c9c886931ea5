"""Events to transactions and tables; identifiers with tags; compressed transactions that are damaged."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import zstandard

from pyspark_mysql_cdc_wm.binlog.events import (
    EVENT_FIELDS,
    FLAGS,
    HEADER_SIZE,
    IGNORABLE,
    POSITION,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.gtid import gtid_at
from pyspark_mysql_cdc_wm.binlog.payload import Unpacker
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.routing import Router
from tests.unit.mysql.recordings import charsets, surveyed
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.machine_code.native import address_of

# A body of a server of version 9.1.0 with a tag, and what it says.
TAGGED = bytes.fromhex(
    "027800000002aaaaaaaa8888666644442222222222220473201b06147365636f6e64746573740"
    "8c10e0ad10e0c7f23354861bd260610590412a3ff0a"
)


# Not kept between processes: what is kept goes by the sources of the package that the function is in.
@numba.njit("Tuple((int64, int64))(uint8[::1], int64, int64)")
def _gtid(array, kind, stop):
    number, time = gtid_at(address_of(array), kind, np.int64(0), stop)
    return number, time


def test_an_identifier_with_a_tag_tells_number_and_commit_time() -> None:
    assert _gtid(padded(TAGGED), EventType.GTID_TAGGED, len(TAGGED)) == (111111, 1731444683060515)


@pytest.mark.parametrize("stop", range(len(TAGGED)))
def test_an_identifier_cut_anywhere_is_refused_or_complete_up_to_there(stop: int) -> None:
    number, time = _gtid(padded(TAGGED[:stop]), EventType.GTID_TAGGED, stop)
    assert number in (-1, 111111)
    assert time in (0, 1731444683060515)


def _one_event(kind: int, body: bytes, *, flags: int = 0) -> tuple[Bytes, Longs]:
    memory = padded(bytes(HEADER_SIZE) + body)
    events = np.zeros((1, EVENT_FIELDS), np.int64)
    events[0, (START, STOP, TYPE, POSITION, FLAGS)] = (0, HEADER_SIZE + len(body), kind, 77, flags)
    return memory, events


@pytest.mark.parametrize("kind", [EventType.INCIDENT, 43, 100, 164, 165, 169, 255])
def test_an_event_that_is_not_known_must_be_flagged_to_be_passed_over(kind: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=rf"binlog f position 77 \(type {int(kind)}\)"):
        Router(lambda table: None).route(*_one_event(kind, b""), "f")
    assert Router(lambda table: None).route(*_one_event(kind, b"", flags=IGNORABLE), "f").tables.tolist() == [-1]


def test_rows_without_a_description_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="without a table map"):
        Router(lambda table: None).route(*_one_event(EventType.WRITE_ROWS, (5).to_bytes(6, "little") + bytes(9)), "f")


def test_the_event_that_only_frees_descriptions_is_no_rows() -> None:
    body = (0xFFFFFF).to_bytes(6, "little") + bytes(9)
    assert Router(lambda table: None).route(*_one_event(EventType.WRITE_ROWS, body), "f").tables.tolist() == [-1]


_ROWS = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)


def test_a_table_is_asked_about_once_a_shape() -> None:
    asked = []
    router = Router(lambda table: asked.append(table.table))  # type: ignore[func-returns-value]
    for opening in range(3):
        memory, events = surveyed("full")
        # Each opening of a table gives it another number.
        memory[events[np.isin(events[:, TYPE], (EventType.TABLE_MAP, *_ROWS)), START] + HEADER_SIZE + 1] += opening
        router.route(memory, events, "full")
    assert asked == ["orders", "keys_of_two", "hidden"]


def _long(number: int) -> bytes:
    return b"\xfe" + number.to_bytes(8, "little")


def _payload(content: bytes, *, size: int | None = None, compression: int = 0) -> tuple[Bytes, Longs]:
    packed = zstandard.ZstdCompressor().compress(content) if compression == 0 else content
    length = len(content) if size is None else size
    fields = b"\x02\x01" + bytes([compression])
    if compression >= 0xFB:
        fields = b"\x02\x03\xfc" + compression.to_bytes(2, "little")
    head = fields + b"\x03\x09" + _long(length) + b"\x01\x09" + _long(len(packed))
    return _one_event(EventType.TRANSACTION_PAYLOAD, head + b"\x00" + packed)


def _event(kind: int, body: bytes) -> bytes:
    return bytes(4) + bytes([kind]) + bytes(4) + (HEADER_SIZE + len(body)).to_bytes(4, "little") + bytes(6) + body


@pytest.mark.parametrize("compression", [0, 255])
def test_packed_events_take_the_place_and_position_of_their_pack(compression: int) -> None:
    inner = _event(EventType.QUERY, b"one") + _event(EventType.XID, b"12345678")
    ((memory, events),) = Unpacker().plain(*_payload(inner, compression=compression), "f")
    assert events[:, TYPE].tolist() == [EventType.QUERY, EventType.XID]
    assert events[:, POSITION].tolist() == [77, 77]
    assert [memory[each[START] + HEADER_SIZE : each[STOP]].tobytes() for each in events] == [b"one", b"12345678"]


@pytest.mark.parametrize("compression", [0, 255])
def test_a_large_pack_comes_in_pieces_of_a_bounded_size(compression: int) -> None:
    sent = [bytes([i % 251]) * size for i, size in enumerate([100] * 20_000 + [700_000] + [3_000] * 1_000)]
    inner = b"".join(_event(EventType.QUERY, body) for body in sent)
    unpacker = Unpacker(piece_bytes=500_000)
    found = []
    pieces = 0
    for memory, events in unpacker.plain(*_payload(inner, compression=compression), "f"):
        assert memory.size < 3_000_000
        found += [memory[each[START] + HEADER_SIZE : each[STOP]].tobytes() for each in events]
        pieces += 1
    assert found == sent
    assert pieces > 5


_INNER = _event(EventType.QUERY, b"x" * 31) * 2


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (_payload(_INNER, size=99), CorruptDataError, "impossible event size"),
        (_payload(_INNER, size=50), CorruptDataError, "of another size than it says"),
        (_payload(_INNER, size=101), CorruptDataError, "of another size than it says"),
        (_payload(_INNER, size=101, compression=255), CorruptDataError, "of another size than it says"),
        (_payload(_INNER, size=2**62), CorruptDataError, "of another size than it says"),
        (_payload(_INNER, size=2**64 - 1), CorruptDataError, "head cannot be read"),
        (_payload(b"\0" * 50), CorruptDataError, "impossible event size"),
        (_payload(_event(2, b"") + b"\0"), CorruptDataError, "impossible event size"),
        (_payload(b"x" * 50, compression=7), UnsupportedFormatError, "compression 7"),
        (_payload(_event(2, bytes(400_000))), UnsupportedFormatError, "of 400019 bytes; the limit is 300000"),
        (_one_event(40, b"\x03\xfc"), CorruptDataError, "head cannot be read"),
        (_one_event(40, b"\x02\x01\x00\x03\x01\x20\x00rubbish"), CorruptDataError, "cannot be decompressed"),
    ],
)
def test_a_damaged_pack_is_refused(payload: tuple[Bytes, Longs], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"binlog f position 77.*{text}"):
        list(Unpacker(largest_event=300_000).plain(*payload, "f"))


def test_no_transaction_begins_within_a_packed_one() -> None:
    inner = _event(EventType.GTID, b"\0" * 16 + b"\1" * 26)
    with pytest.raises(CorruptDataError, match=r"identifier .* cannot be read"):
        list(ChangeDecoder(charsets(), lambda table: None).decode(*_payload(inner), "f"))


def test_no_wanted_table_means_no_changes() -> None:
    memory, events = surveyed("full")
    assert not list(ChangeDecoder(charsets(), lambda table: None).decode(memory, events, "full"))
