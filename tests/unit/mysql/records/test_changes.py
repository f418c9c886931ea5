"""Which rows of a binlog count: not those that are rolled back or only prepared, and each with its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.query_events import statements
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from tests.unit.mysql.made_events import event, payload_of
from tests.unit.mysql.recordings import charsets, content, surveyed
from watermark_source.errors import UnsupportedFormatError

ROLLBACK = bytes(8) + b"\4" + bytes(4) + b"shop\0ROLLBACK"
FIRST = {"orders": [3, 3, 4, 4, 5], "keys_of_two": [7], "hidden": [9]}
"""The transactions of the recording's rows."""


def decoder(batch_rows: int = 10_000) -> ChangeDecoder:
    return ChangeDecoder(charsets(), lambda table: [str(each.name) for each in table.columns], batch_rows=batch_rows)


def transactions(*blocks: tuple[Bytes, Longs], by: ChangeDecoder | None = None, **how: Any) -> dict[str, list[int]]:
    by, found = by or decoder(), dict[str, list[int]]()
    for memory, events in blocks:
        for each in by.decode(memory, events, "f", **how):
            found.setdefault(each.table.table, []).extend(each.transactions.tolist())
    return found


def ended_by(kind: EventType, body: bytes, *, commit: int = 0) -> tuple[Bytes, Longs]:
    """The recording, with another end of one of its transactions with rows."""
    memory = padded(content("full") + bytes(HEADER_SIZE) + body)
    _, events = surveyed("full")
    at = np.flatnonzero(events[:, TYPE] == EventType.XID)[commit]
    events[at, [START, STOP, TYPE]] = len(content("full")), len(content("full")) + HEADER_SIZE + len(body), kind
    return memory, events


def test_rows_that_are_rolled_back_do_not_count_and_others_do() -> None:
    assert transactions(surveyed("full")) == FIRST
    assert transactions(ended_by(EventType.QUERY, ROLLBACK)) == {**FIRST, "orders": [4, 4, 5]}
    assert transactions(ended_by(EventType.QUERY, ROLLBACK, commit=2)) == {**FIRST, "orders": [3, 3, 4, 4]}


def test_rows_that_are_prepared_count_when_they_are_committed_or_at_once_in_one_phase() -> None:
    assert transactions(ended_by(EventType.XA_PREPARE, b"\0rest")) == {**FIRST, "orders": [4, 4, 5]}
    assert transactions(ended_by(EventType.XA_PREPARE, b"\1rest")) == FIRST
    assert transactions(ended_by(EventType.XA_PREPARE, b"\0rest"), prepared=True) == FIRST


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (EventType.QUERY, ROLLBACK, "a transaction was logged and rolled back, and is too long"),
        (EventType.XA_PREPARE, b"\0rest", "an XA transaction was prepared, and is too long"),
    ],
)
def test_the_end_of_a_transaction_whose_rows_were_delivered_is_too_late_for_leaving_them_out(
    kind: EventType, body: bytes, text: str
) -> None:
    memory, events = ended_by(kind, body)
    end = int(np.flatnonzero(events[:, START] == len(content("full")))[0])
    with pytest.raises(UnsupportedFormatError, match=text):
        transactions((memory, events[:end]), (memory, events[end:]))
    # Of one without rows before the block nothing was delivered.
    begin = end - 3
    assert transactions((memory, events[:begin]), (memory, events[begin:])) == {**FIRST, "orders": [4, 4, 5]}


def numbers(by: ChangeDecoder, memory: Bytes, events: Longs, places: Longs | None = None) -> list[tuple[str, int, int]]:
    return [
        (each.table.table, number, version)
        for each in by.decode(memory, events, "f", places)
        for number, version in zip(each.numbers.tolist(), each.versions.tolist(), strict=True)
    ]


@pytest.mark.parametrize("batch_rows", [1, 2, 3])
def test_numbers_and_versions_go_on_from_batch_to_batch_and_block_to_block(batch_rows: int) -> None:
    memory, events = surveyed("full")
    begins = events[np.flatnonzero(events[:, TYPE] == EventType.GTID), POSITION].tolist()
    expected = [
        *(("orders", number, begins[2]) for number in (0, 1)),
        *(("orders", number, begins[3]) for number in (0, 1)),
        ("orders", 0, begins[4]),
        ("keys_of_two", 0, begins[6]),
        ("hidden", 0, begins[8]),
    ]
    for cut in range(len(events)):
        by = decoder(batch_rows)
        assert numbers(by, memory, events[:cut]) + numbers(by, memory, events[cut:]) == expected, cut


@pytest.mark.parametrize("batch_rows", [1, 10_000])
def test_after_a_block_that_somebody_else_reads_numbers_are_as_if_it_had_been_read(batch_rows: int) -> None:
    # A transaction with rows in two events, the first of which someone else reads.
    memory, events = surveyed("full")
    first, second = np.flatnonzero(events[:, TYPE] == EventType.WRITE_ROWS)[[0, 0]]
    events = np.insert(events, second + 1, events[first], axis=0)
    places = np.arange(len(events)) * 10
    whole = numbers(decoder(batch_rows), memory, events, places)
    assert [number for table, number, _ in whole if table == "orders"][:4] == [0, 1, 2, 3]
    for cut in range(first + 1, len(events)):
        by = decoder(batch_rows)
        by.pass_over(memory, events[:cut], "f", places[:cut])
        rest = numbers(by, memory, events[cut:], places[cut:])
        assert rest == whole[len(whole) - len(rest) :], cut
        assert by.reached == 1_795_312_355_709_238


def test_statements_of_a_compressed_transaction_are_looked_at_too() -> None:
    query = bytes(8) + b"\4" + bytes(4) + b"shop\0UPDATE t SET a = 1"
    memory, events = payload_of(event(EventType.QUERY, query))
    found: list[str] = []

    def inspect(unpacked: Bytes, its_events: Longs, file: str) -> None:
        found.extend(f"{file}: {each.text}" for each in statements(unpacked, its_events))

    assert list(ChangeDecoder({}, lambda _: None, inspect=inspect).decode(memory, events, "f")) == []
    assert found == ["f: UPDATE t SET a = 1"]
