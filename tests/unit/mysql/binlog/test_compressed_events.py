"""Events that MariaDB compresses one by one: what they stand for, and what they cannot be."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import uncompressed
from pyspark_mysql_cdc_wm.binlog.event_headers import EVENT_FIELDS, HEADER_SIZE, START, STOP, TYPE
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError

ROWS = bytes(range(200)) * 3
QUERY_HEAD = bytes(8) + b"\x04" + bytes(2) + b"\x03\x00" + b"abc" + b"shop\0"
WRITE_HEAD = bytes(8) + b"\x09" + bytes(2)
UPDATE_HEAD = bytes(8) + b"\x09" + bytes(4)
WRITE_V2_HEAD = bytes(8) + b"\x04\x00xy" + b"\x09" + bytes(2)


def packed(content: bytes, width: int = 2) -> bytes:
    return bytes((0x80 | width,)) + len(content).to_bytes(width, "big") + zlib.compress(content)


def block(*events: tuple[int, bytes]) -> tuple[Bytes, Longs]:
    """Events by their types and bodies."""
    table, content = np.zeros((len(events), EVENT_FIELDS), np.int64), b""
    for row, (kind, body) in zip(table, events, strict=True):
        row[START], row[TYPE] = len(content), kind
        content += bytes(4) + bytes((kind,)) + bytes(HEADER_SIZE - 5) + body
        row[STOP] = len(content)
        content += b"csum"
    return padded(content), table


def bodies(memory: Bytes, events: Longs) -> list[tuple[int, bytes]]:
    found = []
    for row in events:
        content = memory[row[START] : row[STOP]].tobytes()
        assert content[4] == row[TYPE]
        found.append((content[4], content[HEADER_SIZE:]))
    return found


@pytest.mark.parametrize(
    ("kind", "head", "stands_for"),
    [
        (165, QUERY_HEAD, 2), (166, WRITE_HEAD, 23), (167, UPDATE_HEAD, 24), (168, WRITE_HEAD, 25),
        (169, WRITE_V2_HEAD, 30), (171, WRITE_V2_HEAD, 32),
    ],
)  # fmt: skip
@pytest.mark.parametrize("width", [2, 4])
def test_it_is_the_event_that_it_stands_for(kind: int, head: bytes, stands_for: int, width: int) -> None:
    (found,) = uncompressed(*block((19, b"map"), (kind, head + packed(ROWS, width)), (16, bytes(8))), "f")
    assert bodies(*found) == [(19, b"map"), (stands_for, head + ROWS), (16, bytes(8))]


def test_events_that_are_not_compressed_are_not_copied() -> None:
    memory, events = block((19, b"map"), (23, WRITE_HEAD + ROWS))
    ((same, table),) = uncompressed(memory, events, "f")
    assert same is memory
    assert table is events


def test_many_come_in_pieces_of_a_bounded_size() -> None:
    events = [(166, WRITE_HEAD + packed(bytes(10_000)))] * 20
    found = list(uncompressed(*block(*events), "f", piece_bytes=35_000))
    assert [len(table) for _, table in found] == [4] * 5
    assert [each for piece in found for each in bodies(*piece)] == [(23, WRITE_HEAD + bytes(10_000))] * 20


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (packed(ROWS)[:-5], CorruptDataError, "whose size differs from its header"),
        (b"\x82\x00\x05" + zlib.compress(ROWS), CorruptDataError, "whose size differs from its header"),
        (b"\x83\x00\xff\xff" + zlib.compress(ROWS), CorruptDataError, "whose size differs from its header"),
        (b"\x82\x00\x05not zlib", CorruptDataError, "cannot be decompressed"),
        (b"\x02\x00\x05", CorruptDataError, "its size has the form 2"),
        (b"\x80", CorruptDataError, "its size has the form 128"),
        (b"", CorruptDataError, "cannot be read"),
        (b"\x92\x00\x05", UnsupportedFormatError, "compression 1"),
        (b"\x84\x7f\x00\x00\x00", UnsupportedFormatError, "the limit is 1073741824"),
    ],
)
def test_a_damaged_one_is_refused(content: bytes, error: type[SourceError], message: str) -> None:
    with pytest.raises(error, match=f"binlog f position 0: .*{message}"):
        list(uncompressed(*block((166, WRITE_HEAD + content)), "f"))


@pytest.mark.parametrize("kind", [165, 167, 170])
def test_one_cut_anywhere_is_refused(kind: int) -> None:
    head = QUERY_HEAD if kind == 165 else UPDATE_HEAD if kind == 167 else bytes(8) + b"\x02\x00" + b"\x09" + bytes(4)
    whole = head + packed(ROWS)
    for size in range(len(whole)):
        with pytest.raises(CorruptDataError):
            list(uncompressed(*block((kind, whole[:size])), "f"))
