"""Compressed transactions: their events one after another, in pieces, and what they cannot be."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import zstandard

from pyspark_mysql_cdc_wm.binlog import compressed_transactions
from pyspark_mysql_cdc_wm.binlog.compressed_transactions import Unpacker
from pyspark_mysql_cdc_wm.binlog.event_headers import (
    FLAGS,
    HEADER_SIZE,
    POSITION,
    SECONDS,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from tests.unit.mysql.made_events import bodies, event, one_event, payload_of
from watermark_source.errors import CorruptDataError, UnsupportedFormatError


@pytest.mark.parametrize("compression", [0, 255])
def test_packed_events_take_the_place_and_position_of_their_pack(compression: int) -> None:
    inner = event(EventType.QUERY, b"one") + event(EventType.XID, b"12345678")
    ((memory, events),) = Unpacker().plain(*payload_of(inner, compression=compression), "f")
    assert events[:, TYPE].tolist() == [EventType.QUERY, EventType.XID]
    assert events[:, POSITION].tolist() == [77, 77]
    assert bodies(memory, events) == [b"one", b"12345678"]


@pytest.mark.parametrize("compression", [0, 255])
def test_a_large_pack_comes_in_pieces_of_a_bounded_size(compression: int) -> None:
    sent = [bytes([i % 251]) * size for i, size in enumerate([100] * 20_000 + [700_000] + [3_000] * 1_000)]
    inner = b"".join(event(EventType.QUERY, body) for body in sent)
    unpacker = Unpacker(piece_bytes=500_000)
    found = []
    pieces = 0
    for memory, events in unpacker.plain(*payload_of(inner, compression=compression), "f"):
        assert memory.size < 3_000_000
        found += bodies(memory, events)
        pieces += 1
    assert found == sent
    assert pieces > 5


@pytest.mark.parametrize(("size", "events"), [(65_536, 64), (65_500, 68), (65_792, 67)])
def test_a_piece_is_given_away_at_four_mebibytes_read_by_256_kib(size: int, events: int) -> None:
    inner = event(EventType.QUERY, bytes(size - HEADER_SIZE)) * 100
    _, first = next(Unpacker().plain(*payload_of(inner), "f"))
    assert len(first) == events


def test_a_block_without_any_is_as_it_was_and_a_small_one_takes_a_mebibyte() -> None:
    memory, events = one_event(EventType.XID, b"12345678")
    unpacker = Unpacker()
    ((same, rows),) = unpacker.plain(memory, events, "f")
    assert same is memory
    assert rows is events
    ((unpacked, _),) = unpacker.plain(*payload_of(event(EventType.XID)), "f")
    assert unpacked.size == 1 << 20


_INNER = event(EventType.QUERY, b"x" * 31) * 2


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (payload_of(_INNER, size=99), CorruptDataError, "impossible event size"),
        (payload_of(_INNER, size=50), CorruptDataError, "whose size differs from its header"),
        (payload_of(_INNER, size=101), CorruptDataError, "whose size differs from its header"),
        (payload_of(_INNER, size=101, compression=255), CorruptDataError, "whose size differs from its header"),
        (payload_of(_INNER, size=2**62), CorruptDataError, "whose size differs from its header"),
        (payload_of(_INNER, size=2**64 - 1), CorruptDataError, "head cannot be read"),
        (payload_of(b"\0" * 50), CorruptDataError, "impossible event size"),
        # An event of ten bytes, and one that begins within its header.
        (payload_of(bytes(9) + b"\x0a" + bytes(9) + b"\x13" + bytes(9)), CorruptDataError, "impossible event size"),
        (payload_of(event(2, b"") + b"\0"), CorruptDataError, "impossible event size"),
        (payload_of(b"x" * 50, compression=7), UnsupportedFormatError, "compression 7"),
        (payload_of(event(2, bytes(400_000))), UnsupportedFormatError, "of 400019 bytes; the limit is 300000"),
        (one_event(40, b"\x03\xfc"), CorruptDataError, "head cannot be read"),
        (one_event(40, b"\x02\x01\x00\x03\x01\x20\x00rubbish"), CorruptDataError, "cannot be decompressed"),
    ],
)
def test_a_damaged_pack_is_refused(payload: tuple[Bytes, Longs], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"binlog f position 77.*{text}"):
        list(Unpacker(largest_event=300_000).plain(*payload, "f"))


def test_after_a_damaged_pack_the_next_block_begins_anew() -> None:
    unpacker, (block, table) = Unpacker(), payload_of(event(EventType.QUERY, b"x" * 40))
    for _ in range(2):
        with pytest.raises(CorruptDataError):
            list(unpacker.plain(*payload_of(_INNER + b"\0"), "f"))
        ((_, events),) = unpacker.plain(block, table, "f")
        assert events[:, START].tolist() == [0]
    with pytest.raises(CorruptDataError):
        list(unpacker.plain(*payload_of(_INNER + b"\0"), "f"))
    body = Arriving(block[HEADER_SIZE : table[0, STOP]].tobytes())
    ((_, events, last),) = unpacker.of_one(body, 77, "f")
    assert (events[:, START].tolist(), last) == ([0], True)


def test_packed_events_keep_what_their_own_headers_say() -> None:
    inner = event(EventType.XID, bytes(8), seconds=7, server=9, flags=0x4321)
    ((_, events),) = Unpacker().plain(*payload_of(inner), "f")
    assert events[:, [TYPE, SECONDS, FLAGS]].tolist() == [[EventType.XID, 7, 0x4321]]


def test_events_around_packed_ones_keep_their_places() -> None:
    packs = [payload_of(event(EventType.QUERY, name)) for name in (b"first", b"second")]
    blocks = [one_event(EventType.XID, b"before"), packs[0], one_event(EventType.XID, b"between"), packs[1]]
    blocks.append(one_event(EventType.XID, b"after"))
    memory, tables = b"", []
    for content, table in blocks:
        moved = table.copy()
        moved[:, (START, STOP)] += len(memory)
        tables.append(moved)
        memory += content[: table[0, STOP]].tobytes()
    ((plain, events),) = Unpacker().plain(padded(memory), np.concatenate(tables), "f")
    assert bodies(plain, events) == [b"before", b"first", b"between", b"second", b"after"]
    assert events[1:, START].tolist() == events[:-1, STOP].tolist(), "nothing lies between them"


def test_a_large_transaction_is_several_frames() -> None:
    halves = [event(EventType.QUERY, name) for name in (b"one", b"another")]
    whole = b"".join(zstandard.ZstdCompressor().compress(half) for half in halves)
    memory, events = payload_of(whole, size=sum(map(len, halves)), compression=255)
    # The same head, with the number of zstd.
    place = memory.tobytes().index(b"\x02\x03\xfc\xff\x00")
    memory[place : place + 5] = np.frombuffer(b"\x02\x03\xfc\x00\x00", np.uint8)
    ((plain, found),) = Unpacker().plain(memory, events, "f")
    assert bodies(plain, found) == [b"one", b"another"]


@pytest.mark.parametrize("step", [1, 19, 20, 64])
def test_events_longer_than_what_is_unpacked_at_once_are_put_together(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(compressed_transactions, "_STEP_BYTES", step)
    sent = [bytes([size]) * size for size in (0, 1, 45, 46, 100, 0)]
    inner = b"".join(event(EventType.QUERY, body) for body in sent)
    found = []
    for memory, events in Unpacker(piece_bytes=50).plain(*payload_of(inner), "f"):
        found += bodies(memory, events)
    assert found == sent


class Arriving(io.RawIOBase):
    """The body of an event that arrives a few bytes at a time."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any, /) -> int:
        size = min(len(target), len(self._content), 7)
        target[:size], self._content = self._content[:size], self._content[size:]
        return size


@pytest.mark.parametrize("compression", [0, 255])
def test_one_that_arrives_meanwhile_comes_in_pieces_of_which_the_last_says_so(compression: int) -> None:
    sent = [bytes([size]) * size for size in (0, 30, 45, 46, 100, 0)]
    block, table = payload_of(b"".join(event(EventType.QUERY, body) for body in sent), compression=compression)
    body = Arriving(block[HEADER_SIZE : table[0, STOP]].tobytes())
    pieces = [(bodies(memory, events), last) for memory, events, last in Unpacker(piece_bytes=50).of_one(body, 77, "f")]
    assert [text for texts, _ in pieces for text in texts] == sent
    assert [last for _, last in pieces] == [False] * (len(pieces) - 1) + [True]
