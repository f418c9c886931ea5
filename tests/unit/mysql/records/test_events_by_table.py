"""Events to transactions and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    EVENT_FIELDS,
    HEADER_SIZE,
    IGNORABLE,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.events_by_table import Router
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from tests.unit.mysql.made_events import event, one_event, payload_of
from tests.unit.mysql.recordings import charsets, surveyed
from watermark_source.errors import CorruptDataError, UnsupportedFormatError


@pytest.mark.parametrize("kind", [EventType.INCIDENT, 43, 100, 164, 165, 169, 255])
def test_an_event_that_is_not_known_must_be_flagged_to_be_passed_over(kind: int) -> None:
    with pytest.raises(
        UnsupportedFormatError,
        match=rf"binlog f position 77 \(type {int(kind)}\): an event that is not read .*; begin a new query",
    ):
        Router(lambda table: None).route(*one_event(kind, b""), "f")
    assert Router(lambda table: None).route(*one_event(kind, b"", flags=IGNORABLE), "f").tables.tolist() == [-1]


@pytest.mark.parametrize("kind", [9, 11, EventType.BEGIN_LOAD_QUERY, EventType.EXECUTE_LOAD_QUERY])
def test_the_file_of_a_load_data_is_passed_over(kind: int) -> None:
    assert Router(lambda table: None).route(*one_event(kind, bytes(26)), "f").tables.tolist() == [-1]


def test_rows_without_a_description_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="without a table map"):
        Router(lambda table: None).route(*one_event(EventType.WRITE_ROWS, (5).to_bytes(6, "little") + bytes(9)), "f")


def _block(*contents: bytes) -> tuple[Bytes, Longs]:
    starts = np.cumsum([0, *map(len, contents)])
    events = np.zeros((len(contents), EVENT_FIELDS), np.int64)
    events[:, START], events[:, STOP] = starts[:-1], starts[1:]
    events[:, TYPE] = [content[4] for content in contents]
    return padded(b"".join(contents)), events


def test_a_statement_may_lock_any_number_of_tables() -> None:
    # LOCK TABLES: each statement describes all tables that are locked for writing, then its rows.
    def opened(number: int) -> bytes:
        name = b"t%d" % number
        return event(
            EventType.TABLE_MAP,
            number.to_bytes(6, "little") + b"\0\0\1d\0" + bytes([len(name)]) + name + b"\0\1\3\0\0",
        )

    def changed(number: int) -> bytes:
        return event(EventType.WRITE_ROWS, number.to_bytes(6, "little") + bytes(9))

    asked: list[str] = []

    def index(table: TableMap) -> int:
        asked.append(table.table)
        return len(asked) - 1

    router = Router(index)
    maps, rows = [opened(number) for number in range(1, 601)], [changed(1), changed(300), changed(600)]
    for _ in range(2):
        assert router.route(*_block(*maps, *rows), "f").tables[-3:].tolist() == [0, 299, 599]
    others = [each for number in range(601, 3_001) for each in (opened(number), changed(number))]
    assert router.route(*_block(*others), "f").tables[1::2].tolist() == list(range(600, 3_000))
    # What is kept of them does not grow with the tables that were changed one after another.
    assert len(router._known) < 600


def test_the_event_that_only_frees_descriptions_is_no_rows() -> None:
    body = (0xFFFFFF).to_bytes(6, "little") + bytes(9)
    assert Router(lambda table: None).route(*one_event(EventType.WRITE_ROWS, body), "f").tables.tolist() == [-1]


_ROWS = (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS)


def test_a_table_is_asked_about_once_a_shape() -> None:
    asked: list[Any] = []
    router = Router(lambda table: asked.append(table.table))
    for opening in range(3):
        memory, events = surveyed("full")
        # Each opening of a table gives it another number.
        memory[events[np.isin(events[:, TYPE], (EventType.TABLE_MAP, *_ROWS)), START] + HEADER_SIZE + 1] += opening
        router.route(memory, events, "full")
    assert asked == ["orders", "keys_of_two", "hidden"]


def test_of_a_table_that_is_not_read_no_column_is_looked_at() -> None:
    block = one_event(EventType.TABLE_MAP, bytes(8) + b"\1d\0\1t\0" + bytes([1, 200, 0, 1]))
    with pytest.raises(UnsupportedFormatError, match=r"a column of a type that is not read \(type 200\)"):
        Router(lambda table: None).route(*block, "f")
    asked: list[Any] = []
    router = Router(lambda table: None, lambda *name: bool(asked.append(name)))
    assert router.route(*block, "f").tables.tolist() == [-1]
    assert asked == [("d", "t")]


def test_no_transaction_begins_within_a_packed_one() -> None:
    inner = event(EventType.GTID, b"\0" * 16 + b"\1" * 26)
    with pytest.raises(CorruptDataError, match=r"identifier .* cannot be read"):
        list(ChangeDecoder(charsets(), lambda table: None).decode(*payload_of(inner), "f"))


def test_no_wanted_table_means_no_changes() -> None:
    memory, events = surveyed("full")
    assert not list(ChangeDecoder(charsets(), lambda table: None).decode(memory, events, "full"))
