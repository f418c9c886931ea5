"""The compiled pass over the rows of a SELECT in the text protocol, on bytes as servers send them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.wire import LONGEST_PACKET, PADDING
from pyspark_mysql_cdc_wm.client.text_rows import _END, _ERROR, _FAULT, _FULL, _LONG, _SHORT, _walk

ROWS: list[list[bytes | None]] = [
    [b"1", b"", None],
    [None, b"x" * 250, b"y" * 251],
    [b"\xfe", b"z" * 65_536, b"\xff\xfb"],
]
END = b"\x05\x00\x00\x07\xfe\x00\x00\x22\x00"


def text(value: bytes | None) -> bytes:
    """A value as the protocol has it: its size in one, three or four bytes before it."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    return (b"\xfc" + size.to_bytes(2, "little") if size < 1 << 16 else b"\xfd" + size.to_bytes(3, "little")) + value


def packet(content: bytes) -> bytes:
    return len(content).to_bytes(3, "little") + b"\x01" + content


def sent(rows: Sequence[Sequence[bytes | None]]) -> bytes:
    return b"".join(packet(b"".join(map(text, row))) for row in rows)


def walked(data: bytes, *, columns: int = 3, room: int = 10) -> tuple[int, list[list[bytes | None]], int]:
    """Return why the pass stopped, the rows that it located, and where it stopped."""
    memory = np.frombuffer(data + bytes(PADDING), np.uint8).copy()
    starts, sizes = np.empty((columns, room), np.int32), np.empty((columns, room), np.int32)
    why, count, at = _walk(memory, 0, len(data), 0, 0, starts, sizes)
    located = [
        [None if (b := starts[c, r]) < 0 else memory[b : b + sizes[c, r]].tobytes() for c in range(columns)]
        for r in range(count)
    ]
    return why, located, at


def test_values_of_all_sizes_and_nulls_are_located_up_to_the_end_of_the_rows() -> None:
    data = sent(ROWS)
    assert walked(data + END) == (_END, ROWS, len(data))


def test_a_row_that_has_not_arrived_whole_waits() -> None:
    data, complete = sent(ROWS[:2]), len(sent(ROWS[:1]))
    for size in range(len(data)):
        rows = ROWS[: size >= complete]
        assert walked(data[:size]) == (_SHORT, rows, complete if rows else 0)


def test_it_stops_where_there_is_no_more_room() -> None:
    assert walked(sent(ROWS), room=2) == (_FULL, ROWS[:2], len(sent(ROWS[:2])))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\x28\x04#HY000no", _ERROR),
        (text(b"a") + text(b"b"), _FAULT),
        (text(b"a") + text(b"b") + text(b"c") + b"\x00", _FAULT),
        (text(b"a") + text(b"b") + b"\x05c", _FAULT),
    ],
    ids=["an error of the server", "a value too few", "one too many", "one beyond its packet"],
)
def test_what_is_no_row_stops_it_behind_the_rows_before(content: bytes, why: int) -> None:
    data = sent(ROWS[:1])
    assert walked(data + packet(content)) == (why, ROWS[:1], len(data))


def test_a_row_of_several_packets_is_joined_first() -> None:
    head = LONGEST_PACKET.to_bytes(3, "little") + b"\x01"
    assert walked(sent(ROWS[:1]) + head + b"x") == (_LONG, ROWS[:1], len(sent(ROWS[:1])))
