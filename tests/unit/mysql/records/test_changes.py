"""Which rows of a binlog count: not those that are rolled back or only prepared, and each with its number."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from tests.unit.mysql.recordings import charsets, content, surveyed
from watermark_source.errors import UnsupportedFormatError

ROLLBACK = bytes(8) + b"\4" + bytes(4) + b"shop\0ROLLBACK"
FIRST = {"orders": [3, 3, 4, 4, 5], "keys_of_two": [7], "hidden": [9]}
"""The transactions of the recording's rows."""


def decoder() -> ChangeDecoder:
    return ChangeDecoder(charsets(), lambda table: [str(column.name) for column in table.columns])


def transactions(*blocks: tuple[Bytes, Longs], by: ChangeDecoder | None = None, **how: bool) -> dict[str, list[int]]:
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
        (EventType.XA_PREPARE, b"\0rest", "a transaction of XA was prepared, and is too long"),
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


def test_numbers_go_on_in_the_next_block_and_begin_anew_with_each_transaction() -> None:
    memory, events = surveyed("full")
    rows = np.flatnonzero(np.isin(events[:, TYPE], (EventType.WRITE_ROWS, EventType.UPDATE_ROWS)))
    for cut in (rows[0], rows[0] + 1, rows[1], rows[1] + 1):
        by, numbers = decoder(), []
        for part in (events[:cut], events[cut:]):
            numbers += [n for each in by.decode(memory, part, "f") for n in each.numbers.tolist()]
        assert numbers == [0, 1, 0, 1, 0, 0, 0], cut
